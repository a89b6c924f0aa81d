"""``/os-keypairs``."""

from __future__ import annotations

from nova_lite.api.compute import certificates, ssh_keys
from nova_lite.api.compute.schemas import keypairs as schemas
from nova_lite.api.compute.views import keypairs as views
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import KeyPair
from nova_lite.objects.keypair import SSH, X509
from nova_lite.policies import keypairs as policies

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

    @declares(policies.INDEX, authorizes=True, query=schemas.INDEX, answer="keypairs")
    def index(self, req: Request) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        limit = req.query.limit if req.has(Change.KEYPAIR_PAGING) else None
        keypairs = self.conductor.keypair_list(req.context, user_id, limit, req.query.marker)
        links = req.next_page("keypairs_links", keypairs, limit, lambda keypair: keypair.name)
        return Response({"keypairs": views.index(req, keypairs), **links})

    @declares(policies.SHOW, authorizes=True, query=schemas.ONE, answer="keypair")
    def show(self, req: Request, name: str) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        return Response({"keypair": views.show(req, self.conductor.keypair_get(req.context, user_id, name))})

    @declares(policies.CREATE, authorizes=True, body=schemas.CREATE, status=_CREATED, answer="keypair")
    def create(self, req: Request) -> Response:
        body = req.data["keypair"]
        user_id = _authorized_user(req, body.get("user_id"))
        kind = body.get("type", SSH)
        make = _certificate if kind == X509 else _ssh_key
        private_key, public_key, fingerprint = make(body.get("public_key"), user_id)
        keypair = KeyPair(name=body["name"], user_id=user_id, type=kind, public_key=public_key, fingerprint=fingerprint)
        stored = self.conductor.keypair_create(req.context, keypair)
        return Response({"keypair": views.created(req, stored, private_key)}, _CREATED.at(req.version))

    @declares(policies.DELETE, authorizes=True, query=schemas.ONE, status=_DELETED)
    def delete(self, req: Request, name: str) -> Response:
        user_id = _authorized_user(req, req.query.one("user_id"))
        self.conductor.keypair_delete(req.context, user_id, name)
        return Response(status=_DELETED.at(req.version))


def _authorized_user(req: Request, user_id: str | None) -> str:
    """The user whose key pairs it is about: oneself, unless an admin names another one."""
    owner = user_id or str(req.context.user_id)
    req.authorize(req.declared.policy, {"user_id": owner, "project_id": req.context.project_id})
    return owner


# Private half (None when the public one was given), public half, fingerprint. A private half goes to the user and
# nowhere else.


def _ssh_key(given: str | None, user_id: str) -> tuple[str | None, str, str]:
    made, public_key = ssh_keys.generate() if given is None else (None, ssh_keys.checked(given))
    return made, public_key, ssh_keys.fingerprint(public_key)


def _certificate(given: str | None, user_id: str) -> tuple[str | None, str, str]:
    made, certificate = certificates.generate(user_id) if given is None else (None, certificates.checked(given))
    return made, certificate, certificates.fingerprint(certificate)
