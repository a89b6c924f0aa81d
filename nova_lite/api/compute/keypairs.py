"""``/os-keypairs``: users' SSH keys and certificates, which are generated here or imported."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import certificates, ssh_keys, view_helpers
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import KeyPair
from nova_lite.objects.keypair import SSH, X509
from nova_lite.policies import keypairs as policies

# --- schemas

_NAME_21: t.Schema = {**t.NAME, "pattern": r"^[a-zA-Z0-9 _-]+$"}
_NAME_292: t.Schema = {**_NAME_21, "pattern": r"^[a-zA-Z0-9 _@.-]+$"}
_PUBLIC_KEY: t.Schema = {"type": "string"}
_TYPE: t.Schema = t.one_of("ssh", "x509")
_USER: t.Schema = t.TEXT

_KEY_21: t.Schema = {"name": _NAME_21, "public_key": _PUBLIC_KEY}
_KEY_22 = {**_KEY_21, "type": _TYPE}
_KEY_210 = {**_KEY_22, "user_id": _USER}
_KEY_292 = {**_KEY_210, "name": _NAME_292}

CREATE_BODY = Versioned(
    {
        1: t.wrapped("keypair", t.strict(_KEY_21, ("name",))),
        Change.KEYPAIR_TYPE: t.wrapped("keypair", t.strict(_KEY_22, ("name",))),
        Change.KEYPAIR_USER: t.wrapped("keypair", t.strict(_KEY_210, ("name",))),
        Change.KEYPAIR_IMPORT_ONLY: t.wrapped("keypair", t.strict(_KEY_292, ("name", "public_key"))),
    }
)

_OF_USER: t.Schema = {"user_id": t.Q_ANY}

INDEX_QUERY = t.query({}, {Change.KEYPAIR_USER: _OF_USER, Change.KEYPAIR_PAGING: {**_OF_USER, **t.PAGING}})

USER_QUERY = t.query({}, {Change.KEYPAIR_USER: _OF_USER})


# --- routes

_CREATED = Versioned({1: 200, Change.KEYPAIR_TYPE: 201})
_DELETED = Versioned({1: 202, Change.KEYPAIR_TYPE: 204})


class Keypairs(Extension):
    alias = "os-keypairs"
    title = "Key pairs"
    routes = (
        Route("GET", "/os-keypairs", "index"),
        Route("POST", "/os-keypairs", "create"),
        Route("GET", "/os-keypairs/{name}", "show"),
        Route("DELETE", "/os-keypairs/{name}", "delete"),
    )

    @declares(policies.INDEX, authorizes=True, query=INDEX_QUERY, response="keypairs")
    def index(self, req: Request) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        limit = req.query.limit if req.has(Change.KEYPAIR_PAGING) else None
        keypairs = self.conductor.keypair_list(req.context, user_id, limit, req.query.marker)
        links = req.next_page("keypairs_links", keypairs, limit, lambda keypair: keypair.name)
        return Response({"keypairs": _list_view(req, keypairs), **links})

    @declares(policies.SHOW, authorizes=True, query=USER_QUERY, response="keypair")
    def show(self, req: Request, name: str) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        return Response({"keypair": _view(req, self.conductor.keypair_get(req.context, user_id, name))})

    @declares(policies.CREATE, authorizes=True, body=CREATE_BODY, status=_CREATED, response="keypair")
    def create(self, req: Request) -> Response:
        body = req.data["keypair"]
        user_id = _authorized_user(req, body.get("user_id"))
        kind = body.get("type", SSH)
        make = _certificate if kind == X509 else _ssh_key
        private_key, public_key, fingerprint = make(body.get("public_key"), user_id)
        keypair = KeyPair(name=body["name"], user_id=user_id, type=kind, public_key=public_key, fingerprint=fingerprint)
        stored = self.conductor.keypair_create(req.context, keypair)
        return Response({"keypair": _created_view(req, stored, private_key)}, _CREATED.at(req.version))

    @declares(policies.DELETE, authorizes=True, query=USER_QUERY, status=_DELETED)
    def delete(self, req: Request, name: str) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        self.conductor.keypair_delete(req.context, user_id, name)
        return Response(status=_DELETED.at(req.version))


def _authorized_user(req: Request, user_id: str | None) -> str:
    """Return the user whose key pairs the request is about: the caller, or the user that an admin names.

    Raises `PolicyNotAuthorized`.
    """
    owner = user_id or str(req.context.user_id)
    req.authorize(req.declared.policy, {"user_id": owner, "project_id": req.context.project_id})
    return owner


# Return values: private key (None if the public key was given), public key, and fingerprint. Only the response
# contains the private key; it is not stored.


def _ssh_key(given_key: str | None, user_id: str) -> tuple[str | None, str, str]:
    private_key, public_key = ssh_keys.generate() if given_key is None else (None, ssh_keys.checked(given_key))
    return private_key, public_key, ssh_keys.fingerprint(public_key)


def _certificate(given_key: str | None, user_id: str) -> tuple[str | None, str, str]:
    private_key, certificate = (
        certificates.generate(user_id) if given_key is None else (None, certificates.checked(given_key))
    )
    return private_key, certificate, certificates.fingerprint(certificate)


# --- views


def _list_view(req: Request, keypairs: list[KeyPair]) -> list[dict[str, Any]]:
    return [{"keypair": _short_view(req, keypair)} for keypair in keypairs]


def _view(req: Request, keypair: KeyPair) -> dict[str, Any]:
    return _short_view(req, keypair) | {
        "id": keypair.id,
        "user_id": keypair.user_id,
        "created_at": view_helpers.iso_micros(keypair.created_at),
        "updated_at": None,
        "deleted": False,
        "deleted_at": None,
    }


def _created_view(req: Request, keypair: KeyPair, private_key: str | None) -> dict[str, Any]:
    """Return the response to a create. It is the only one with ``private_key``, if the key was generated here."""
    view = _short_view(req, keypair) | {"user_id": keypair.user_id}
    if private_key is not None:
        view["private_key"] = private_key
    return view


def _short_view(req: Request, keypair: KeyPair) -> dict[str, Any]:
    view = {"name": keypair.name, "public_key": keypair.public_key, "fingerprint": keypair.fingerprint}
    if req.has(Change.KEYPAIR_TYPE):
        view["type"] = keypair.type
    return view
