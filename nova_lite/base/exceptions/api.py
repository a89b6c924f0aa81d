"""Errors of requests: malformed input, versions, sorting, paging, and policy."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Forbidden, Invalid, NovaLiteException, Unauthorized


class ValidationError(Invalid):
    msg_fmt = "%(detail)s"


class InvalidInput(Invalid):
    msg_fmt = "Invalid input received: %(reason)s"


class InvalidAPIVersionString(Invalid):
    msg_fmt = "API Version String %(version)s is of invalid format. Must be of format MajorNum.MinorNum."


class InvalidSortKey(Invalid):
    msg_fmt = "Sort key %(key)s is not valid. Valid keys are: %(valid)s."


class MarkerNotFound(Invalid):
    msg_fmt = "marker [%(marker)s] not found"


class TooManyFailures(Unauthorized):
    """Too many wrong passwords of one user. No password is checked for some seconds."""

    msg_fmt = "Too many passwords were wrong. Please try again in %(seconds)d seconds."
    code = 429

    @property
    def retry_after(self) -> int | None:
        return self.kwargs.get("seconds")


class PolicyNotAuthorized(Forbidden):
    msg_fmt = "Policy doesn't allow %(action)s to be performed."


class InvalidGlobalAPIVersion(NovaLiteException):
    msg_fmt = "Version %(req_ver)s is not supported by the API. Minimum is %(min_ver)s and maximum is %(max_ver)s."
    code = 406


class IdempotencyKeyReused(NovaLiteException):
    msg_fmt = (
        "The Idempotency-Key of this request came before, with another request: repeat that one as it was, or take a "
        "new key for a new server."
    )
    code = 422
