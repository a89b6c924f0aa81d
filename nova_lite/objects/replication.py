"""Servers with a replica at another site."""

from __future__ import annotations

import datetime
import enum

import msgspec

from nova_lite.objects.backup import ServerBackup


class SiteRole(enum.StrEnum):
    """Role of a replicated server at this site.

    PRIMARY: it may run here. LEAVING: it is stopped and backed up for a planned failover. REPLICA: it may run at the
    other site only. ARRIVING: it is rebuilt from backups of the other site.
    """

    PRIMARY = "primary"
    LEAVING = "leaving"
    REPLICA = "replica"
    ARRIVING = "arriving"


#: Roles of servers that their owners may use as any other. None: the server is not replicated.
MAY_RUN = (None, SiteRole.PRIMARY)


class ReplicatedServer(msgspec.Struct, kw_only=True):
    """A server of this site that is replicated.

    ``server_id``: its id in the journal, which is that of the server at the first site. ``policy_id``: the policy that
    backs it up. ``generation``: the generation of the journal that this site knows. ``backups``: what it is rebuilt
    from. ``image_id``: their image. ``action_id``: the rebuild. ``backup_id``: the last backup before it leaves.
    ``published``: the newest backup that the journal has. ``since``: backups that began before are of another
    generation. ``reason``: why a step does not continue.
    """

    instance_uuid: str
    server_id: str
    policy_id: str
    role: SiteRole
    generation: int
    backups: list[ServerBackup] = msgspec.field(default_factory=list)
    image_id: str | None = None
    action_id: int | None = None
    backup_id: str | None = None
    published: str | None = None
    since: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    reason: str | None = None
