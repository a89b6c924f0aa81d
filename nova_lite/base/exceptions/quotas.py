"""Errors of quotas and limits."""

from __future__ import annotations

from nova_lite.base.exceptions.base import Forbidden, Invalid


class QuotaBelowUse(Invalid):
    msg_fmt = "Quota limit %(limit)s for %(resource)s must be greater than or equal to already used %(used)s."


class QuotaAboveProject(Invalid):
    """A user's limit is above that of the project."""

    msg_fmt = "Quota limit %(limit)s for %(resource)s must be less than or equal to %(maximum)s."


class TagLimitExceeded(Invalid):
    msg_fmt = "The number of tags exceeded the per-server limit %(allowed)d"


class QuotaExceeded(Forbidden):
    msg_fmt = (
        "Quota exceeded for %(overs)s: Requested %(requested)s, but already used %(used)s of %(allowed)s %(overs)s"
    )


class MetadataLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of metadata items exceeds %(allowed)d"


class InjectedFileLimitExceeded(Forbidden):
    msg_fmt = "%(reason)s"


class KeypairLimitExceeded(Forbidden):
    msg_fmt = "Maximum number of key pairs exceeded"
