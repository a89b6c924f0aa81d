"""Checks of OpenID Connect tokens: by the provider's published keys, or by the provider itself (RFC 7662).

Only issuers of ``[oidc] issuers`` are ever contacted, whatever a token or a record names.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import requests
from oslo_config import cfg

from nova_lite.api.identity.gate import Gate, UnreachableError
from nova_lite.base import exceptions, ip, key_files, response_body
from nova_lite.base.timing import TIMING

LOG = logging.getLogger(__name__)

#: Characters of a token, bytes of a provider's response, and keys of a provider that are accepted.
MAX_TOKEN = 16384
MAX_RESPONSE = 262144
MAX_KEYS = 50
#: Seconds after which keys are read again, between two reads because of an unknown key, and in which old keys are used
#: while the provider does not answer.
KEYS_AGE, KEYS_RETRY, KEYS_STALE = 600.0, 30.0, 3600.0
#: Seconds by which the provider's clock may differ.
CLOCK_SKEW = 60.0

#: Types of tokens in their headers. Other types are of tokens that are no log-in, such as notices of a log-out.
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")

Claims = dict[str, Any]


class RefusedTokenError(Exception):
    """The token is not accepted. The text is the reason, for the log."""


class Keys(NamedTuple):
    """Keys of a provider, as of a time of the monotonic clock."""

    keys: list[Any]
    read_at: float


class Provider:
    """Provider of one issuer: its documents and keys, each read within `[oidc] timeout`."""

    def __init__(self, issuer: str, options: Any, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        self._options, self._clock = options, clock
        self._gate = Gate(f"The identity provider {issuer}")
        self._lock = threading.Lock()
        self._keys = Keys([], float("-inf"))
        self._failures = 0
        self._metadata: Claims = {}

    def key(self, kid: str | None, algorithm: str) -> Any:
        """Return the key of a token's header. An unknown one is looked for once more, but not too often."""
        keys = self._read_keys(KEYS_AGE)
        found = _fitting(keys.keys, kid, algorithm)
        if not found and self._clock() - keys.read_at > KEYS_RETRY:
            found = _fitting(self._read_keys(KEYS_RETRY).keys, kid, algorithm)
        if len(found) != 1:
            raise RefusedTokenError("its key is none of the provider's, or not named")
        return found[0]

    def reach(self) -> None:
        self._read_keys(KEYS_AGE)

    def introspect(self, token: str, client: tuple[str, str]) -> Claims:
        """Return the provider's description of a token. Raises `RefusedTokenError` if it calls the token malformed."""
        with self._gate.call():
            url = self._url("introspection_endpoint")
            return self._request("POST", url, data={"token": token}, auth=client)

    def url(self, name: str) -> str:
        """Return an endpoint of the provider's configuration."""
        with self._gate.call():
            return self._url(name)

    def exchange(self, form: dict[str, str], client: tuple[str, str] | None) -> Claims:
        """Return the response to a code. Raises `RefusedTokenError` if the provider refuses it."""
        with self._gate.call():
            return self._request("POST", self._url("token_endpoint"), data=form, auth=client)

    def _read_keys(self, max_age: float) -> Keys:
        """Return the keys, which are read again if they are older. Only threads that the gate admits wait for that."""
        age, failures = self._clock() - self._keys.read_at, self._failures
        if age > max_age:
            try:
                with self._gate.call(), self._lock:
                    self._read_again(max_age, failures)
            except exceptions.ServiceUnavailable:
                if age > KEYS_STALE:
                    raise
        return self._keys

    def _read_again(self, max_age: float, failures: int) -> None:
        """Read the keys, unless another thread has read them meanwhile, or has failed to."""
        if self._failures != failures:
            raise UnreachableError("it did not answer another request just now")
        if self._clock() - self._keys.read_at <= max_age:
            return
        try:
            self._keys = Keys(self._fetch_keys(), self._clock())
        except UnreachableError:
            self._failures += 1
            raise

    def _fetch_keys(self) -> list[Any]:
        from joserfc import jwk

        self._metadata = {}
        found = self._request("GET", self._url("jwks_uri")).get("keys")
        keys = []
        for item in found[:MAX_KEYS] if isinstance(found, list) else []:
            # A key that cannot be read, such as one of an unknown kind, is no reason to refuse the others.
            try:
                if item.get("use", "sig") == "sig" and item.get("kty") in ("RSA", "EC", "OKP"):
                    keys.append(jwk.import_key(item))
            except Exception as error:
                LOG.warning("A key of %s is left out: %s", self.issuer, type(error).__name__)
        if not keys:
            raise UnreachableError("it publishes no key of signatures")
        return keys

    def _url(self, name: str) -> str:
        known = self._metadata  # another thread may forget it
        if not known:
            known = self._request("GET", self.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if known.get("issuer") != self.issuer:
                raise UnreachableError(f"its configuration is of the issuer {str(known.get('issuer'))[:200]}")
            self._metadata = known
        url = known.get(name)
        if not isinstance(url, str) or not is_safe(url):
            raise UnreachableError(f"its configuration has no usable {name}")
        return url

    def _request(self, method: str, url: str, **options: Any) -> Claims:
        """Return a JSON object. Redirects and proxies are not used."""
        deadline = time.monotonic() + TIMING.clients.identity_timeout
        try:
            with requests.Session() as session:
                session.trust_env = False
                session.verify = self._options.ca_file or True
                response = session.request(
                    method, url, timeout=TIMING.clients.identity_timeout, allow_redirects=False, stream=True, **options
                )
                if response.status_code == 400 and method == "POST":
                    raise RefusedTokenError("the provider calls it malformed, with the status 400")
                if response.status_code != 200:
                    raise UnreachableError(f"{url} responds with the status {response.status_code}")
                data = response_body.read(response, MAX_RESPONSE, deadline)
            found = json.loads(data)
        except (requests.RequestException, OSError, ValueError, RecursionError) as error:
            raise UnreachableError(f"{url}: {' '.join(str(error).split())[:300]}") from error
        if not isinstance(found, dict):
            raise UnreachableError(f"the response of {url} is no JSON object")
        return found


class OidcTokens:
    """Tokens of the providers of ``[oidc]``."""

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float] = time.monotonic) -> None:
        """Check the options. Raises `ConfigurationError`."""
        options = conf.oidc
        try:
            import joserfc
        except ImportError as error:
            raise _mistake("issuers", "this needs the package joserfc: pip install 'nova_lite[oidc]'") from error
        del joserfc
        for issuer in options.issuers:
            if not is_safe(issuer):
                raise _mistake("issuers", f"{issuer} is not of the form https://HOST")
        if not options.audiences:
            raise _mistake("audiences", "set what a token's claim aud has to have, or any token would be accepted")
        if options.ca_file:
            key_files.check(options.ca_file, "[oidc] ca_file")
        self._options, self._algorithms = options, frozenset(options.algorithms)
        self._client = (options.introspection_client_id, _read_secret(options)) if _introspects(options) else None
        self._providers = {issuer: Provider(issuer, options, clock) for issuer in options.issuers}
        #: The web page's client: its id, and its secret or an empty text.
        self.page_client = _page_client(options)

    def reach(self) -> None:
        """Read the keys of all providers. Raises `ServiceUnavailable` if one of them does not answer."""
        for provider in self._providers.values():
            provider.reach()

    def provider(self, issuer: str) -> Provider | None:
        return self._providers.get(issuer)

    def login_url(self, issuer: str, callback: str, state: str, challenge: str) -> str:
        """Return the URL at which a user of the web page logs in. Raises `ServiceUnavailable`."""
        assert self.page_client is not None
        query = {
            "response_type": "code",
            "client_id": self.page_client[0],
            "redirect_uri": callback,
            "scope": self._options.page_scope,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        url = self._providers[issuer].url("authorization_endpoint")
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    def exchange(self, issuer: str, code: str, callback: str, verifier: str) -> str:
        """Return the token for a code of the web page. Raises `RefusedTokenError` and `ServiceUnavailable`."""
        assert self.page_client is not None
        name, secret = self.page_client
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback, "code_verifier": verifier}
        client = (name, secret) if secret else None
        found = self._providers[issuer].exchange(form if client else {**form, "client_id": name}, client)
        token = found.get(self._options.page_token_type)
        if not isinstance(token, str):
            raise RefusedTokenError(f"the provider returns no {self._options.page_token_type}")
        return token

    def claims(self, issuers: Collection[str], token: str) -> Claims:
        """Return the claims of a valid token of one of the issuers.

        Raises `RefusedTokenError`, and `ServiceUnavailable` if the provider does not answer.
        """
        known = [issuer for issuer in issuers if issuer in self._providers]
        if not known:
            raise RefusedTokenError("none of the identity provider's remote_ids is in [oidc] issuers")
        if not token or len(token) > MAX_TOKEN or not token.isascii():
            raise RefusedTokenError("it is empty, or too long")
        claims = self._signed(known, token) if token.count(".") == 2 else self._introspected(known, token)
        self._check(claims)
        return claims

    def _signed(self, issuers: list[str], token: str) -> Claims:
        from joserfc import jws
        from joserfc.errors import JoseError

        header, payload = (_json(part) for part in token.split(".")[:2])
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms or "crit" in header:
            raise RefusedTokenError(f"its algorithm is {str(algorithm)[:20]!r}, which [oidc] algorithms does not have")
        if header.get("typ") is not None and str(header["typ"]).lower() not in _TYPES:
            raise RefusedTokenError("it is a token of another type")
        issuer = payload.get("iss")
        if issuer not in issuers:
            raise RefusedTokenError(f"its issuer is {str(issuer)[:200]!r}, not one of the identity provider's")
        kid = header.get("kid")
        key = self._providers[issuer].key(kid if isinstance(kid, str) else None, algorithm)
        try:
            verified = jws.deserialize_compact(token, key, algorithms=[algorithm])
        except (JoseError, ValueError) as error:
            raise RefusedTokenError("its signature is wrong") from error
        claims = json.loads(verified.payload)
        if not isinstance(claims, dict) or not isinstance(claims.get("exp"), int | float):
            raise RefusedTokenError("it never expires")
        return claims

    def _introspected(self, issuers: list[str], token: str) -> Claims:
        if self._client is None:
            raise RefusedTokenError("it is no JWT, and [oidc] introspection_client_id is not set")
        for issuer in issuers:
            claims = self._providers[issuer].introspect(token, self._client)
            if claims.get("active") is True:
                if claims.setdefault("iss", issuer) != issuer:
                    raise RefusedTokenError("the provider says that it is of another issuer")
                if "aud" not in claims:
                    claims["aud"] = claims.get("client_id")
                return claims
        raise RefusedTokenError("the provider says that it is not active")

    def _check(self, claims: Claims) -> None:
        now = time.time()
        for name in ("exp", "nbf", "iat"):
            value = claims.get(name)
            if value is not None and not _is_right(name, value, now):
                raise RefusedTokenError(f"it is not valid at this time: {name} is {str(value)[:20]}")
        found = claims.get("aud")
        audiences = found if isinstance(found, list) else [found]
        if not any(audience in self._options.audiences for audience in audiences if isinstance(audience, str)):
            raise RefusedTokenError(f"it is for {str(found)[:200]}, which is not in [oidc] audiences")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise RefusedTokenError("it has no claim sub")


def _is_right(name: str, value: object, now: float) -> bool:
    """Check a time in a token. ``exp`` has to be in the future, the others in the past."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return now < value + CLOCK_SKEW if name == "exp" else value - CLOCK_SKEW <= now


def is_safe(url: str) -> bool:
    """Check whether a URL is of https, or of http on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - raises an error for a port that is no number
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment or not url.isascii():
        return False
    if parts.scheme == "https":
        return True
    return parts.scheme == "http" and ip.is_loopback(host)


def _fitting(keys: list[Any], kid: str | None, algorithm: str) -> list[Any]:
    kind = {"Ed": "OKP", "ES": "EC"}.get(algorithm[:2], "RSA")
    fitting = [key for key in keys if key.key_type == kind and key.alg in (None, algorithm)]
    return fitting if kid is None else [key for key in fitting if key.kid == kid]


def _json(part: str) -> dict[str, Any]:
    """Return an object in a token that is not verified yet."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError) as error:
        raise RefusedTokenError("it is no JWT") from error
    if not isinstance(found, dict):
        raise RefusedTokenError("it is no JWT")
    return found


def _introspects(options: Any) -> bool:
    return bool(options.introspection_client_id)


def _page_client(options: Any) -> tuple[str, str] | None:
    if not options.page_client_id:
        return None
    path = options.page_client_secret_file
    return options.page_client_id, _secret_in(path, "page_client_secret_file") if path else ""


def _read_secret(options: Any) -> str:
    path = options.introspection_secret_file
    if not path:
        raise _mistake("introspection_secret_file", "introspection_client_id needs a file with its secret")
    return _secret_in(path, "introspection_secret_file")


def _secret_in(path: str, option: str) -> str:
    key_files.check(path, f"[oidc] {option}", hidden_from=0o007, chmod="0640")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _mistake(option: str, why: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[oidc] {option}: {why}.")
