"""The action log: what was asked for, and what became of it."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from nova_lite.objects.build import BuildRequest
from nova_lite.objects.instance import Instance


class InstanceActionEvent(msgspec.Struct, kw_only=True):
    """One step of an action, as it was carried out. ``result``: Success, Error or None while it runs."""

    event: str
    start_time: datetime.datetime
    finish_time: datetime.datetime | None = None
    result: str | None = None
    traceback: str | None = None
    host: str | None = None
    details: str | None = None


class InstanceAction(msgspec.Struct, kw_only=True):
    """One accepted request. ``message`` is None, or "Error" when it failed."""

    id: int
    action: str
    instance_uuid: str
    request_id: str
    user_id: str | None = None
    project_id: str | None = None
    start_time: datetime.datetime
    updated_at: datetime.datetime | None = None
    finish_time: datetime.datetime | None = None
    message: str | None = None
    events: list[InstanceActionEvent] = msgspec.field(default_factory=list)


class ActionReport(msgspec.Struct, kw_only=True):
    """How an order ended on its host: ``error`` is None when it was carried out. ``position`` and ``request_id``: of
    the ticket; ``answer``: what later steps need of it."""

    action_id: int
    power_state: int | None
    error: str | None
    details: str
    sequence: int = msgspec.field(default=0, name="position")
    answer: dict[str, Any] | None = None
    request_id: str | None = None


class ActionCommand(msgspec.Struct, kw_only=True):
    """The order to a compute host to carry out one accepted action (delete, start, stop, reboot, ...).

    ``action_id`` grows with every accepted action of an instance, so a host can tell a late ticket from a new one.
    ``method``: the RPC method that takes it ("": as the row of ``action`` says). ``generation``: of the instance at
    that host. ``payload`` is the action's own (``{"reboot_type": "HARD"}``).
    ``build``: it is an order to build, this one.
    ``host`` None: no host is involved, the conductor has already finished the action. ``position`` grows with the
    action's orders to hosts: the order of a later step makes that of an earlier one a late one.
    """

    action_id: int
    action: str
    instance: Instance
    generation: int
    host: str | None
    request_id: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    method: str = ""
    sequence: int = msgspec.field(default=0, name="position")
    build: BuildRequest | None = None
