"""The definitions of all operations on a server, as pure data.

Each operation says in which states it is accepted, what its steps are, what each step turns the server into, and which
steps undo it. Nothing here does I/O. Everything that is the same for all operations is code that reads these
definitions:

- `nova_lite.conductor.engine` takes an action from step to step, in the database
- `nova_lite.compute.executor` carries out the steps on hosts
- the API makes routes, policy rules and ``docs/reference/operations.md`` from them
- the tests check the fault matrix and the model of the protocol against them

The package has the names of its modules, so callers write ``operations.CREATE``. What only one operation does is in
``conductor/operations`` and ``compute/operations``. Their maps say in which file.

- `types`, `notifications`: the classes
- `table`: the frozen table
- `steps`, `states`, `migration_states`: names of steps and states, and shared steps
- `lifecycle`, `moves`, `images`, `volumes`, `interfaces`, `shares`, `points`, `clones`: the definitions; backups are
  among the images
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_lite.operations.clones import *
from nova_lite.operations.images import *
from nova_lite.operations.interfaces import *
from nova_lite.operations.lifecycle import *
from nova_lite.operations.moves import *
from nova_lite.operations.notifications import *
from nova_lite.operations.points import *
from nova_lite.operations.shares import *
from nova_lite.operations.steps import *
from nova_lite.operations.table import *
from nova_lite.operations.types import *
from nova_lite.operations.volumes import *

#: Every operation by its kind.
OPERATIONS = OperationTable(
    (
        CREATE, DELETE, STOP, START, REBOOT, EVACUATE, REBUILD, PAUSE, UNPAUSE, SUSPEND, RESUME, RESIZE, MIGRATE,
        CONFIRM_RESIZE, REVERT_RESIZE, LIVE_MIGRATE, CREATE_IMAGE, CREATE_BACKUP, SHELVE, SHELVE_OFFLOAD, UNSHELVE,
        ATTACH_INTERFACE, DETACH_INTERFACE, ATTACH_VOLUME, DETACH_VOLUME, SWAP_VOLUME, VOLUME_SNAPSHOT_CREATE,
        VOLUME_SNAPSHOT_DELETE, RESCUE, UNRESCUE, RESTORE, CHANGE_PASSWORD, CRASH_DUMP, LOCK, UNLOCK, RESET_STATE,
        CRASH, WATCHDOG, DEVICE_LOST, ATTACH_SHARE, DETACH_SHARE, CREATE_POINT, DELETE_POINT, REVERT_TO_POINT,
        CLONE,
    )
)  # fmt: skip


def get(kind: str, payload: Mapping[str, Any]) -> Operation:
    """Return the definition for an action of this kind with this payload. Raises `KeyError` for an unknown kind."""
    definition = OPERATIONS[kind]
    return definition.variant(payload) if definition.variants else definition


def notification_of(definition: Operation) -> Notification | None:
    """Return the notification of an operation. A variant's notification replaces its kind's."""
    return definition.notification or OPERATIONS[definition.kind].notification


def asks_for_right(kind: str, payload: Mapping[str, Any], site_role: str | None) -> bool:
    """Check whether a host has to ask before it executes a command: it may start the guest of a replicated server."""
    return site_role is not None and not get(kind, payload).at_replica


def command_methods() -> Mapping[str, HostStep]:
    """Return the RPC methods of commands to hosts, each with a step that it carries out. See `OperationTable`."""
    return OPERATIONS.command_methods


def compute_version(calls: str) -> str:
    """Return the compute service's version: that of its newest command, or ``calls``, that of its newest other call."""
    commands = (step.since for step in command_methods().values())
    return max((calls, *commands), key=lambda text: [*map(int, text.split("."))])
