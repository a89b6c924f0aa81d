"""``/os-services``."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.schemas import hosts as schemas
from nova_lite.api.compute.views import services as views
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import hosts as policies

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

    @declares(policies.SERVICES_LIST, query=schemas.SERVICES, answer="services")
    def index(self, req: Request) -> Response:
        services = self.conductor.service_list(req.context, req.query.one("host"), req.query.one("binary"))
        return Response({"services": [views.show(req, service) for service in services]})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_SWITCH, answer="service")
    def enable(self, req: Request) -> Response:
        self._update_named(req, {"disabled": False, "disabled_reason": None})
        return Response({"service": {**req.data, "status": "enabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_SWITCH, answer="service")
    def disable(self, req: Request) -> Response:
        self._update_named(req, {"disabled": True, "disabled_reason": None})
        return Response({"service": {**req.data, "status": "disabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_DISABLE_WITH_REASON, answer="service")
    def disable_with_reason(self, req: Request) -> Response:
        self._update_named(req, {"disabled": True, "disabled_reason": req.data["disabled_reason"]})
        return Response({"service": {**req.data, "status": "disabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_FORCE_DOWN, answer="service")
    def force_down(self, req: Request) -> Response:
        forced_down = strutils.bool_from_string(req.data["forced_down"], strict=True)
        self._update_named(req, {"forced_down": forced_down})
        return Response({"service": {**req.data, "forced_down": forced_down}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_UPDATE, answer="service")
    def update(self, req: Request, id: str) -> Response:
        _check_uuid(id)
        service = self.conductor.service_update(req.context, id, _changes(req.data))
        return Response({"service": views.show(req, service)})

    @declares(policies.SERVICES_DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        if req.has(Change.UUIDS_OF_SERVICES):
            _check_uuid(id)
        elif not id.isdecimal():
            raise exceptions.ValidationError(detail=f"Invalid service id {id[:64]}: it must be an integer.")
        self.conductor.service_delete(req.context, id)
        return Response(status=204)

    def _update_named(self, req: Request, changes: dict[str, Any]) -> None:
        """Change the one service of the body's host and binary, the only name for it before 2.53."""
        host, binary = req.data["host"], req.data["binary"]
        found = self.conductor.service_list(req.context, host, binary)
        if not found:
            raise exceptions.HostBinaryNotFound(host=host, binary=binary)
        self.conductor.service_update(req.context, found[0].uuid, changes)


def _check_uuid(service_id: str) -> None:
    if not validation.is_uuid(service_id):
        raise exceptions.ValidationError(detail=f"Invalid uuid {service_id[:64]}")


def _changes(body: dict[str, Any]) -> dict[str, Any]:
    """The body in the words of the conductor; raises 400 when it says nothing, or gives a reason for nothing."""
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
