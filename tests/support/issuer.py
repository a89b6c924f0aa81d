"""An OpenID Connect provider as tokens see it: an issuer with keys, its documents over HTTP, and signed tokens."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import webob
from joserfc import jwk, jws

from tests.support.http_site import HttpSite

AUDIENCE = "cloud"


class Issuer:
    """The provider. ``requests``: paths of the requests so far. ``documents``: responses by path, which may change.
    ``malformed``: a token that it refuses to look at.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.tokens: dict[str, dict[str, Any]] = {}
        self.site = HttpSite(self._respond)
        self.url = "http://{}:{}".format(*self.site.address)
        self.keys: list[Any] = [jwk.RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})]
        self.metadata = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "introspection_endpoint": f"{self.url}/introspect",
            "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token",
        }
        self.raw: bytes | None = None
        self.malformed = "malformed"
        #: Responses to codes, and the form of each request with one. A code works once.
        self.codes: dict[str, dict[str, Any]] = {}
        self.exchanges: list[dict[str, str]] = []

    def stop(self) -> None:
        self.site.stop()

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.url, "sub": "s-1", "aud": AUDIENCE, "iat": now, "exp": now + 300, "email": "a@b.org"}
        return {name: value for name, value in (claims | more).items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        full = {"alg": "RS256", "kid": "one"} | (header or {})
        given = {name: value for name, value in full.items() if value is not None}
        return sign(given, self.claims(**claims), key or self.keys[0])

    def _respond(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = webob.Request(environ)
        self.requests.append(request.path)
        if request.path == "/introspect":
            assert request.authorization == ("Basic", base64.b64encode(b"nova:hidden").decode())
            if request.POST["token"] == self.malformed:
                return webob.Response('{"error": "invalid_request"}', status=400)(environ, start_response)
            found: Any = self.tokens.get(request.POST["token"], {"active": False})
        elif request.path == "/token":
            self.exchanges.append({**request.POST, "authorization": request.headers.get("Authorization", "")})
            found = self.codes.pop(request.POST["code"], None)
            if found is None:
                return webob.Response('{"error": "invalid_grant"}', status=400)(environ, start_response)
        elif request.path == "/keys":
            found = {"keys": [key.as_dict(private=False) for key in self.keys]}
        else:
            found = self.metadata
        body = self.raw if self.raw is not None else json.dumps(found).encode()
        return webob.Response(body, content_type="application/json")(environ, start_response)


def sign(header: dict[str, Any], claims: dict[str, Any], key: Any) -> str:
    """Sign a token by whatever algorithm its header names, also an algorithm that no reader should accept."""
    algorithms = ["RS256", "PS256", "ES256", "HS256", "none", "RS512"]
    return jws.serialize_compact(header, json.dumps(claims), key, algorithms=algorithms)


def signed_by_secret(claims: dict[str, Any], secret: bytes) -> str:
    """Sign a token with a shared secret, which libraries refuse to make of a public key."""
    text = unsigned(claims, "HS256", kid="one").rstrip(".")
    signature = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def unsigned(claims: dict[str, Any], algorithm: Any = "none", **header: str) -> str:
    parts = [{"alg": algorithm, **header}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def running() -> Iterator[Issuer]:
    issuer = Issuer()
    try:
        yield issuer
    finally:
        issuer.stop()
