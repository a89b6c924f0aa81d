"""Errors of key pairs."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Conflict, Invalid, NotFound


class KeypairUnavailable(Invalid):
    msg_fmt = "Invalid key_name provided."


class InvalidKeypair(Invalid):
    msg_fmt = "Keypair data is invalid: %(reason)s"


class KeypairNotFound(NotFound):
    msg_fmt = "Keypair %(name)s not found for user %(user_id)s"


class KeypairExists(Conflict):
    msg_fmt = "Key pair '%(name)s' already exists."
