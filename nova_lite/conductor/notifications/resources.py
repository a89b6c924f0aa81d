"""Notifications about flavors, key pairs, aggregates, server groups and services.

`NOTED` names the RPC methods that other systems are notified of. `noted` wraps the function of such a method: it
collects the events in the function's transaction. Payloads have the fields of Nova's classes of those names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nova_lite.base.context import RequestContext
from nova_lite.conductor.notifications.payloads import flavor_payload, keypair_payload, payload_object, payload_time
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.resource_events import Resource, ResourceEvent
from nova_lite.db.hosts import aggregates, services
from nova_lite.db.servers import flavors, keypairs, server_groups
from nova_lite.objects import Aggregate, Flavor, KeyPair, ServerGroup, Service

#: Reads a resource: unit of work, context, arguments of the method.
Read = Callable[[UnitOfWork, RequestContext, Mapping[str, Any]], Resource]


class Noted(NamedTuple):
    """Events of a method. ``phases``: there is one at the start, and one at the end.

    ``before``: the resource at the start, which a deleted one keeps. ``after``: the resource at the end, unless the
    method returns it. ``is_access``: it changes which projects may use a flavor.
    """

    name: str
    phases: bool = False
    before: Read | None = None
    after: Read | None = None
    is_access: bool = False


def _flavor(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> Flavor:
    return flavors.get(uow, context, arguments["flavor_id"])


def _keypair(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> KeyPair:
    return keypairs.get(uow, arguments["user_id"], arguments["name"])


def _new_keypair(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> KeyPair:
    keypair: KeyPair = arguments["keypair"]
    return keypair


def _aggregate(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> Aggregate:
    return aggregates.get(uow, arguments["aggregate_id"])


def _new_aggregate(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> Aggregate:
    zone = arguments.get("availability_zone")
    metadata = {} if zone is None else {"availability_zone": zone}
    return Aggregate(name=arguments["name"], availability_zone=zone, metadata=metadata)


def _group(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> ServerGroup:
    return server_groups.get(uow, context, arguments["group_id"])


def _service(uow: UnitOfWork, context: RequestContext, arguments: Mapping[str, Any]) -> Service:
    return services.get(uow, arguments["service_id"])


#: Events by the name of the RPC method.
NOTED: dict[str, Noted] = {
    "aggregate_add_host": Noted("aggregate.add_host", phases=True, before=_aggregate),
    "aggregate_create": Noted("aggregate.create", phases=True, before=_new_aggregate),
    "aggregate_delete": Noted("aggregate.delete", phases=True, before=_aggregate),
    "aggregate_remove_host": Noted("aggregate.remove_host", phases=True, before=_aggregate),
    "aggregate_set_metadata": Noted("aggregate.update_metadata", phases=True, before=_aggregate),
    "aggregate_update": Noted("aggregate.update_prop", phases=True, before=_aggregate),
    "flavor_access_add": Noted("flavor.update", after=_flavor, is_access=True),
    "flavor_access_remove": Noted("flavor.update", after=_flavor, is_access=True),
    "flavor_create": Noted("flavor.create"),
    "flavor_delete": Noted("flavor.delete", before=_flavor),
    "flavor_extra_spec_delete": Noted("flavor.update", after=_flavor),
    "flavor_extra_specs_update": Noted("flavor.update", after=_flavor),
    "flavor_update": Noted("flavor.update"),
    "keypair_create": Noted("keypair.create", phases=True, before=_new_keypair),
    "keypair_delete": Noted("keypair.delete", phases=True, before=_keypair),
    "server_group_create": Noted("server_group.create"),
    "server_group_delete": Noted("server_group.delete", before=_group),
    "service_delete": Noted("service.delete", before=_service),
    "service_update": Noted("service.update"),
}


def noted(name: str, function: Callable[..., Any], context: RequestContext) -> Callable[..., Any]:
    """Return ``function`` with the events of the method ``name``, if it has some. It keeps its own name."""
    events = NOTED.get(name)
    if events is None:
        return function

    @functools.wraps(function)
    def run(uow: UnitOfWork, **arguments: Any) -> Any:
        if not uow.wants(ResourceEvent):
            return function(uow, **arguments)
        caller = (context.request_id, context.user_id, context.project_id)
        before = events.before(uow, context, arguments) if events.before is not None else None
        if events.phases and before is not None:
            uow.publish(ResourceEvent(f"{events.name}.start", before, *caller))
        result = function(uow, **arguments)
        after: Resource | None = events.after(uow, context, arguments) if events.after is not None else result
        event_type = f"{events.name}.end" if events.phases else events.name
        resource = before if after is None else after
        if resource is not None:
            projects = result if events.is_access else None
            uow.publish(ResourceEvent(event_type, resource, *caller, projects))
        return result

    return run


def publisher_id(event: ResourceEvent, host: str) -> str:
    """Return the publisher that Nova names. ``host``: of this conductor, which stands for the API's host."""
    shown = event.resource
    return f"{shown.binary}:{shown.host}" if isinstance(shown, Service) else f"nova-api:{host}"


def payload_of(event: ResourceEvent) -> dict[str, Any]:
    shown = event.resource
    match shown:
        case Flavor():
            return flavor_payload(shown, event.projects)
        case KeyPair():
            return keypair_payload(shown)
        case Aggregate():
            return _aggregate_payload(shown)
        case ServerGroup():
            return _group_payload(shown)
        case Service():
            return _service_payload(shown)


def _aggregate_payload(shown: Aggregate) -> dict[str, Any]:
    is_new = shown.id == 0
    data = {
        "id": None if is_new else shown.id,
        "uuid": None if is_new else shown.uuid,
        "name": shown.name,
        "hosts": None if is_new else shown.hosts,
        "metadata": shown.metadata,
    }
    return payload_object("AggregatePayload", "1.1", data)


def _group_payload(shown: ServerGroup) -> dict[str, Any]:
    data = {
        "uuid": shown.id,
        "name": shown.name,
        "project_id": shown.project_id,
        "user_id": shown.user_id,
        "policies": [shown.policy],
        "policy": shown.policy,
        "rules": {name: str(value) for name, value in shown.rules.items()},
        "members": shown.members,
        "hosts": None,
    }
    return payload_object("ServerGroupPayload", "1.1", data)


def _service_payload(shown: Service) -> dict[str, Any]:
    """Return the payload of a service. Its ``version`` is 0: the versions here are no numbers, as Nova's are."""
    data = {
        "uuid": shown.uuid,
        "host": shown.host,
        "binary": shown.binary,
        "topic": shown.topic,
        "disabled": shown.disabled,
        "disabled_reason": shown.disabled_reason,
        "forced_down": shown.forced_down,
        "availability_zone": shown.availability_zone,
        "last_seen_up": payload_time(shown.last_seen_up),
        "report_count": 0,
        "version": 0,
    }
    return payload_object("ServiceStatusPayload", "1.1", data)
