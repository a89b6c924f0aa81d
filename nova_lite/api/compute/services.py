"""``/os-services``."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite import exception
from nova_lite.api import validation
from nova_lite.api.compute.schemas import hosts as schemas
from nova_lite.api.compute.views import services as views
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.objects import Service
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
    def index(self, req: Request) -> Answer:
        req.authorize(policies.SERVICES_LIST)
        query = req.query(schemas.SERVICES)
        services = self.conductor.service_list(req.context, query.one("host"), query.one("binary"))
        return Answer({"services": [views.show(req, service) for service in services]})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_SWITCH, answer="service")
    def enable(self, req: Request) -> Answer:
        req.authorize(policies.SERVICES_UPDATE)
        body = req.validated(schemas.SERVICE_SWITCH)
        self._update_named(req, body, {"disabled": False, "disabled_reason": None})
        return Answer({"service": {**body, "status": "enabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_SWITCH, answer="service")
    def disable(self, req: Request) -> Answer:
        req.authorize(policies.SERVICES_UPDATE)
        body = req.validated(schemas.SERVICE_SWITCH)
        self._update_named(req, body, {"disabled": True, "disabled_reason": None})
        return Answer({"service": {**body, "status": "disabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_DISABLE_WITH_REASON, answer="service")
    def disable_with_reason(self, req: Request) -> Answer:
        req.authorize(policies.SERVICES_UPDATE)
        body = req.validated(schemas.SERVICE_DISABLE_WITH_REASON)
        self._update_named(req, body, {"disabled": True, "disabled_reason": body["disabled_reason"]})
        return Answer({"service": {**body, "status": "disabled"}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_FORCE_DOWN, answer="service")
    def force_down(self, req: Request) -> Answer:
        req.authorize(policies.SERVICES_UPDATE)
        body = req.validated(schemas.SERVICE_FORCE_DOWN)
        forced_down = strutils.bool_from_string(body["forced_down"], strict=True)
        self._update_named(req, body, {"forced_down": forced_down})
        return Answer({"service": {"host": body["host"], "binary": body["binary"], "forced_down": forced_down}})

    @declares(policies.SERVICES_UPDATE, body=schemas.SERVICE_UPDATE, answer="service")
    def update(self, req: Request, id: str) -> Answer:
        req.authorize(policies.SERVICES_UPDATE)
        _check_uuid(id)
        body = req.validated(schemas.SERVICE_UPDATE)
        service = self.conductor.service_update(req.context, id, _changes(body))
        return Answer({"service": views.show(req, service)})

    @declares(policies.SERVICES_DELETE, status=204)
    def delete(self, req: Request, id: str) -> Answer:
        req.authorize(policies.SERVICES_DELETE)
        if req.has(Change.UUIDS_OF_SERVICES):
            _check_uuid(id)
        elif not id.isdecimal():
            raise exception.ValidationError(detail=f"Invalid service id {id[:64]}: it must be an integer.")
        self.conductor.service_delete(req.context, id)
        return Answer(status=204)

    def _update_named(self, req: Request, body: dict[str, Any], changes: dict[str, Any]) -> Service:
        """Change the one service of this host and binary, the only name for it before 2.53."""
        found = self.conductor.service_list(req.context, body["host"], body["binary"])
        if not found:
            raise exception.HostBinaryNotFound(host=body["host"], binary=body["binary"])
        service: Service = self.conductor.service_update(req.context, found[0].uuid, changes)
        return service


def _check_uuid(service_id: str) -> None:
    if not validation.is_uuid(service_id):
        raise exception.ValidationError(detail=f"Invalid uuid {service_id[:64]}")


def _changes(body: dict[str, Any]) -> dict[str, Any]:
    """The body in the words of the conductor; raises 400 when it says nothing, or gives a reason for nothing."""
    status, reason = body.get("status"), body.get("disabled_reason")
    if reason is not None and status != "disabled":
        raise exception.ValidationError(detail="Specifying disabled_reason is only allowed when status is 'disabled'.")
    changes: dict[str, Any] = {}
    if status is not None:
        changes |= {"disabled": status == "disabled", "disabled_reason": reason}
    if "forced_down" in body:
        changes["forced_down"] = strutils.bool_from_string(body["forced_down"], strict=True)
    if not changes:
        raise exception.ValidationError(
            detail="No updates were requested. Fields 'status' or 'forced_down' should be specified."
        )
    return changes
