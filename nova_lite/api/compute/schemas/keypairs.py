"""``/os-keypairs``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_NAME_21: t.Schema = {**t.NAME, "pattern": r"^[a-zA-Z0-9 _-]+$"}
_NAME_292: t.Schema = {**_NAME_21, "pattern": r"^[a-zA-Z0-9 _@.-]+$"}
_PUBLIC_KEY: t.Schema = {"type": "string"}
_TYPE: t.Schema = t.one_of("ssh", "x509")
_USER: t.Schema = t.TEXT

_KEY_21: t.Schema = {"name": _NAME_21, "public_key": _PUBLIC_KEY}
_KEY_22 = {**_KEY_21, "type": _TYPE}
_KEY_210 = {**_KEY_22, "user_id": _USER}
_KEY_292 = {**_KEY_210, "name": _NAME_292}

CREATE = Versioned(
    {
        1: t.wrapped("keypair", t.strict(_KEY_21, ("name",))),
        Change.KEYPAIR_TYPE: t.wrapped("keypair", t.strict(_KEY_22, ("name",))),
        Change.KEYPAIR_USER: t.wrapped("keypair", t.strict(_KEY_210, ("name",))),
        Change.KEYPAIR_IMPORT_ONLY: t.wrapped("keypair", t.strict(_KEY_292, ("name", "public_key"))),
    }
)

_OF_USER: t.Schema = {"user_id": t.Q_ANY}

INDEX = t.query({}, {Change.KEYPAIR_USER: _OF_USER, Change.KEYPAIR_PAGING: {**_OF_USER, **t.PAGING}})

ONE = t.query({}, {Change.KEYPAIR_USER: _OF_USER})
