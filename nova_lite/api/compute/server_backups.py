"""``/os-server-backups``: backups of servers that policies have made."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import BackupQuery, BackupStatus, ServerBackup
from nova_lite.policies import backups as policies

# --- schemas

INDEX_QUERY = t.strict(
    {
        **t.PAGING,
        "all_projects": t.Q_BOOLEAN,
        "policy_id": t.repeatable(t.UUID),
        "server_id": t.repeatable(t.UUID),
        "status": t.repeatable(t.one_of(*BackupStatus)),
    }
)


# --- routes

_PATH = "/os-server-backups"
_ONE = _PATH + "/{id}"


class ServerBackups(Extension):
    alias = "os-server-backups"
    title = "Backups of servers by policies"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _ONE, "show"),
        Route("DELETE", _ONE, "delete"),
    )

    @declares(policies.BACKUP_INDEX, query=INDEX_QUERY, response=("server_backups", "server_backups_links"))
    def index(self, req: Request) -> Response:
        """List the backups of servers, the newest first.

        Filters are ``policy_id``, ``server_id`` and ``status``. ``all_projects`` lists those of all projects, if a rule
        allows it to the caller.
        """
        query = BackupQuery(
            policy_id=req.query.one("policy_id"),
            instance_uuid=req.query.one("server_id"),
            status=req.query.one("status"),
            limit=req.query.limit,
            marker=req.query.marker,
            all_projects=all_projects(req, policies.BACKUP_INDEX_ALL),
        )
        found = self.conductor.server_backup_list(req.context, query)
        links = req.next_page("server_backups_links", found, req.query.limit, lambda backup: backup.id)
        return Response({"server_backups": [view(backup) for backup in found], **links})

    @declares(policies.BACKUP_SHOW, query=t.NO_PARAMETERS_STRICT, response="server_backup")
    def show(self, req: Request, id: str) -> Response:
        return Response({"server_backup": view(self.conductor.server_backup_get(req.context, id))})

    @declares(policies.BACKUP_DELETE, status=204, faults=(409,))
    def delete(self, req: Request, id: str) -> Response:
        """Delete a backup and its image, even the last one. A backup that is being made cannot be deleted."""
        self.conductor.server_backup_delete(req.context, id)
        return Response(status=204)


def all_projects(req: Request, rule: str) -> bool:
    """Check whether the query asks for all projects, and the rule allows it."""
    return strutils.bool_from_string(req.query.one("all_projects") or False) and req.allows(rule)


# --- views


def view(backup: ServerBackup) -> dict[str, Any]:
    is_complete = backup.status is BackupStatus.COMPLETE
    return {
        "id": backup.id,
        "policy_id": backup.policy_id,
        "server_id": backup.instance_uuid,
        "server_name": backup.server.get("name", ""),
        "project_id": backup.project_id,
        "status": backup.status,
        "image_id": backup.image_id if is_complete else None,
        "size": backup.size,
        "attempts": backup.attempts,
        "reason": backup.reason,
        "scheduled_for": view_helpers.iso_seconds(backup.scheduled_for),
        "started_at": view_helpers.iso_seconds(backup.started_at),
        "finished_at": view_helpers.iso_seconds(backup.finished_at),
    }
