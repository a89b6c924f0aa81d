"""Generator of ``docs/reference/notifications.md`` from the definitions of operations."""

from __future__ import annotations

from collections.abc import Iterable

from nova_lite import operations
from nova_lite.conductor.notifications import legacy
from nova_lite.conductor.notifications.payloads import VERSIONS
from nova_lite.conductor.notifications.resources import NOTED, Noted
from nova_lite.operations import OPERATIONS, SILENT, Notification, Operation, Payload, Phase

_HEAD = """# Notifications

This page lists all notifications for other systems. `nova-lite-manage api notifications` generates it from the
definitions of operations. [Receive notifications](../howto/receive-notifications.md) turns them on. Event types and
payloads are those of Nova.

A type is `instance.NAME.PHASE`. Each operation that starts has one end or one error. Nova has no `error` for some
operations; here each has one, or the events of a rollback. An error's priority is `ERROR`, all others have `INFO`.

| Publisher | Of |
|---|---|
| `nova-compute:HOST` | events of a host, which is the action's host at that time |
| `nova-conductor:HOST` | events while the action has no host, and `instance.rebuild_scheduled`; the conductor's host |
| `nova-api:HOST` | `instance.lock`, `instance.unlock`, `instance.evacuate`; HOST is the action's, or the conductor's |

## Events

`name` is that of versioned notifications; a name without phases is a whole type. `older name` is that of unversioned
ones, after `compute.instance.`; — means that Nova has none.
"""

_PAYLOADS = """
## Payloads

All classes have `nova_object.namespace` `nova`. Each has the keys of Nova's class of that name and version.

| class | version | content besides `InstancePayload` and `fault` |
|---|---|---|
"""

_MORE = {
    Payload.ACTION: "",
    Payload.CREATE: "`keypairs`, `tags`, `instance_name`, `trusted_image_certificates` (null)",
    Payload.REBUILD: "`trusted_image_certificates` (null)",
    Payload.RESCUE: "`rescue_image_ref`",
    Payload.RESIZE_PREP: "`new_flavor`",
    Payload.SNAPSHOT: "`snapshot_image_id`",
    Payload.SHARE: "`share_id`",
    Payload.VOLUME: "`volume_id`",
    Payload.VOLUME_SWAP: "`old_volume_id`, `new_volume_id`",
}

_TAIL = """
| Key | Value |
|---|---|
| `fault` | in errors an `ExceptionPayload`: `exception` is `NoValidHost` or `OperationFailed` |
| `fault.exception_message`, `.traceback` | the cause; empty, because details are for admins |
| `block_devices` | the volumes, always; Nova needs `bdms_in_notifications` for them |
| `state`, `task_state`, `host` and all others | as the transaction of the event has left them |

Passwords, user data and injected files are in no payload. Metadata of servers is, as in Nova.

## Operations without events

"""

_RESOURCES = """
## Other resources

Changes by the APIs, in the versioned format only. `nova-lite-manage` sends none. The publisher is `nova-api`, with the
host of the conductor, or the service itself.

| event | phases | payload |
|---|---|---|
"""

#: Class of the payload by the first part of the event's type.
_CLASSES = {
    "aggregate": "AggregatePayload",
    "flavor": "FlavorPayload",
    "keypair": "KeypairPayload",
    "server_group": "ServerGroupPayload",
    "service": "ServiceStatusPayload",
}

_OF_RESOURCES = """
`keypair.create` is sent for imported keys, too. `report_count` and `version` of services are 0. `projects` of flavors
is null, except after a change of access.
"""

_STATES = """
## States and use

| event | option of `[notifications]` | sent for | payload |
|---|---|---|---|
| `instance.update` | `notify_on_state_change` | a transaction that changes a state | `InstanceUpdatePayload` 2.1 |
| `instance.exists` | `instance_usage_audit` | a server that ran in a past period | `InstanceExistsPayload` 2.1 |

The older names are `compute.instance.update` and `compute.instance.exists`.
`old_display_name` is null: a new name alone sends nothing. `audit_period` of `instance.update` is the current period
until now. `instance.exists` is sent by a conductor, after `instance_usage_audit_period`, for deleted servers of the
period, too. Conductors share an audit, and send each event once to the outbox. An audit waits while more than half of
`[notifications] max_waiting` notifications do. `/os-instance_usage_audit_log` does not show these audits.
"""

_DIFFERENCES = """
## Not sent

Nova's `instance.shutdown`, `instance.live_migration_abort`,
`instance.live_migration_force_complete`, `keypair.import`, `aggregate.cache_images`, `server_group.add_member`,
`service.create`, and its notifications about volume usage. The scheduler sends `scheduler.select_destinations`
([scheduling](../explanation/scheduling.md#notifications)).
"""


def markdown() -> str:
    """Return the page."""
    rows = [row for definition in _forms() for row in _rows(definition)]
    table = "| operation | name | phases | payload | older name |\n|---|---|---|---|---|\n" + "".join(
        dict.fromkeys(rows)
    )
    classes = "".join(f"| `{kind}` | {VERSIONS[kind]} | {_MORE[kind]} |\n" for kind in Payload)
    silent = "".join(f"- {kind}: {reason}.\n" for kind, reason in sorted(SILENT.items()))
    others = "".join(dict.fromkeys(_resource_row(item) for item in sorted(NOTED.values(), key=lambda item: item.name)))
    return (
        f"{_HEAD}\n{table}{_PAYLOADS}{classes}{_TAIL}{silent}{_RESOURCES}{others}{_OF_RESOURCES}{_STATES}{_DIFFERENCES}"
    )


def _resource_row(noted: Noted) -> str:
    phases = "start, end" if noted.phases else "none"
    return f"| `{noted.name}` | {phases} | `{_CLASSES[noted.name.partition('.')[0]]}` |\n"


def _forms() -> Iterable[Operation]:
    return OPERATIONS.with_variants()


def _rows(definition: Operation) -> Iterable[str]:
    whole = operations.notification_of(definition)
    steps = [step.notification for step in definition.all_steps()]
    for notification in (whole and whole.first, whole, *steps, definition.rollback):
        if notification is not None:
            phases = ", ".join(notification.phases) or "none"
            yield (
                f"| {definition.kind} | `{notification.name}` | {phases} | "
                f"`{notification.payload}` | {_older(notification)} |\n"
            )


def _older(notification: Notification) -> str:
    name = notification.name
    if name in legacy.VERSIONED_ONLY:
        return "—"
    if name in legacy.AT_END:
        return f"`{legacy.AT_END[name]}`, at the {Phase.END}, without a phase"
    return f"`{legacy.NAMES.get(name, name)}`"
