"""``/os-quota-sets`` and ``/os-quota-class-sets``: what projects may use, and what a project may use by default."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.schemas import quotas as schemas
from nova_lite.api.compute.views import quotas as views
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import quotas as policies

_SET = "/os-quota-sets/{id}"
_CLASS = "/os-quota-class-sets/{id}"

#: The only class whose limits mean anything.
DEFAULT = "default"
#: The project whose limits are everybody's defaults.
_EVERYBODY = ""


class QuotaSets(Extension):
    """With ``user_id``: what this user may use of the project's quota."""

    alias = "os-quota-sets"
    title = "Quotas"
    routes = (
        Route("GET", _SET, "show"),
        Route("GET", _SET + "/detail", "detail"),
        Route("GET", _SET + "/defaults", "defaults"),
        Route("PUT", _SET, "update"),
        Route("DELETE", _SET, "delete"),
    )

    @declares(policies.SHOW, target={"project_id": "id"}, query=queries.QUOTAS, answer="quota_set")
    def show(self, req: Request, id: str) -> Response:
        limits = self.conductor.limits_get(req.context, id, _user(req))
        return Response({"quota_set": {"id": id, **views.limits_of(req, limits)}})

    @declares(policies.DETAIL, target={"project_id": "id"}, query=queries.QUOTAS, answer="quota_set")
    def detail(self, req: Request, id: str) -> Response:
        limits = self.conductor.limits_get(req.context, id, _user(req))
        return Response({"quota_set": {"id": id, **views.detail(req, limits)}})

    @declares(policies.DEFAULTS, answer="quota_set")
    def defaults(self, req: Request, id: str) -> Response:
        limits = self.conductor.quota_defaults_get(req.context)
        return Response({"quota_set": {"id": id, **views.limits_of(req, limits)}})

    @declares(
        policies.UPDATE, target={"project_id": "id"}, body=schemas.UPDATE, query=queries.QUOTAS, answer="quota_set"
    )
    def update(self, req: Request, id: str) -> Response:
        user_id = _user(req)
        wanted = req.data["quota_set"]
        force = strutils.bool_from_string(wanted.pop("force", False))
        limits = self.conductor.quota_update(req.context, _project(id), _limits(wanted), force, user_id)
        return Response({"quota_set": views.limits_of(req, limits)})

    @declares(policies.DELETE, target={"project_id": "id"}, query=queries.QUOTAS, status=202)
    def delete(self, req: Request, id: str) -> Response:
        """The project and its users have the defaults again, or one user the project's limits."""
        self.conductor.quota_delete(req.context, _project(id), _user(req))
        return Response(status=202)


class QuotaClassSets(Extension):
    alias = "os-quota-class-sets"
    title = "Quota classes"
    routes = (
        Route("GET", _CLASS, "show"),
        Route("PUT", _CLASS, "update"),
    )

    @declares(policies.CLASS_SHOW, query=queries.NOTHING, answer="quota_class_set")
    def show(self, req: Request, id: str) -> Response:
        """Other classes than ``default`` are kept as if they were users in the project of everybody's defaults."""
        if _class(id) == DEFAULT:
            limits = self.conductor.quota_defaults_get(req.context)
        else:
            limits = self.conductor.limits_get(req.context, _EVERYBODY, id)
        return Response({"quota_class_set": {"id": id, **views.class_limits(req, limits)}})

    @declares(policies.CLASS_UPDATE, body=schemas.CLASS_UPDATE, answer="quota_class_set")
    def update(self, req: Request, id: str) -> Response:
        """Only those of ``default`` bind anybody, as in Nova; other classes keep what is written there."""
        wanted = _limits(req.data["quota_class_set"])
        if _class(id) == DEFAULT:
            limits = self.conductor.quota_defaults_update(req.context, wanted)
        else:
            limits = self.conductor.quota_update(req.context, _EVERYBODY, wanted, True, id)
        return Response({"quota_class_set": views.class_limits(req, limits)})


def _class(name: str) -> str:
    if len(name) > 255:
        raise exceptions.ValidationError(detail="A quota class's name has at most 255 characters.")
    return name


def _user(req: Request) -> str | None:
    user_id = req.query.one("user_id")
    if user_id is not None and len(user_id) > 255:
        raise exceptions.ValidationError(detail="A user's id has at most 255 characters.")
    return user_id or None


def _project(project_id: str) -> str:
    if len(project_id) > 255:
        raise exceptions.ValidationError(detail="A project's id has at most 255 characters.")
    return project_id


def _limits(wanted: dict[str, Any]) -> dict[str, int]:
    """Limits by the names that they have inside."""
    return {views.QUOTAS[name].resource: int(value) for name, value in wanted.items()}
