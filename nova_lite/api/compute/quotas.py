"""``/os-quota-sets``, ``/os-quota-class-sets``, ``/limits``: quotas of projects and users, and their defaults."""

from __future__ import annotations

from typing import Any, NamedTuple

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http import wsgi
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import ProjectLimits, QuotaUsage
from nova_lite.policies import quotas as policies

# --- schemas

_LIMIT: t.Schema = {
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]{1,10}$",
    "minimum": -1,
    "maximum": t.MAX_INT,
    "format": "limit",
}

_257: t.Schema = dict.fromkeys(
    ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members"), _LIMIT
)
_236: t.Schema = _257 | dict.fromkeys(
    ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes"), _LIMIT
)
_21: t.Schema = _236 | dict.fromkeys(("fixed_ips", "floating_ips", "security_groups", "security_group_rules"), _LIMIT)


def _set_body(properties: t.Schema) -> t.Schema:
    return t.wrapped("quota_set", t.strict({**properties, "force": t.BOOLEAN}))


def _class_body(properties: t.Schema) -> t.Schema:
    return t.wrapped("quota_class_set", t.strict(properties))


UPDATE_BODY = Versioned({1: _set_body(_21), Change.NO_PROXIES: _set_body(_236), Change.NO_PERSONALITY: _set_body(_257)})
CLASS_UPDATE_BODY = Versioned(
    {1: _class_body(_21), Change.QUOTA_CLASS_KEYS: _class_body(_236), Change.NO_PERSONALITY: _class_body(_257)}
)


_LIMITS: t.Schema = {"tenant_id": t.Q_ANY, "reserved": t.Q_ANY}
LIMITS_QUERY = t.query(_LIMITS)

_QUOTAS: t.Schema = {"user_id": t.Q_ANY}
QUOTAS_QUERY = t.query(_QUOTAS)


# --- routes

_SET = "/os-quota-sets/{id}"
_CLASS = "/os-quota-class-sets/{id}"

#: The only quota class with an effect: the default quotas of all projects.
DEFAULT = "default"
#: The project under which the default quotas are stored.
_DEFAULTS_PROJECT = ""


class QuotaSets(Extension):
    """Quotas of a project. ``user_id`` selects the quotas of one user in the project."""

    alias = "os-quota-sets"
    title = "Quotas"
    routes = (
        Route("GET", _SET, "show"),
        Route("GET", _SET + "/detail", "detail"),
        Route("GET", _SET + "/defaults", "defaults"),
        Route("PUT", _SET, "update"),
        Route("DELETE", _SET, "delete"),
    )

    @declares(policies.SHOW, target={"project_id": "id"}, query=QUOTAS_QUERY, response="quota_set")
    def show(self, req: Request, id: str) -> Response:
        _check_project(req, id)
        limits = self.conductor.limits_get(req.context, id, _user(req))
        return Response({"quota_set": {"id": id, **_set_view(req, limits)}})

    @declares(policies.DETAIL, target={"project_id": "id"}, query=QUOTAS_QUERY, response="quota_set")
    def detail(self, req: Request, id: str) -> Response:
        _check_project(req, id)
        limits = self.conductor.limits_get(req.context, id, _user(req))
        return Response({"quota_set": {"id": id, **_detail_view(req, limits)}})

    @declares(policies.DEFAULTS, response="quota_set")
    def defaults(self, req: Request, id: str) -> Response:
        _check_project(req, id)
        limits = self.conductor.quota_defaults_get(req.context)
        return Response({"quota_set": {"id": id, **_set_view(req, limits)}})

    @declares(policies.UPDATE, target={"project_id": "id"}, body=UPDATE_BODY, query=QUOTAS_QUERY, response="quota_set")
    def update(self, req: Request, id: str) -> Response:
        _check_project(req, id)
        user_id = _user(req)
        limits_by_key = req.data["quota_set"]
        force = strutils.bool_from_string(limits_by_key.pop("force", False))
        limits = self.conductor.quota_update(req.context, _project(id), _limits(limits_by_key), force, user_id)
        return Response({"quota_set": _set_view(req, limits)})

    @declares(policies.DELETE, target={"project_id": "id"}, query=QUOTAS_QUERY, status=202)
    def delete(self, req: Request, id: str) -> Response:
        """Reset the project and its users to the default quotas, or one user to the project's quotas."""
        _check_project(req, id)
        self.conductor.quota_delete(req.context, _project(id), _user(req))
        return Response(status=202)


class QuotaClassSets(Extension):
    alias = "os-quota-class-sets"
    title = "Quota classes"
    routes = (
        Route("GET", _CLASS, "show"),
        Route("PUT", _CLASS, "update"),
    )

    @declares(policies.CLASS_SHOW, query=t.NO_PARAMETERS, response="quota_class_set")
    def show(self, req: Request, id: str) -> Response:
        """Show a quota class. Classes other than ``default`` are stored like users of the defaults' project."""
        if _class(id) == DEFAULT:
            limits = self.conductor.quota_defaults_get(req.context)
        else:
            limits = self.conductor.limits_get(req.context, _DEFAULTS_PROJECT, id)
        return Response({"quota_class_set": {"id": id, **_class_view(req, limits)}})

    @declares(policies.CLASS_UPDATE, body=CLASS_UPDATE_BODY, response="quota_class_set")
    def update(self, req: Request, id: str) -> Response:
        """Set the limits of a quota class.

        As in Nova, only the class ``default`` has an effect. The others are just stored.
        """
        new_limits = _limits(req.data["quota_class_set"])
        if _class(id) == DEFAULT:
            limits = self.conductor.quota_defaults_update(req.context, new_limits)
        else:
            limits = self.conductor.quota_update(req.context, _DEFAULTS_PROJECT, new_limits, True, id)
        return Response({"quota_class_set": _class_view(req, limits)})


def _class(name: str) -> str:
    if len(name) > 255:
        raise exceptions.ValidationError(detail="A quota class's name has at most 255 characters.")
    return name


def _user(req: Request) -> str | None:
    user_id = req.query.one("user_id")
    if user_id is not None and len(user_id) > 255:
        raise exceptions.ValidationError(detail="A user's id has at most 255 characters.")
    return user_id or None


def _check_project(req: Request, project_id: str) -> None:
    """Refuse a project that does not exist, where the identity service of this cloud knows all of them."""
    has_project = req.environ.get(wsgi.HAS_PROJECT)
    if has_project is not None and not has_project(project_id):
        raise exceptions.ValidationError(detail=f"Project ID {project_id[:64]} is not a valid project.")


def _project(project_id: str) -> str:
    if len(project_id) > 255:
        raise exceptions.ValidationError(detail="A project's id has at most 255 characters.")
    return project_id


def _limits(limits_by_key: dict[str, Any]) -> dict[str, int]:
    """Return the limits by the names of the resources, which differ from the API's keys."""
    return {QUOTAS[name].resource: int(value) for name, value in limits_by_key.items()}


class AbsoluteLimits(Extension):
    alias = "limits"
    title = "Limits"
    routes = (Route("GET", "/limits", "index"),)

    @declares(policies.LIMITS, query=LIMITS_QUERY, response="limits")
    def index(self, req: Request) -> Response:
        project_id = req.query.one("tenant_id") or str(req.context.project_id)
        if project_id != req.context.project_id:
            req.authorize(policies.LIMITS_OTHER)
        limits = self.conductor.limits_get(req.context, project_id)
        return Response({"limits": {"rate": [], "absolute": _absolute_view(req, limits)}})


# --- views

#: The quota that each absolute limit shows, and the first version without it.
_MAXIMA: dict[str, tuple[str, int | None]] = {
    "maxServerMeta": ("metadata_items", None),
    "maxPersonality": ("injected_files", Change.NO_PERSONALITY),
    "maxPersonalitySize": ("injected_file_content_bytes", Change.NO_PERSONALITY),
    "maxImageMeta": ("metadata_items", Change.NO_IMAGE_METADATA),
    "maxTotalCores": ("cores", None),
    "maxTotalInstances": ("instances", None),
    "maxTotalRAMSize": ("ram", None),
    "maxTotalKeypairs": ("key_pairs", None),
    "maxServerGroups": ("server_groups", None),
    "maxServerGroupMembers": ("server_group_members", None),
    "maxSecurityGroups": ("security_groups", Change.NO_PROXIES),
    "maxSecurityGroupRules": ("security_group_rules", Change.NO_PROXIES),
    "maxTotalFloatingIps": ("floating_ips", Change.NO_PROXIES),
}
_TOTALS: dict[str, tuple[str, int | None]] = {
    "totalCoresUsed": ("cores", None),
    "totalInstancesUsed": ("instances", None),
    "totalRAMUsed": ("ram", None),
    "totalServerGroupsUsed": ("server_groups", None),
    "totalSecurityGroupsUsed": ("security_groups", Change.NO_PROXIES),
    "totalFloatingIpsUsed": ("floating_ips", Change.NO_PROXIES),
}


class QuotaKey(NamedTuple):
    """A key of a quota set: its resource, and the first version without it (``gone``).

    Quota class sets have it in the versions from ``class_since`` until before ``class_gone``.
    """

    resource: str
    gone: int | None = None
    class_since: int = 1
    class_gone: int | None = None


_NETWORK_QUOTAS = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
_GROUP_QUOTAS = ("server_groups", "server_group_members")

QUOTAS: dict[str, QuotaKey] = {
    **{name: QuotaKey(name) for name in ("cores", "instances", "ram", "key_pairs", "metadata_items")},
    **{name: QuotaKey(name, class_since=Change.QUOTA_CLASS_KEYS) for name in _GROUP_QUOTAS},
    **{
        name: QuotaKey(resource, Change.NO_PERSONALITY, class_gone=Change.NO_PERSONALITY)
        for name, resource in (
            ("injected_files", "injected_files"),
            ("injected_file_content_bytes", "injected_file_content_bytes"),
            ("injected_file_path_bytes", "injected_file_path_length"),
        )
    },
    **{name: QuotaKey(name, Change.NO_PROXIES, class_gone=Change.QUOTA_CLASS_KEYS) for name in _NETWORK_QUOTAS},
}

#: Quotas of the network service have no limit here.
_UNLIMITED = QuotaUsage(limit=-1)


def _absolute_view(req: Request, limits: ProjectLimits) -> dict[str, int]:
    return {
        **{name: _usage(limits, quota).limit for name, (quota, gone) in _MAXIMA.items() if _is_shown(req, 1, gone)},
        **{name: _usage(limits, quota).used for name, (quota, gone) in _TOTALS.items() if _is_shown(req, 1, gone)},
    }


def _detail_view(req: Request, limits: ProjectLimits) -> dict[str, Any]:
    """Return a quota set with usage, without its id."""
    return {
        name: {"limit": usage.limit, "in_use": usage.used, "reserved": usage.reserved}
        for name, quota in QUOTAS.items()
        if _is_shown(req, 1, quota.gone)
        for usage in (_usage(limits, quota.resource),)
    }


def _set_view(req: Request, limits: ProjectLimits) -> dict[str, int]:
    """Return a quota set without its id."""
    return {
        name: _usage(limits, quota.resource).limit for name, quota in QUOTAS.items() if _is_shown(req, 1, quota.gone)
    }


def _class_view(req: Request, limits: ProjectLimits) -> dict[str, int]:
    """Return a quota class set without its id."""
    return {
        name: _usage(limits, quota.resource).limit
        for name, quota in QUOTAS.items()
        if _is_shown(req, quota.class_since, quota.class_gone)
    }


def _is_shown(req: Request, since: int, gone: int | None) -> bool:
    return req.version.minor >= since and (gone is None or req.version.minor < gone)


def _usage(limits: ProjectLimits, quota: str) -> QuotaUsage:
    return limits.quotas.get(quota, _UNLIMITED)
