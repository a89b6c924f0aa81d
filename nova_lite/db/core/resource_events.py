"""Events about flavors, key pairs, aggregates, server groups and services, collected while a transaction runs.

`nova_lite.conductor.notifications` writes the notifications at the end of the transaction.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from nova_lite.objects import Aggregate, Flavor, KeyPair, ServerGroup, Service

Resource: TypeAlias = Aggregate | Flavor | KeyPair | ServerGroup | Service


class ResourceEvent(NamedTuple):
    """An event about a resource. ``projects``: those with access to a private flavor; None: not part of the event."""

    event_type: str
    resource: Resource
    request_id: str | None
    user_id: str | None
    project_id: str | None
    projects: list[str] | None = None
