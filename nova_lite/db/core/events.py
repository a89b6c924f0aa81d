"""Events of a transaction: what others have to know once it is committed.

A function publishes them on its unit of work: ``uow.publish(HostFreed(node_id))``. `Database.subscribe` names the
functions that run at the end of such a transaction. Events about actions and resources have modules of their own,
`nova_lite.db.core.action_changes` and `nova_lite.db.core.resource_events`.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.objects import HostState


class HostChanged(NamedTuple):
    """A change of a compute node that schedulers have to know. ``at_once``: before the next create."""

    node_id: int
    at_once: bool = False


class HostFreed(NamedTuple):
    """A compute node has free capacity again."""

    node_id: int


class HostRemoved(NamedTuple):
    """A compute node is deleted. ``state``: its last state."""

    state: HostState


class FiltersChanged(NamedTuple):
    """A change of what the packet filters or networks of a project's servers are made from."""

    project_id: str


class InterfacesChanged(NamedTuple):
    """A server has got or lost an interface, or its interfaces are at one more host."""

    instance_uuid: str


class CinderWorkDue(NamedTuple):
    """A volume of Cinder needs a call. ``row_id``: id of its row."""

    row_id: str
