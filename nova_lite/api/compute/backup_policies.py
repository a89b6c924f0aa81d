"""``/os-backup-policies``: policies by which servers are backed up."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_backups, view_helpers
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import BackupPolicy, PolicyStatus, ServerProtection
from nova_lite.objects.backup import Every
from nova_lite.policies import backups as policies

# --- schemas

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAX_KEPT = 1000


def _number(maximum: int) -> t.Schema:
    return {"type": "integer", "minimum": 0, "maximum": maximum}


_CLOCK: t.Schema = {"type": ["string", "null"], "pattern": r"^([01][0-9]|2[0-3]):[0-5][0-9]$"}
_SCHEDULE = t.strict(
    {"every": t.one_of(*Every), "minute": _number(59), "hour": _number(23), "weekday": t.one_of(*WEEKDAYS)},
    ("every",),
)
_RETENTION = t.strict(dict.fromkeys(("hourly", "daily", "weekly"), _number(_MAX_KEPT)))
_WINDOW = t.strict({"not_before": _CLOCK, "not_after": _CLOCK})
_TARGETS = t.strict(
    {
        "servers": {"type": "array", "items": t.UUID, "maxItems": 1000, "uniqueItems": True},
        "tags": {**t.TAGS, "uniqueItems": True},
        "all": {"type": "boolean"},
    }
)
_POLICY: t.Schema = {
    "name": t.NAME,
    "enabled": {"type": "boolean"},
    "schedule": _SCHEDULE,
    "retention": _RETENTION,
    "window": _WINDOW,
    "targets": _TARGETS,
    "volumes": {"type": "boolean"},
    "locked_days": _number(36500),
}
CREATE_BODY = t.wrapped("backup_policy", t.strict(_POLICY, ("name", "schedule", "retention", "targets")))
UPDATE_BODY = t.wrapped("backup_policy", t.strict(_POLICY, minProperties=1))
INDEX_QUERY = t.strict({**t.PAGING, "all_projects": t.Q_BOOLEAN})


# --- routes

_PATH = "/os-backup-policies"
_ONE = _PATH + "/{id}"


class BackupPolicies(Extension):
    alias = "os-backup-policies"
    title = "Backup policies"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("GET", _ONE, "show"),
        Route("PUT", _ONE, "update"),
        Route("DELETE", _ONE, "delete"),
        Route("GET", _ONE + "/status", "status"),
        Route("POST", _ONE + "/run", "run"),
    )

    @declares(policies.INDEX, query=INDEX_QUERY, response=("backup_policies", "backup_policies_links"))
    def index(self, req: Request) -> Response:
        """List backup policies. ``all_projects`` lists the policies of all projects, if a rule allows it to the
        caller."""
        everywhere = server_backups.all_projects(req, policies.INDEX_ALL)
        limit = req.query.limit
        found = self.conductor.backup_policy_list(req.context, everywhere, limit, req.query.marker)
        links = req.next_page("backup_policies_links", found, limit, lambda policy: policy.id)
        return Response({"backup_policies": [_view(policy) for policy in found], **links})

    @declares(policies.CREATE, body=CREATE_BODY, status=201, response="backup_policy")
    def create(self, req: Request) -> Response:
        """Create a backup policy.

        The schedule has a ``minute``, for days an ``hour`` and for weeks a ``weekday``, all in UTC. The retention keeps
        the newest backup of as many hours, days and weeks as it says. Backups begin only within the window. With
        ``volumes``, which is the default of engine ``restic``, they contain the attached volumes, too. For
        ``locked_days`` no user can remove a backup, not even after the policy has changed.
        """
        policy = BackupPolicy(**_changes(req.data["backup_policy"]))
        created = self.conductor.backup_policy_create(req.context, policy)
        return Response({"backup_policy": _view(created)}, 201)

    @declares(policies.SHOW, query=t.NO_PARAMETERS_STRICT, response="backup_policy")
    def show(self, req: Request, id: str) -> Response:
        return Response({"backup_policy": _view(self.conductor.backup_policy_get(req.context, id))})

    @declares(policies.UPDATE, body=UPDATE_BODY, response="backup_policy")
    def update(self, req: Request, id: str) -> Response:
        """Change a backup policy. A part that the body has, such as ``schedule``, replaces the whole part."""
        changes = _changes(req.data["backup_policy"])
        return Response({"backup_policy": _view(self.conductor.backup_policy_update(req.context, id, changes))})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        """Delete a backup policy. Its backups stay until a user deletes them."""
        self.conductor.backup_policy_delete(req.context, id)
        return Response(status=204)

    @declares(policies.STATUS, query=t.NO_PARAMETERS_STRICT, response="backup_policy_status")
    def status(self, req: Request, id: str) -> Response:
        """Show each server of a policy, its newest complete backup, its last failure, and whether the policy is met."""
        return Response({"backup_policy_status": _status(self.conductor.backup_policy_status_get(req.context, id))})

    @declares(policies.RUN, status=202, response="server_backups")
    def run(self, req: Request, id: str) -> Response:
        """Back up all servers of a policy now, within an hour, whatever its window.

        A server whose backup by the policy waits or is being made gets no second one.
        """
        planned = self.conductor.backup_policy_run(req.context, id)
        return Response({"server_backups": [server_backups.view(backup) for backup in planned]}, 202)


def _changes(body: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of the policy that the body sets."""
    changes: dict[str, Any] = {
        name: body[name] for name in ("name", "enabled", "volumes", "locked_days") if name in body
    }
    if (schedule := body.get("schedule")) is not None:
        changes["every"] = Every(schedule["every"])
        changes |= {"minute": int(schedule.get("minute", 0)), "hour": int(schedule.get("hour", 0))}
        changes["weekday"] = WEEKDAYS.index(schedule.get("weekday", WEEKDAYS[0]))
    if (retention := body.get("retention")) is not None:
        changes |= {f"keep_{name}": int(retention.get(name, 0)) for name in ("hourly", "daily", "weekly")}
    if (window := body.get("window")) is not None:
        changes |= {name: _minutes(window.get(name)) for name in ("not_before", "not_after")}
    if (targets := body.get("targets")) is not None:
        changes |= {"servers": targets.get("servers", []), "tags": targets.get("tags", [])}
        changes["all_servers"] = targets.get("all", False)
    return changes


def _minutes(text: str | None) -> int | None:
    if text is None:
        return None
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


# --- views


def _view(policy: BackupPolicy) -> dict[str, Any]:
    schedule: dict[str, Any] = {"every": policy.every, "minute": policy.minute}
    if policy.every is not Every.HOUR:
        schedule["hour"] = policy.hour
    if policy.every is Every.WEEK:
        schedule["weekday"] = WEEKDAYS[policy.weekday]
    return {
        "id": policy.id,
        "name": policy.name,
        "enabled": policy.enabled,
        "schedule": schedule,
        "retention": {"hourly": policy.keep_hourly, "daily": policy.keep_daily, "weekly": policy.keep_weekly},
        "window": {"not_before": _clock(policy.not_before), "not_after": _clock(policy.not_after)},
        "targets": {"servers": policy.servers, "tags": policy.tags, "all": policy.all_servers},
        "volumes": bool(policy.volumes),
        "locked_days": policy.locked_days,
        "project_id": policy.project_id,
        "user_id": policy.user_id,
        "created_at": view_helpers.iso_seconds(policy.created_at),
        "updated_at": view_helpers.iso_seconds(policy.updated_at),
        "next_run_at": view_helpers.iso_seconds(policy.next_run_at),
    }


def _clock(minutes: int | None) -> str | None:
    return None if minutes is None else f"{minutes // 60:02}:{minutes % 60:02}"


def _status(status: PolicyStatus) -> dict[str, Any]:
    return {
        "id": status.policy.id,
        "name": status.policy.name,
        "enabled": status.policy.enabled,
        "met": not status.unmet,
        "required_since": view_helpers.iso_seconds(status.required_since),
        "next_run_at": view_helpers.iso_seconds(status.policy.next_run_at),
        "servers": [_protection(server) for server in status.servers],
    }


def _protection(server: ServerProtection) -> dict[str, Any]:
    return {
        "server_id": server.instance_uuid,
        "name": server.name,
        "met": server.is_met,
        "last_backup": None if server.complete is None else server_backups.view(server.complete),
        "last_failure": None if server.failed is None else server_backups.view(server.failed),
    }
