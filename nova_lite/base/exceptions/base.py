"""Base classes of all errors. Each sets the HTTP status of its family."""

from __future__ import annotations

from typing import Any


class NovaLiteException(Exception):
    """Base error. ``code`` is the HTTP status, ``msg_fmt`` a %-format over the keyword arguments."""

    msg_fmt = "An unknown error occurred."
    code = 500

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        if message is None:
            message = self.msg_fmt % kwargs
        self.kwargs = kwargs
        super().__init__(message)

    @property
    def message(self) -> str:
        """The error text, without a remote traceback that the bus may have appended."""
        return str(self.args[0]) if self.args else self.msg_fmt

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the client may try again, for the header of that name. None: as usual for the status."""
        return self.kwargs.get("retry_after")


class Invalid(NovaLiteException):
    msg_fmt = "The request is invalid."
    code = 400


class Unauthorized(NovaLiteException):
    msg_fmt = "The request you have made requires authentication."
    code = 401


class TooManyRequests(NovaLiteException):
    msg_fmt = "These are more than %(limit)d requests within a minute."
    code = 429


class Forbidden(NovaLiteException):
    msg_fmt = "You are not authorized to do this."
    code = 403


class NotFound(NovaLiteException):
    msg_fmt = "Resource could not be found."
    code = 404


class Conflict(NovaLiteException):
    msg_fmt = "The resource is in use or in the wrong state."
    code = 409


class Gone(NovaLiteException):
    msg_fmt = "This resource is no longer available. No forwarding address is given."
    code = 410


class PreconditionFailed(NovaLiteException):
    msg_fmt = "The resource is not in the state that the request names."
    code = 412


class NotImplementedByDriver(NovaLiteException):
    msg_fmt = "The virtualization driver does not support %(operation)s."
    code = 501


class NotServed(NovaLiteException):
    """A part of the compute API that this cloud does not offer.

    ``instead``: advice for the user, a sentence with a leading space, or an empty string.
    """

    msg_fmt = "%(what)s is not supported by this cloud.%(instead)s"
    code = 501

    def __init__(self, message: str | None = None, *, instead: str = "", **kwargs: Any) -> None:
        super().__init__(message, instead=instead, **kwargs)


class ServiceUnavailable(NovaLiteException):
    msg_fmt = "The service is unavailable for the moment. Please try again."
    code = 503


class ConfigurationError(NovaLiteException):
    """A mistake in the configuration. Daemons print the message in one line and exit with status 1."""

    msg_fmt = "%(reason)s"
