"""Actions: the log of operations on servers, commands to hosts, and their reports."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from nova_lite.objects.build import BuildRequest
from nova_lite.objects.instance import Instance


class InstanceActionEvent(msgspec.Struct, kw_only=True):
    """Event of an action: one of its steps. ``result``: Success, Error, or None while the step runs."""

    event: str
    start_time: datetime.datetime
    finish_time: datetime.datetime | None = None
    result: str | None = None
    traceback: str | None = None
    host: str | None = None
    details: str | None = None


class InstanceAction(msgspec.Struct, kw_only=True):
    """Action of a server: one accepted operation. ``message`` is None, or "Error" if the operation failed."""

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
    """Report of a host about a command.

    ``host``: the sender. ``error`` is None if the command was carried out. ``sequence`` and ``request_id`` are those of
    the command. ``answer``: data for later steps; their commands carry it in the payload, under ``answers`` and the
    step's name.
    """

    host: str
    action_id: int
    power_state: int | None = None
    error: str | None = None
    details: str = ""
    sequence: int = 0
    answer: dict[str, Any] | None = None
    request_id: str | None = None


class ActionCommand(msgspec.Struct, kw_only=True):
    """Command to a compute host: a step of an accepted action (delete, start, stop, reboot, ...).

    ``action_id`` grows with every accepted action of an instance, so that a host recognises a late command. ``method``:
    the RPC method that carries it; "" means that of the action's definition. ``generation``: of the instance on that
    host. ``payload`` is the action's (``{"reboot_type": "HARD"}``). ``build``: set if the command is a build.

    ``host`` is None if no host is involved: then the conductor has already finished the action. ``sequence`` grows with
    the commands of an action, so that the command of an earlier step is recognised as late.
    """

    action_id: int
    action: str
    instance: Instance
    generation: int
    host: str | None
    request_id: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    method: str = ""
    sequence: int = 0
    build: BuildRequest | None = None
