"""Key pairs."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import KeyPair


def index(req: Request, keypairs: list[KeyPair]) -> list[dict[str, Any]]:
    return [{"keypair": _short(req, keypair)} for keypair in keypairs]


def show(req: Request, keypair: KeyPair) -> dict[str, Any]:
    return _short(req, keypair) | {
        "id": keypair.id,
        "user_id": keypair.user_id,
        "created_at": times.micros(keypair.created_at),
        "updated_at": None,
        "deleted": False,
        "deleted_at": None,
    }


def created(req: Request, keypair: KeyPair, private_key: str | None) -> dict[str, Any]:
    """``private_key`` is shown this one time, when it was made here."""
    view = _short(req, keypair) | {"user_id": keypair.user_id}
    if private_key is not None:
        view["private_key"] = private_key
    return view


def _short(req: Request, keypair: KeyPair) -> dict[str, Any]:
    view = {"name": keypair.name, "public_key": keypair.public_key, "fingerprint": keypair.fingerprint}
    if req.has(Change.KEYPAIR_TYPE):
        view["type"] = keypair.type
    return view
