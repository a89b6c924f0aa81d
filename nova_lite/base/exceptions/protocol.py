"""Errors that daemons report to each other: claims, generations, host admission, and scheduling."""

from __future__ import annotations

from nova_lite.base.exceptions.base import NovaLiteException, ServiceUnavailable


class HostNotAdmitted(ServiceUnavailable):
    """The host has to register, as soon as it may, and to compare its domains before it serves."""


class HostForcedDown(HostNotAdmitted):
    msg_fmt = "Host %(host)s is forced down; it may serve again when an operator takes that back."


class HostIsAnother(HostNotAdmitted):
    msg_fmt = (
        "Host %(host)s is registered as another machine, or this one has lost its state directory. If the other one "
        "runs nothing any more, force the host down and take that back: then this one may serve."
    )


class HostEpochOver(HostNotAdmitted):
    msg_fmt = "The registration of host %(host)s does not hold any more; it has to register anew."


class HeartbeatIsOld(ServiceUnavailable):
    msg_fmt = "Host %(host)s has sent a newer heartbeat, which was taken before: this one says nothing any more."


class NoValidHost(NovaLiteException):
    """No host fits. ``reason`` says how many hosts each filter took out; ``details`` the same for machines."""

    msg_fmt = "No valid host was found. %(reason)s"


class SchedulerNotReady(ServiceUnavailable):
    msg_fmt = "The scheduler has not yet loaded its host states."


class StaleReport(NovaLiteException):
    """A compute host reported on an attempt that is no longer the current one: drop the work, destroy its traces."""

    msg_fmt = "Instance %(instance_id)s: generation %(generation)s on host %(host)s is not current any more."


class ActionOver(NovaLiteException):
    """What a host works at was overtaken by a later order, or given up: it stops, and leaves nothing."""

    msg_fmt = "The %(action)s of instance %(instance_id)s is over, something else was asked for meanwhile."


class InstanceGone(NovaLiteException):
    """The instance was deleted, or is being deleted, while something was done for it."""

    msg_fmt = "Instance %(instance_id)s disappeared or is being deleted."


class ComputeResourcesUnavailable(NovaLiteException):
    msg_fmt = "Insufficient compute resources: %(reason)s."


class Fenced(NovaLiteException):
    """This host promised never to build the instance at this generation or a lower one."""

    msg_fmt = "Instance %(instance_uuid)s is fenced at generation %(generation)s on this host."
