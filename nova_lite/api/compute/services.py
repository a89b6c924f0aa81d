"""``/os-services``: the daemons of the control plane and of the hosts, and their state."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Service
from nova_lite.policies import services as policies

# --- schemas

_SERVICES: t.Schema = {"host": t.Q_ANY, "binary": t.Q_ANY}

SERVICES_QUERY = t.query(_SERVICES)

_REASON: t.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "printable"}
_WHICH: t.Schema = {"host": t.HOST, "binary": t.TEXT}

SERVICE_SWITCH_BODY = t.strict(_WHICH, ("host", "binary"))
SERVICE_DISABLE_WITH_REASON_BODY = t.strict(
    {**_WHICH, "disabled_reason": _REASON}, ("host", "binary", "disabled_reason")
)
SERVICE_FORCE_DOWN_BODY = t.strict({**_WHICH, "forced_down": t.BOOLEAN}, ("host", "binary", "forced_down"))
SERVICE_UPDATE_BODY = t.strict(
    {
        "status": t.one_of("enabled", "disabled"),
        "disabled_reason": _REASON,
        "forced_down": t.BOOLEAN,
    }
)


# --- routes

_BEFORE_UUIDS = Change.UUIDS_OF_SERVICES - 1


class Services(Extension):
    alias = "os-services"
    title = "Services"
    routes = (
        Route("GET", "/os-services", "index"),
        Route("PUT", "/os-services/enable", "enable", until=_BEFORE_UUIDS),
        Route("PUT", "/os-services/disable", "disable", until=_BEFORE_UUIDS),
        Route("PUT", "/os-services/disable-log-reason", "disable_with_reason", until=_BEFORE_UUIDS),
        Route("PUT", "/os-services/force-down", "force_down", since=Change.SERVICE_FORCED_DOWN, until=_BEFORE_UUIDS),
        Route("PUT", "/os-services/{id}", "update", since=Change.UUIDS_OF_SERVICES),
        Route("DELETE", "/os-services/{id}", "delete"),
    )

    @declares(policies.LIST, query=SERVICES_QUERY, response="services")
    def index(self, req: Request) -> Response:
        services = self.conductor.service_list(req.context, req.query.one("host"), req.query.one("binary"))
        return Response({"services": [_view(req, service) for service in services]})

    @declares(policies.UPDATE, body=SERVICE_SWITCH_BODY, response="service")
    def enable(self, req: Request) -> Response:
        self._update_named(req, {"disabled": False, "disabled_reason": None})
        return Response({"service": {**req.data, "status": "enabled"}})

    @declares(policies.UPDATE, body=SERVICE_SWITCH_BODY, response="service")
    def disable(self, req: Request) -> Response:
        self._update_named(req, {"disabled": True, "disabled_reason": None})
        return Response({"service": {**req.data, "status": "disabled"}})

    @declares(policies.UPDATE, body=SERVICE_DISABLE_WITH_REASON_BODY, response="service")
    def disable_with_reason(self, req: Request) -> Response:
        self._update_named(req, {"disabled": True, "disabled_reason": req.data["disabled_reason"]})
        return Response({"service": {**req.data, "status": "disabled"}})

    @declares(policies.UPDATE, body=SERVICE_FORCE_DOWN_BODY, response="service")
    def force_down(self, req: Request) -> Response:
        forced_down = strutils.bool_from_string(req.data["forced_down"], strict=True)
        self._update_named(req, {"forced_down": forced_down})
        return Response({"service": {**req.data, "forced_down": forced_down}})

    @declares(policies.UPDATE, body=SERVICE_UPDATE_BODY, response="service")
    def update(self, req: Request, id: str) -> Response:
        _check_uuid(id)
        service = self.conductor.service_update(req.context, id, _changes(req.data))
        return Response({"service": _view(req, service)})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        if req.has(Change.UUIDS_OF_SERVICES):
            _check_uuid(id)
        elif not id.isdecimal():
            raise exceptions.ValidationError(detail=f"Invalid service id {id[:64]}: it must be an integer.")
        self.conductor.service_delete(req.context, id)
        return Response(status=204)

    def _update_named(self, req: Request, changes: dict[str, Any]) -> None:
        """Change the service with the body's host and binary, which identify it before 2.53."""
        host, binary = req.data["host"], req.data["binary"]
        services = self.conductor.service_list(req.context, host, binary)
        if not services:
            raise exceptions.HostBinaryNotFound(host=host, binary=binary)
        self.conductor.service_update(req.context, services[0].uuid, changes)


def _check_uuid(service_id: str) -> None:
    if not validation.is_uuid(service_id):
        raise exceptions.ValidationError(detail=f"Invalid uuid {service_id[:64]}")


def _changes(body: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of a body, by the conductor's names.

    Raises `ValidationError` if the body changes nothing, or has a reason without disabling the service.
    """
    status, reason = body.get("status"), body.get("disabled_reason")
    if reason is not None and status != "disabled":
        raise exceptions.ValidationError(detail="Specifying disabled_reason is only allowed when status is 'disabled'.")
    changes: dict[str, Any] = {}
    if status is not None:
        changes |= {"disabled": status == "disabled", "disabled_reason": reason}
    if "forced_down" in body:
        changes["forced_down"] = strutils.bool_from_string(body["forced_down"], strict=True)
    if not changes:
        raise exceptions.ValidationError(
            detail="No updates were requested. Fields 'status' or 'forced_down' should be specified."
        )
    return changes


# --- views


def _view(req: Request, service: Service) -> dict[str, Any]:
    view = {
        "id": service.uuid if req.has(Change.UUIDS_OF_SERVICES) else service.id,
        "binary": service.binary,
        "host": service.host,
        "zone": service.availability_zone,
        "status": status(service),
        "state": state(service),
        "updated_at": view_helpers.iso_micros(service.last_seen_up or service.updated_at or service.created_at),
        "disabled_reason": service.disabled_reason,
    }
    if req.has(Change.SERVICE_FORCED_DOWN):
        view["forced_down"] = service.forced_down
    return view


def status(service: Service) -> str:
    """Return the administrative status."""
    return "disabled" if service.disabled else "enabled"


def state(service: Service) -> str:
    """Return whether the service is up or down."""
    return "up" if service.up and not service.forced_down else "down"
