"""Errors of the identity service."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict


class IdentityChanged(Conflict):
    msg_fmt = "Users or projects were changed by another request at the same time. Please try again."
