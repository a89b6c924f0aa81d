"""Signatures of AWS, versions 2 and 4: proofs that a request's sender has the secret of an EC2 credential.

A service that got such a request, such as Heat, passes its parts to the identity API. The older versions 0 and 1 prove
too little of the request, and are refused.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from nova_lite.base import exceptions

ALGORITHM = "AWS4-HMAC-SHA256"
#: Seconds for which a signature is valid, before and after the time in the request.
LIFETIME = 900.0

_DATE = "%Y%m%dT%H%M%SZ"


class SignedRequest(NamedTuple):
    """Parts of a signed request. Names of headers are in lower case."""

    access: str
    signature: str
    verb: str
    host: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body_hash: str

    @property
    def authorization(self) -> dict[str, str]:
        """The fields of version 4: from the header Authorization, or from the query."""
        text = self.headers.get("authorization", "")
        if text.startswith(ALGORITHM):
            return dict(re.findall(r"(Credential|SignedHeaders|Signature)=([^,\s]+)", text))
        if self.params.get("X-Amz-Algorithm") == ALGORITHM:
            names = ("Credential", "SignedHeaders", "Signature")
            return {name: self.params[f"X-Amz-{name}"] for name in names if f"X-Amz-{name}" in self.params}
        return {}


def parse(body: dict[str, Any]) -> SignedRequest:
    """Return the parts of a request as a service sends them. Raises `ValidationError`."""
    texts = {name: _text(body, name) for name in ("access", "signature", "verb", "host", "path", "body_hash")}
    params, headers = _texts(body, "params"), _texts(body, "headers")
    if not texts["access"] or not texts["signature"]:
        raise exceptions.ValidationError(detail="The credentials of a signed request have access and signature.")
    lower = {name.lower().strip(): value.strip() for name, value in headers.items()}
    return SignedRequest(**texts, params=params, headers=lower)


def is_right(request: SignedRequest, secret: str, now: float) -> bool:
    """Check the signature and the time of a request in constant time."""
    time = _time_of(request)
    if time is None or abs(now - time) > LIFETIME:
        return False
    if request.params.get("SignatureVersion") == "2":
        hosts = {request.host, request.host.partition(":")[0]}
        expected = [_version_2(request, secret, host) for host in sorted(hosts)]
    else:
        found = _version_4(request, secret)
        expected = [found] if found is not None else []
    return any(hmac.compare_digest(text.encode(), request.signature.encode()) for text in expected)


class SignedText(NamedTuple):
    """Text that a client of an object store signed, as its service sends it."""

    access: str
    signature: str
    text: bytes


def parse_s3(body: dict[str, Any]) -> SignedText:
    """Return the parts of a signed text, which is ``token`` in base64. Raises `ValidationError`."""
    access, signature, token = (_text(body, name) for name in ("access", "signature", "token"))
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_" if {*"-_"} & {*token} else None, validate=True)
    except ValueError:
        text = b""
    if not access or not signature or not text:
        raise exceptions.ValidationError(
            detail="The credentials of a signed text have access, signature, and the text as token in base64."
        )
    return SignedText(access, signature, text)


def is_right_s3(signed: SignedText, secret: str, now: float) -> bool:
    """Check the signature of a text in constant time, and with version 4 the time in it.

    The text of version 1 has no fixed place for the time. The service that got the request checks it.
    """
    if not signed.text.startswith(f"{ALGORITHM}\n".encode()):
        digest = hmac.digest(secret.encode(), signed.text, "sha1")
        return hmac.compare_digest(base64.b64encode(digest), signed.signature.encode())
    lines = signed.text.decode("utf-8", "replace").split("\n")
    scope = lines[2].split("/") if len(lines) == 4 else []
    if len(scope) != 4 or not lines[1].startswith(scope[0]):
        return False
    try:
        time = datetime.datetime.strptime(lines[1], _DATE).replace(tzinfo=datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return False
    found = hmac.digest(_key_of(secret, scope), signed.text, "sha256").hex()
    return abs(now - time) <= LIFETIME and hmac.compare_digest(found.encode(), signed.signature.encode())


def _key_of(secret: str, scope: list[str]) -> bytes:
    """Return the key of a day, region and service in version 4."""
    key = b"AWS4" + secret.encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _time_of(request: SignedRequest) -> float | None:
    """Return the Unix time that is signed with the request, or None if it has none."""
    if request.params.get("SignatureVersion") == "2":
        text, form = request.params.get("Timestamp", ""), None
    else:
        text, form = _amz_date(request), _DATE
    try:
        time = datetime.datetime.strptime(text, form) if form else datetime.datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _amz_date(request: SignedRequest) -> str:
    return request.headers.get("x-amz-date") or request.params.get("X-Amz-Date", "")


def _version_2(request: SignedRequest, secret: str, host: str) -> str:
    params = {name: value for name, value in request.params.items() if name != "Signature"}
    params["SignatureMethod"] = "HmacSHA256"
    text = "\n".join((request.verb, host, request.path, _query(params)))
    return base64.b64encode(hmac.digest(secret.encode(), text.encode(), "sha256")).decode()


def _version_4(request: SignedRequest, secret: str) -> str | None:
    given, date = request.authorization, _amz_date(request)
    scope = given.get("Credential", "").split("/")
    names = given.get("SignedHeaders", "").split(";")
    # The header's credential must be that of ``access``, and the host must be signed.
    if len(scope) != 5 or scope[0] != request.access or not date.startswith(scope[1]) or "host" not in names:
        return None
    params = {name: value for name, value in request.params.items() if name != "X-Amz-Signature"}
    headers = [f"{name}:{' '.join(request.headers[name].split())}" for name in names if name in request.headers]
    canonical = "\n".join(
        (
            request.verb.upper(),
            request.path,
            "" if request.verb.upper() == "POST" else _query(params),
            "\n".join(headers) + "\n",
            ";".join(names),
            request.body_hash,
        )
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = _key_of(secret, scope[1:])
    return hmac.digest(key, "\n".join((ALGORITHM, date, "/".join(scope[1:]), digest)).encode(), "sha256").hex()


def _query(params: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(params[name], safe='-_.~')}" for name in sorted(params))


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or not _is_utf8(value):
        raise exceptions.ValidationError(detail=f"{name} of a signed request must be a string.")
    return value


def _texts(body: dict[str, Any], name: str) -> dict[str, str]:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"{name} of a signed request must be an object.")
    texts = {str(key): str(item) for key, item in value.items()}
    if not all(_is_utf8(text) for pair in texts.items() for text in pair):
        raise exceptions.ValidationError(detail=f"{name} of a signed request must be strings in UTF-8.")
    return texts


def _is_utf8(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)
