"""Quotas of projects."""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.load_balancer.parts import WingResource
from nova_lite.api.load_balancer.views import View
from nova_lite.api.network import fields, requests
from nova_lite.load_balancer.objects import Kind
from nova_lite.policies import load_balancer as policies

_PATH = "/lbaas/quotas/{project_id}"
_TARGET = {"project_id": "project_id"}
_Limit = Annotated[Any, fields.within(-1, 2**31 - 1)]


class ChangedQuota(Body):
    """Octavia has two spellings of two kinds."""

    loadbalancer: _Limit = SAME
    load_balancer: _Limit = SAME
    listener: _Limit = SAME
    pool: _Limit = SAME
    member: _Limit = SAME
    healthmonitor: _Limit = SAME
    health_monitor: _Limit = SAME


class Quotas(WingResource):
    """Quotas of projects."""

    @route("GET", "/lbaas/quotas/defaults", policies.CATALOGUE, response="quota")
    def default(self, req: ServiceRequest) -> View:
        return _view(self.read(req, "limits_get", project_id=""))

    @route("GET", _PATH, policies.QUOTA_GET, target=_TARGET, response="quota")
    def show(self, req: ServiceRequest, project_id: str) -> View:
        return _view(self.read(req, "limits_get", project_id=project_id))

    @route("PUT", _PATH, policies.QUOTA_UPDATE, body=ChangedQuota, key="quota", response="quota", status=202)
    def update(self, req: ServiceRequest, project_id: str) -> View:
        sent = requests.changes(req, ChangedQuota)
        limits = {name.replace("_", ""): limit for name, limit in sent.items()}
        return _view(self.change(req, "limits_set", project_id=project_id, limits=limits))

    @route("DELETE", _PATH, policies.QUOTA_UPDATE, status=204)
    def delete(self, req: ServiceRequest, project_id: str) -> None:
        """Reset the project's limits to the defaults."""
        self.change(req, "limits_set", project_id=project_id, limits=dict.fromkeys(Kind))


def _view(limits: dict[str, int]) -> View:
    again = {"load_balancer": limits[Kind.LOAD_BALANCER], "health_monitor": limits[Kind.MONITOR]}
    return {**limits, **again, "l7policy": 0, "l7rule": 0}
