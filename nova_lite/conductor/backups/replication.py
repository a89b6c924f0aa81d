"""Replication of servers to another site: follows the journal of sites, and takes servers through their failovers.

One conductor does this periodically. A step that was interrupted is repeated: journal, role, backup and rebuild show
which step is next. `STEPS` has the work of each role:

- PRIMARY publishes the newest backup, and notes that it runs from its generation
- LEAVING stops the server, makes a last backup, and hands over with it: it writes the other site's generation
- ARRIVING makes an image of the backups, and rebuilds the server from it
- REPLICA stops a guest that still runs
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from nova_lite import operations
from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteJournal
from nova_lite.base import concurrency, exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.backups.stored_backups import StoredBackups
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations.rebuild import STARTS
from nova_lite.db.backups import replicated_servers
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import services
from nova_lite.image import snapshots
from nova_lite.objects import ActionCommand, BackupStatus, Image, Instance
from nova_lite.objects.replication import ReplicatedServer, SiteRole
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class SiteRights:
    """The RPC method `site_right_get`, and the check of builds. ``journal`` None: none is configured."""

    def __init__(self, engine: ActionEngine, journal: SiteJournal | None) -> None:
        self._db = engine.db
        self._journal = journal

    def site_right_get(self, context: RequestContext, host: str, instance_uuid: str) -> bool:
        return self._may_run(instance_uuid, (SiteRole.PRIMARY,))

    def require_for_build(self, instance_uuid: str) -> None:
        """Raise `ServerAtOtherSite` unless a replicated server may be built at this site now."""
        if not self._may_run(instance_uuid, (SiteRole.PRIMARY, SiteRole.ARRIVING)):
            raise exceptions.ServerAtOtherSite(instance_id=instance_uuid, role="not that of the newest generation")

    def _may_run(self, instance_uuid: str, roles: tuple[SiteRole, ...]) -> bool:
        """Check the server's role, and then the journal, which is read now. Raises `SiteJournalUnavailable`."""
        server = self._db.read(replicated_servers.right_of, instance_uuid)
        if server is None:
            return True
        if server.role not in roles:
            return False
        if self._journal is None:
            raise exceptions.SiteJournalUnavailable(reason="[replication] directory is not set")
        newest = concurrency.call_blocking(self._journal.newest, server.server_id)
        return (newest.site, newest.number) == (self._journal.site, server.generation)


class Replication:
    """The conductor's periodic work for replicated servers."""

    def __init__(self, engine: ActionEngine, journal: SiteJournal | None, stored: StoredBackups) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf
        self.images = engine.images
        self.journal = journal
        self.stored = stored

    def run_if_first(self) -> None:
        """Do the work if this is the oldest conductor that is up."""
        if self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            self.run()

    def run(self) -> None:
        """Do all work that is due."""
        for server in self.db.read(replicated_servers.list_):
            self.engine.guarded(functools.partial(self._follow, server))
        for server_id, instance_uuid in self.db.read(replicated_servers.deleted):
            self.engine.guarded(functools.partial(self._forget, server_id, instance_uuid))

    def _forget(self, server_id: str, instance_uuid: str) -> None:
        """Remove this site from the journal of a server that was deleted, and then its row."""
        if self.journal is not None:
            self._blocking(self.journal.withdraw, server_id, instance_uuid)
        self.db.write(replicated_servers.forget_deleted, server_id)

    @property
    def _journal(self) -> SiteJournal:
        if self.journal is None:
            raise exceptions.SiteJournalUnavailable(reason="[replication] directory is not set")
        return self.journal

    @staticmethod
    def _blocking(function: Callable[..., T], *arguments: object) -> T:
        """Call a function of the journal in a native thread if this daemon has green ones: its disk may hang."""
        return concurrency.call_blocking(function, *arguments)

    def _follow(self, server: ReplicatedServer) -> None:
        """Learn of a newer generation, or do the work of the server's role."""
        try:
            self._compare(server)
            newest = self._blocking(self._journal.newest, server.server_id)
            if newest.number < server.generation:
                raise exceptions.InvalidInput(
                    reason=f"the journal has generation {newest.number}, which is older than {server.generation} here"
                )
            if newest.number > server.generation:
                self._learn(server, newest)
            else:
                self._advertise(server)
                STEPS[server.role](self, server, newest)
        except (exceptions.NovaLiteException, OSError) as error:
            reason = error.message if isinstance(error, exceptions.NovaLiteException) else str(error)
            LOG.warning("Replicated server %s, which is %s: %s", server.instance_uuid, server.role, reason)
            self.db.write(replicated_servers.note_reason, server.instance_uuid, reason)

    def _compare(self, server: ReplicatedServer) -> None:
        """Compare the database with what the journal knows of this site's server. A restored one is older."""
        known = self._blocking(self._journal.server, server.server_id)
        if known is not None and self.db.read(replicated_servers.is_behind, server, known):
            self.db.write(replicated_servers.catch_up, server, known)
            LOG.warning(
                "Server %s: the database is older than the guest, which has generation %d",
                server.instance_uuid,
                known.generation,
            )

    def _learn(self, server: ReplicatedServer, newest: SiteGeneration) -> None:
        is_here = self._blocking(self._journal.is_here, server.server_id, newest)
        self.db.write(replicated_servers.learn, server.instance_uuid, self._journal.site, newest, is_here)
        LOG.info("Server %s: generation %d is of site %s", server.instance_uuid, newest.number, newest.site)

    def _advertise(self, server: ReplicatedServer) -> None:
        """Write into the journal which server this site has, and whether the other site may hand over as planned.

        An operator who disables the replication meanwhile deletes the row first, so it is read again.
        """
        obstacle = self.db.read(replicated_servers.obstacle, server)
        if obstacle is not None:
            self._blocking(self._journal.join, server.server_id, obstacle)
            described = self.db.read(replicated_servers.described, server)
            self._blocking(self._journal.note_server, server.server_id, described)
        if self.db.read(replicated_servers.obstacle, server) is None:
            self._blocking(self._journal.withdraw, server.server_id, server.instance_uuid)

    # --- primary

    def _publish(self, server: ReplicatedServer, newest: SiteGeneration) -> None:
        if newest.site == self._journal.site:
            self._blocking(self._journal.note_built, server.server_id, server.generation)
        backups = self.db.read(replicated_servers.unpublished, server)
        if backups:
            self._blocking(self._journal.publish, server.server_id, server.generation, backups)
            self.db.write(replicated_servers.note_published, server, backups[-1].id)

    # --- leaving

    def _leave(self, server: ReplicatedServer, newest: SiteGeneration) -> None:
        """Stop the server, make its last backup, and hand over. Nothing starts the server meanwhile."""
        if self._stop(server, SiteRole.LEAVING):
            return
        backup = self.db.write(replicated_servers.last_backup, server)
        if backup is None or backup.status is not BackupStatus.COMPLETE:
            return
        target = self._blocking(self._journal.other_site, server.server_id)
        if target is None:
            raise exceptions.InvalidInput(reason="no other site has joined")
        if target.obstacle:
            raise exceptions.InvalidInput(reason=f"site {target.name} cannot take it now: {target.obstacle}")
        following = SiteGeneration(
            number=server.generation + 1,
            site=target.name,
            reason=Reason.PLANNED,
            backups=self.db.read(replicated_servers.backups_of, backup.id),
            written_at=self.db.read(_now),
        )
        if self._blocking(self._journal.write, server.server_id, following):
            self._learn(server, following)

    # --- arriving

    def _arrive(self, server: ReplicatedServer, newest: SiteGeneration) -> None:
        """Make the image, and rebuild the server from it. Its guest runs then."""
        if self._blocking(self._journal.is_here, server.server_id, newest):
            self.db.write(replicated_servers.keep, server)
            return
        if not self.db.write(replicated_servers.rebuild_ended, server):
            return
        if not server.backups:
            raise exceptions.InvalidInput(reason="the generation has no backup to begin with")
        instance = self.db.read(replicated_servers.instance_of, server)
        image = _image(server, instance)
        self.stored.make_images({"": image}, server.backups)
        described = msgspec.to_builtins(self.images.describe(_context(instance), [image.id]))
        command = self.db.write(self._begin_rebuild, server, described)
        if command is not None:
            self.engine.send(command, _context(instance))

    def _begin_rebuild(
        self, uow: UnitOfWork, server: ReplicatedServer, described: dict[str, Any]
    ) -> ActionCommand | None:
        """Accept the rebuild and record its action, in one transaction. None if the role has changed."""
        found = replicated_servers.in_role(uow, server, SiteRole.ARRIVING)
        if found is None or found.instance.task_state is not None:
            return None
        payload = {
            "image_ref": server.image_id,
            "images": described,
            "changes": {},
            "injected_files": {},
            STARTS: True,
        }
        command = self.engine.accept_in(
            uow, get_admin_context(), found.instance.uuid, operations.REBUILD.kind, payload, by_replication=True
        )
        found.row.action_id = command.action_id
        uow.session.flush()
        return command

    # --- replica

    def _stay_off(self, server: ReplicatedServer, newest: SiteGeneration) -> None:
        """Stop a guest that runs. Raises `InvalidInput` if the server is in a state that cannot be stopped."""
        if self._stop(server, SiteRole.REPLICA):
            state = self.db.read(replicated_servers.stuck_state, server.instance_uuid)
            if state is not None:
                raise exceptions.InvalidInput(reason=f"the server is {state}, so no site can hand over to this one")
        elif server.reason is not None:
            self.db.write(replicated_servers.note_reason, server.instance_uuid, None)

    def _stop(self, server: ReplicatedServer, role: SiteRole) -> bool:
        """Stop a guest that may run. Return whether it is not off yet."""
        if self.db.read(replicated_servers.is_quiet, server.instance_uuid):
            return False
        is_on, command, context = self.db.write(self._begin_stop, server, role)
        if command is not None:
            self.engine.send(command, context)
        return is_on

    def _begin_stop(
        self, uow: UnitOfWork, server: ReplicatedServer, role: SiteRole
    ) -> tuple[bool, ActionCommand | None, RequestContext]:
        context = get_admin_context()
        found = replicated_servers.in_role(uow, server, role)
        if found is None or replicated_servers.is_off(found.instance):
            return found is None, None, context
        instance = found.instance
        is_failed = instance.vm_state == states.ERROR and instance.power_state == PowerState.RUNNING
        # A guest that runs although it is STOPPED becomes ACTIVE with the next comparison of its host.
        if instance.task_state is None and (instance.vm_state == states.ACTIVE or is_failed):
            return True, self.engine.accept_in(uow, context, instance.uuid, operations.STOP.kind, {}), context
        return True, None, context


#: Work of each role. It gets the server, and the newest generation of the journal, which the row has as well.
STEPS: dict[SiteRole, Callable[[Replication, ReplicatedServer, SiteGeneration], None]] = {
    SiteRole.PRIMARY: Replication._publish,
    SiteRole.LEAVING: Replication._leave,
    SiteRole.ARRIVING: Replication._arrive,
    SiteRole.REPLICA: Replication._stay_off,
}


def _now(uow: UnitOfWork) -> Any:
    return uow.now


def _context(instance: Instance) -> RequestContext:
    return RequestContext(user_id=instance.user_id, project_id=instance.project_id, is_admin=True, overwrite=False)


def _image(server: ReplicatedServer, instance: Instance) -> Image:
    """Return the queued image of the backups, which the project of this site's server owns."""
    name = f"{instance.display_name[:200]} from another site, generation {server.generation}"
    backup = server.backups[-1]
    properties = {"backup_id": backup.id}
    image = snapshots.image_of(_context(instance), instance, name, snapshots.BACKUP, properties)
    return msgspec.structs.replace(image, id=str(server.image_id))
