"""Errors that daemons report to each other: claims, generations, host admission, and scheduling."""

from __future__ import annotations

from nova_lite.base.exceptions.base import NovaLiteException, ServiceUnavailable


class HostNotAdmitted(ServiceUnavailable):
    """A host that may not serve. It has to register again and to compare its domains with the database."""


class HostForcedDown(HostNotAdmitted):
    msg_fmt = "Host %(host)s is forced down; it may serve again when an operator takes that back."


class HostIsAnother(HostNotAdmitted):
    msg_fmt = (
        "Host %(host)s is registered as another machine, or this one has lost its state directory. If the other one "
        "runs nothing any more, force the host down and take that back: then this one may serve."
    )


class HostEpochOver(HostNotAdmitted):
    msg_fmt = "The registration of host %(host)s does not hold any more; it has to register again."


class HeartbeatIsOld(ServiceUnavailable):
    msg_fmt = "Host %(host)s has sent a newer heartbeat, which was taken before: this one says nothing any more."


class NoValidHost(NovaLiteException):
    """A request that no host fits. ``reason`` is the text for users; ``details``, for operators, names machines."""

    msg_fmt = "No valid host was found. %(reason)s"


class SchedulerNotReady(ServiceUnavailable):
    msg_fmt = "The scheduler has not yet loaded its host states."


class StaleReport(NovaLiteException):
    """A compute host's report about an attempt that is no longer current. The host destroys what it made."""

    msg_fmt = "Instance %(instance_id)s: generation %(generation)s on host %(host)s is not current any more."


class ActionOver(NovaLiteException):
    """An action that a later command replaced, or that was given up. The host stops and removes its work."""

    msg_fmt = "The %(action)s of instance %(instance_id)s is over, a later request took its place."


class InstanceGone(NovaLiteException):
    """An instance that was deleted, or is being deleted, during an operation."""

    msg_fmt = "Instance %(instance_id)s disappeared or is being deleted."


class ComputeResourcesUnavailable(NovaLiteException):
    msg_fmt = "Insufficient compute resources: %(reason)s."


class Fenced(NovaLiteException):
    """A build of a generation that this host has revoked. It never builds that generation or a lower one."""

    msg_fmt = "Instance %(instance_uuid)s is fenced at generation %(generation)s on this host."
