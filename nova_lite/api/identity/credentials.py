"""Credentials whose secret the service has to know itself: EC2 key pairs, keys of one-time codes (TOTP), and others.

``/v3/users/{user_id}/credentials/OS-EC2`` and ``/v3/credentials`` show the same EC2 credentials. A service, such as
Heat, passes a request that was signed with one to ``/v3/ec2tokens``, and gets a token of its user.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.audit import notes
from nova_lite.api.http.bodies import checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import app_credentials, credential_box, ec2_signature, one_time_codes, requests
from nova_lite.api.identity.authority import Scope
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Credential
from nova_lite.api.identity.requests import Object, Open, OptionalWords, Words
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

EC2, TOTP = "ec2", "totp"
#: Credentials of one user. Each API process has all of them in memory.
MAX_CREDENTIALS = 100
MIN_SECRET, MAX_TEXT, MAX_BLOB = 16, 255, 8192

_USER = {"user_id": "user_id"}
_EC2 = "/v3/users/{user_id}/credentials/OS-EC2"
_ALL = "/v3/credentials"


_Sent: TypeAlias = Annotated[Any, checked(lambda sent, name: sent[name])]


class NewEc2Credential(Open):
    tenant_id: Words


class SignedRequest(Open):
    ec2: _Sent = msgspec.field(name="ec2Credentials", default=None)
    credentials: _Sent = None


class SignedS3Request(Open):
    credentials: Object


class CredentialOwner(Open):
    user_id: OptionalWords = None


class NewCredential(CredentialOwner, kw_only=True):
    type: Words
    blob: Words
    project_id: OptionalWords = None


class ChangedCredential(Open):
    """A new blob. The other attributes may be sent with their present values."""

    user_id: _Sent = None
    type: _Sent = None
    project_id: _Sent = None
    blob: Words = ""


class _Sealed(IdentityResource):
    """Credentials whose secrets are encrypted."""

    def open(self, item: Credential) -> str:
        return credential_box.open_(self.content, item.sealed)


class Ec2Credentials(_Sealed):
    """EC2 credentials of users, and tokens for requests that are signed with them."""

    @route("GET", _EC2, policies.EC2_LIST, target=_USER, response="credentials")
    def index(self, req: ServiceRequest, user_id: str) -> Response:
        app_credentials.refuse_limited(req)
        mine = [item for item in self.content.credentials if (item.type, item.user_id) == (EC2, user_id)]
        return self.listed(req, (self._view(req, item) for item in mine))

    @route("GET", f"{_EC2}/{{id}}", policies.EC2_SHOW, target=_USER, response="credential")
    def show(self, req: ServiceRequest, user_id: str, id: str) -> View:
        app_credentials.refuse_limited(req)
        return self._view(req, _ec2(self.content, user_id, id))

    @route("POST", _EC2, policies.EC2_CREATE, target=_USER, body=NewEc2Credential, response="credential", status=201)
    def create(self, req: ServiceRequest, user_id: str) -> View:
        """Create a key pair for a project in which the user has a role."""
        app_credentials.refuse_limited(req)
        project_id, access, secret = requests.read(req, NewEc2Credential).tenant_id, uuid.uuid4().hex, _secret()

        def create(content: Content) -> Credential:
            _check_project(req, content, user_id, project_id)
            return _add_ec2(content, user_id, project_id, access, secret)

        return self._view(req, self.change(create))

    @route("DELETE", f"{_EC2}/{{id}}", policies.EC2_DELETE, target=_USER, status=204)
    def delete(self, req: ServiceRequest, user_id: str, id: str) -> None:
        app_credentials.refuse_limited(req)
        self.change(lambda content: content.credentials.remove(_ec2(content, user_id, id)))

    def _view(self, req: ServiceRequest, item: Credential) -> dict[str, Any]:
        path = f"{_EC2.format(user_id=item.user_id)}/{item.access}"
        return {
            "user_id": item.user_id,
            "tenant_id": item.project_id,
            "access": item.access,
            "secret": self.open(item),
            "trust_id": None,
            "links": {"self": req.base_url + path},
        }

    # --- tokens for signed requests

    @route("POST", "/v3/ec2tokens", policies.EC2_TOKENS, body=SignedRequest, response="token")
    def issue_for_signature(self, req: ServiceRequest) -> Response:
        """Return a token of the user who signed a request. Only services may ask for it."""
        body = requests.read(req, SignedRequest)
        signed = ec2_signature.parse(
            requests.object_field({"credentials": body.ec2 or body.credentials}, "credentials")
        )
        return self._issue(req, signed.access, lambda secret: ec2_signature.is_right(signed, secret, time.time()))

    @route("POST", "/v3/s3tokens", policies.S3_TOKENS, body=SignedS3Request, response="token")
    def issue_for_s3(self, req: ServiceRequest) -> Response:
        """Return a token of the user who signed a request to an object store. Only services may ask for it."""
        signed = ec2_signature.parse_s3(requests.read(req, SignedS3Request).credentials)
        return self._issue(req, signed.access, lambda secret: ec2_signature.is_right_s3(signed, secret, time.time()))

    def _issue(self, req: ServiceRequest, access: str, is_right: Callable[[str], bool]) -> Response:
        """Return a token of the user of an access key. ``is_right``: checks the signature by the secret."""
        found = _by_access(self.content, access)
        notes.caller(req.environ, found.user_id if found is not None else None)
        user = self.content.user(found.user_id) if found is not None else None
        # An unknown key takes as long as a wrong signature.
        secret = self.open(found) if found is not None else _secret()
        matches = is_right(secret)
        if found is None or user is None or not matches or not self.content.is_usable(user):
            raise exceptions.Unauthorized()
        identity = self.authority.scoped(user, Scope(project_id=found.project_id))
        text, token = self.authority.issue(identity, methods=["ec2credential"], signed_by=found)
        notes.caller(req.environ, token.user_id, token.project_id)
        return self.token_response(req, text, token, identity)


class Credentials(_Sealed):
    """Credentials."""

    @route("GET", _ALL, policies.SECRETS_LIST, authorizes=True, response="credentials")
    def index(self, req: ServiceRequest) -> Response:
        """List the caller's own credentials, for an admin all of them."""
        app_credentials.refuse_limited(req)
        caller = str(req.context.user_id)
        req.authorize(policies.SECRETS_LIST, {"user_id": caller})
        items = [
            item
            for item in self.content.credentials
            if req.allows(policies.SECRETS_SHOW, {"user_id": item.user_id})
            and req.GET.get("type") in (None, item.type)
            and req.GET.get("user_id") in (None, item.user_id)
        ]
        return self.listed(req, (self._view(req, item) for item in items))

    @route("GET", f"{_ALL}/{{id}}", policies.SECRETS_SHOW, authorizes=True, response="credential")
    def show(self, req: ServiceRequest, id: str) -> View:
        return self._view(req, self._authorized(req, id))

    @route("POST", _ALL, policies.SECRETS_CREATE, authorizes=True, body=NewCredential, key="credential", status=201)
    def create(self, req: ServiceRequest) -> View:
        app_credentials.refuse_limited(req)
        user_id = requests.read(req, CredentialOwner).user_id or str(req.context.user_id)
        req.authorize(policies.SECRETS_CREATE, {"user_id": user_id})
        body = requests.read(req, NewCredential)
        kind, blob, project_id = body.type, body.blob, body.project_id
        if kind == EC2:
            access, secret = _pair(blob)
            if project_id is None:
                raise exceptions.ValidationError(detail="A credential of type ec2 needs a project_id.")
        else:
            _check_blob(kind, blob)

        def create(content: Content) -> Credential:
            requests.user(content, user_id)
            if project_id is not None:
                _check_project(req, content, user_id, project_id)
            if kind == EC2:
                return _add_ec2(content, user_id, str(project_id), access, secret)
            return _add(content, uuid.uuid4().hex, user_id, kind, project_id, blob)

        return self._view(req, self.change(create))

    @route(
        "PATCH", f"{_ALL}/{{id}}", policies.SECRETS_UPDATE, authorizes=True, body=ChangedCredential, key="credential"
    )
    def update(self, req: ServiceRequest, id: str) -> View:
        """Change the secret, or both keys of EC2. User, type and project stay: other ones need another credential."""
        found = self._authorized(req, id)
        body = requests.changes(req)
        for name in ("user_id", "type", "project_id"):
            if body.get(name, getattr(found, name)) != getattr(found, name):
                raise exceptions.ValidationError(
                    detail=f"The {name} of a credential cannot be changed. Create another."
                )
        blob = requests.text_field(body, "blob")
        access = found.access
        if found.type == EC2:
            access, blob = _pair(blob)
        else:
            _check_blob(found.type, blob)

        def update(content: Content) -> Credential:
            item: Credential = requests.require("credential", id, content.find(Credential, id))
            if access != item.access:
                _check_access(content, access)
                item.access = access
            item.sealed = credential_box.seal(content, blob)
            return item

        return self._view(req, self.change(update))

    @route("DELETE", f"{_ALL}/{{id}}", policies.SECRETS_DELETE, authorizes=True, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self._authorized(req, id)
        self.change(
            lambda content: content.credentials.remove(requests.require("credential", id, content.find(Credential, id)))
        )

    def _authorized(self, req: ServiceRequest, id: str) -> Credential:
        """Return a credential that the caller may manage. A credential of another user looks unknown."""
        app_credentials.refuse_limited(req)
        found = self.content.find(Credential, id)
        if found is None or not req.allows(req.declared.policy, {"user_id": found.user_id}):
            req.authorize(req.declared.policy, {"user_id": str(req.context.user_id)})
            raise exceptions.NotFound(f"Could not find credential: {id[:64]}.")
        req.authorize(req.declared.policy, {"user_id": found.user_id})
        return found

    def _view(self, req: ServiceRequest, item: Credential) -> dict[str, Any]:
        secret = self.open(item)
        blob = json.dumps({"access": item.access, "secret": secret}) if item.type == EC2 else secret
        return {
            "id": item.id,
            "type": item.type,
            "user_id": item.user_id,
            "project_id": item.project_id,
            "blob": blob,
            "links": {"self": f"{req.base_url}{_ALL}/{item.id}"},
        }


def _id_of(access: str) -> str:
    """Return the id of an EC2 credential, as Keystone makes it."""
    return hashlib.sha256(access.encode()).hexdigest()


def _by_access(content: Content, access: str) -> Credential | None:
    """Return the EC2 credential with this access key. A changed key is another one than that of the id."""
    return next((item for item in content.credentials if item.type == EC2 and item.access == access), None)


def _check_access(content: Content, access: str) -> None:
    """Raise `Conflict` if the access key is in use, or was when its credential was made."""
    if content.find(Credential, _id_of(access)) is not None or _by_access(content, access) is not None:
        raise exceptions.Conflict("There is a credential with this access key already.")


def _ec2(content: Content, user_id: str, access: str) -> Credential:
    found = _by_access(content, access)
    return requests.require("credential", access, found if found is not None and found.user_id == user_id else None)


def _check_project(req: ServiceRequest, content: Content, user_id: str, project_id: str) -> None:
    """Raise `NotFound` unless the user has a role in the project: who has none does not learn whether it exists.

    An admin may name any project. The credential gives a token only if the user has a role there.
    """
    user = requests.user(content, user_id)
    known = content.project(project_id)
    may_name = known is not None and (req.context.is_admin or bool(content.roles_of(user, known.id)))
    requests.require("project", project_id, known if may_name else None)


def _secret() -> str:
    return secrets.token_hex(32)


def _add_ec2(content: Content, user_id: str, project_id: str, access: str, secret: str) -> Credential:
    _check_access(content, access)
    return _add(content, _id_of(access), user_id, EC2, project_id, secret, access)


def _add(
    content: Content, id: str, user_id: str, kind: str, project_id: str | None, secret: str, access: str = ""
) -> Credential:
    if sum(item.user_id == user_id for item in content.credentials) >= MAX_CREDENTIALS:
        raise exceptions.Forbidden(f"A user has at most {MAX_CREDENTIALS} credentials. Delete the unused ones.")
    sealed = credential_box.seal(content, secret)
    made = Credential(id=id, user_id=user_id, type=kind, project_id=project_id, sealed=sealed, access=access)
    content.credentials.append(made)
    return made


def _check_blob(kind: str, blob: str) -> None:
    """Raise `ValidationError` if a secret of a type other than ec2 cannot be kept."""
    if kind == TOTP:
        one_time_codes.key_of(blob)
    elif not re.fullmatch(r"[\w.-]{1,64}", kind, re.ASCII) or not 0 < len(blob) <= MAX_BLOB:
        raise exceptions.ValidationError(
            detail=f"The type of a credential has 1 to 64 letters, digits and _.-, and its blob has 1 to {MAX_BLOB} "
            "characters."
        )


def _pair(blob: str) -> tuple[str, str]:
    """Return access key and secret of an EC2 credential's blob. Raises `ValidationError`."""
    try:
        pair = json.loads(blob)
    except (ValueError, RecursionError):
        pair = None
    access, secret = (pair.get(name) if isinstance(pair, dict) else None for name in ("access", "secret"))
    if (
        not isinstance(access, str)
        or not isinstance(secret, str)
        or not re.fullmatch(rf"[\w/+=-]{{{MIN_SECRET},{MAX_TEXT}}}", access, re.ASCII)
        or not re.fullmatch(rf"[!-~]{{{MIN_SECRET},{MAX_TEXT}}}", secret)
    ):
        raise exceptions.ValidationError(
            detail="The blob of a credential of type ec2 is a JSON object in a string, with access and secret of "
            f"{MIN_SECRET} to {MAX_TEXT} characters in ASCII."
        )
    return access, secret
