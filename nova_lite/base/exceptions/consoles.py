"""Errors of consoles."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Forbidden, Invalid, NotFound, Unauthorized


class ConsoleTypeInvalid(Invalid):
    msg_fmt = "Invalid console type %(console_type)s"


class ConsoleTypeUnavailable(Invalid):
    msg_fmt = "Unavailable console type %(console_type)s."


class ConsoleTypeNotShown(Unauthorized):
    msg_fmt = "The requested console type details are not accessible"


class ConsoleTokenNotFound(NotFound):
    msg_fmt = "Token not found"


class ConsolePageRefused(Forbidden):
    msg_fmt = "This page may not open consoles here."
