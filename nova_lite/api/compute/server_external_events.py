"""``POST /os-server-external-events``: events that other services report of servers."""

from __future__ import annotations

import logging
from typing import Any

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Instance, InstanceFilters
from nova_lite.operations.states import PowerState
from nova_lite.policies import server_external_events as policies

# --- schemas

NETWORK = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
VOLUME_EXTENDED = "volume-extended"
POWER_UPDATE = "power-update"
ACCELERATOR_BOUND = "accelerator-request-bound"
VOLUME_REIMAGED = "volume-reimaged"

#: Events that require a tag.
TAGGED = (VOLUME_EXTENDED, POWER_UPDATE, ACCELERATOR_BOUND, VOLUME_REIMAGED)


def _events_body(*names: str) -> t.Schema:
    event = {
        "name": t.one_of(*names),
        "server_uuid": t.UUID,
        "status": t.one_of("failed", "completed", "in-progress"),
        "tag": {"type": "string", "maxLength": 255},
    }
    return t.wrapped("events", {"type": "array", "minItems": 1, "items": t.strict(event, ("name", "server_uuid"))})


CREATE_BODY = Versioned(
    {
        1: _events_body(*NETWORK),
        Change.VOLUME_EXTENDED: _events_body(*NETWORK, *TAGGED[:1]),
        Change.POWER_UPDATE: _events_body(*NETWORK, *TAGGED[:2]),
        Change.ACCELERATOR_BOUND: _events_body(*NETWORK, *TAGGED[:3]),
        Change.VOLUME_REIMAGED: _events_body(*NETWORK, *TAGGED),
    }
)


# --- routes

LOG = logging.getLogger(__name__)

Event = dict[str, Any]


class ServerExternalEvents(Extension):
    alias = "os-server-external-events"
    title = "Events from other services"
    routes = (Route("POST", "/os-server-external-events", "create"),)

    @declares(policies.CREATE, body=CREATE_BODY, other_statuses=(207,), response="events")
    def create(self, req: Request) -> Response:
        """Handle events. The response contains a code for each event.

        - 200: handled.
        - 400: the tag is wrong.
        - 404: the server does not exist.
        - 422: the event is not supported, or the server's state does not allow it.

        The status is 207 if any code is not 200.
        """
        events: list[Event] = req.data["events"]
        servers = self._servers(req, events)
        if not servers:
            raise exceptions.NotFound("No instances found for any event")
        results = [self._result(req, event, servers.get(event["server_uuid"].lower())) for event in events]
        return Response({"events": results}, 200 if all(event["code"] == 200 for event in results) else 207)

    def _servers(self, req: Request, events: list[Event]) -> dict[str, Instance]:
        uuids = sorted({event["server_uuid"].lower() for event in events})
        filters = InstanceFilters(uuids=uuids, with_user_data=False)
        context = req.context.elevated()
        return {item.uuid: item for item in self.conductor.instance_list(context, filters, None, None, [], [])}

    def _result(self, req: Request, event: Event, instance: Instance | None) -> Event:
        code = 404 if instance is None else self._handle(req, event, instance)
        status = event.get("status", "completed") if code == 200 else "failed"
        LOG.info("Event %s for server %s: %d", event["name"], event["server_uuid"], code)
        return {**event, "status": status, "code": code}

    def _handle(self, req: Request, event: Event, instance: Instance) -> int:
        if event["name"] in TAGGED and not event.get("tag"):
            return 400
        if instance.host is None:
            return 422
        if event["name"] == POWER_UPDATE:
            return self._power(req, event["tag"], instance)
        if event["name"] == VOLUME_EXTENDED and self.compute.volumes is not None:
            return self._extended(req, event["tag"], instance)
        if event["name"] in NETWORK:
            self.conductor.interfaces_event(req.context.elevated(), instance.uuid, event["name"], event.get("tag"))
            return 200
        return 422

    def _extended(self, req: Request, volume_id: str, instance: Instance) -> int:
        """Request that the guest sees its volume's new size."""
        try:
            self.conductor.volume_extended(req.context, instance.uuid, volume_id)
        except exceptions.NotFound:
            return 404
        return 200

    def _power(self, req: Request, tag: str, instance: Instance) -> int:
        """Start or stop the server, as the tag demands, unless it is in that state already."""
        operations_by_tag = {
            "POWER_ON": (PowerState.RUNNING, operations.START),
            "POWER_OFF": (PowerState.SHUTDOWN, operations.STOP),
        }
        if tag not in operations_by_tag:
            return 400
        power_state, operation = operations_by_tag[tag]
        if instance.power_state == power_state and instance.task_state is None:
            return 200
        try:
            self.compute.accept(req.context.elevated(), instance.uuid, operation.kind, {})
        except exceptions.Conflict:
            return 422
        except exceptions.InstanceNotFound:
            return 404
        return 200
