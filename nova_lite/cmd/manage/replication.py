"""Command ``replication``: servers with a replica at a second site."""

from __future__ import annotations

import argparse
import datetime

from nova_lite.backups import site_journal
from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteJournal
from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.backups import replicated_servers
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.objects.replication import ReplicatedServer, SiteRole


def register(commands: Commands) -> None:
    noun = commands.noun("replication", "Replicate servers to a second site (docs/howto/replicate-servers.md).")
    commands.verb(noun, "list", "List the replicated servers of this site. Exit 1 if a step does not continue.", list_)
    enable_ = commands.verb(noun, "enable", "Replicate a server of this site, where it runs now.", enable)
    join_ = commands.verb(noun, "join", "Use a server of this site, which is off, for a replica.", join)
    join_.add_argument("--replica-of", required=True, metavar="ID", help="id of the server at the first site")
    for verb in (enable_, join_):
        verb.add_argument("server", help="id of the server at this site")
        verb.add_argument(
            "--policy", required=True, metavar="ID", help="backup policy that has this server as a target"
        )
    failover_ = commands.verb(
        noun, "failover", "Stop a server of this site, and let it run at the other site, without loss.", failover
    )
    roll_back_ = commands.verb(noun, "roll-back", "Keep a server that is leaving for the other site.", roll_back)
    take_over_ = commands.verb(
        noun, "take-over", "Run a server here because the other site is lost. What it wrote last is lost.", take_over
    )
    take_over_.add_argument(
        "--other-site-is-off",
        action="store_true",
        help="your word that all hosts of the other site that may run the server are off now. If they are not, the "
        "server runs twice",
    )
    disable_ = commands.verb(noun, "disable", "Make a replicated server of this site an ordinary one.", disable)
    for verb in (failover_, roll_back_, take_over_, disable_):
        verb.add_argument("server", help="id of the server at this site")
    commands.verb(
        noun,
        "adopt",
        "Replicate again the servers of this site that the journal names, and a restored database does not. Run it "
        "before conductors start. Exit 1 if one is left.",
        adopt,
    )


def list_(app: App, args: argparse.Namespace) -> int:
    found = app.db.read(replicated_servers.list_)
    app.show(
        ("Server", "Replica of", "Role", "Generation", "Published backup", "Since", "Reason"),
        [
            (
                server.instance_uuid,
                server.server_id,
                server.role,
                server.generation,
                server.published,
                server.updated_at,
                server.reason,
            )
            for server in found
        ],
    )
    return 1 if any(server.reason for server in found) else 0


def enable(app: App, args: argparse.Namespace) -> None:
    """Write the first generation, unless an interrupted attempt has done so, and then the row."""
    journal = _journal(app)
    app.db.read(replicated_servers.check, app.context, args.server, args.policy, off=False)
    newest, known = journal.find(args.server), None
    if newest is not None:
        known = journal.last_backups(args.server, newest)
    else:
        newest = _generation(app, journal, 1, Reason.ENABLED)
        if not journal.write(args.server, newest):
            raise exceptions.InvalidInput(reason="the journal has just got a generation of it: try again")
    if newest.site != journal.site:
        raise exceptions.InvalidInput(reason=f"the journal says that site {newest.site} runs this server")
    journal.join(args.server, "its server is primary")
    app.db.write(
        replicated_servers.insert,
        app.context,
        args.server,
        args.server,
        args.policy,
        SiteRole.PRIMARY,
        newest.number,
        known,
    )
    _note_server(app, journal, args.server)


def join(app: App, args: argparse.Namespace) -> None:
    journal = _journal(app)
    newest = journal.newest(args.replica_of)
    if newest.site == journal.site:
        raise exceptions.InvalidInput(reason="the journal says that this site runs the server")
    app.db.write(
        replicated_servers.insert,
        app.context,
        args.server,
        args.replica_of,
        args.policy,
        SiteRole.REPLICA,
        newest.number,
    )
    journal.join(args.replica_of)
    _note_server(app, journal, args.server)


def failover(app: App, args: argparse.Namespace) -> None:
    """Begin a planned failover. The conductors of both sites do the rest."""
    journal = _journal(app)
    server = app.db.read(replicated_servers.get, args.server)
    other = journal.other_site(server.server_id)
    if other is None:
        raise exceptions.InvalidInput(reason="no other site has joined: run replication join there")
    if other.obstacle:
        raise exceptions.InvalidInput(reason=f"site {other.name} cannot take it now: {other.obstacle}")
    app.db.write(replicated_servers.leave, args.server)


def roll_back(app: App, args: argparse.Namespace) -> None:
    server = app.db.read(replicated_servers.get, args.server)
    if server.role is not SiteRole.LEAVING:
        raise exceptions.InvalidInput(reason=f"server {args.server} is not leaving, it is {server.role}")
    _take(app, server, Reason.ROLLED_BACK)


def take_over(app: App, args: argparse.Namespace) -> None:
    if not args.other_site_is_off:
        raise exceptions.InvalidInput(
            reason="the server would run twice if a host of the other site still ran it. Switch these hosts off, and "
            "say so with --other-site-is-off"
        )
    server = app.db.read(replicated_servers.get, args.server)
    if server.role is not SiteRole.REPLICA:
        raise exceptions.InvalidInput(reason=f"server {args.server} is no replica, it is {server.role}")
    if obstacle := app.db.read(replicated_servers.down_host, args.server):
        raise exceptions.InvalidInput(
            reason=f"{obstacle}. Start it, or delete the server and join another one at a host that is up"
        )
    _take(app, server, Reason.UNPLANNED)


def _take(app: App, server: ReplicatedServer, reason: Reason) -> None:
    """Write the next generation for this site, with the last backups that were published."""
    journal = _journal(app)
    newest = journal.newest(server.server_id)
    if reason is Reason.ROLLED_BACK and newest.number != server.generation:
        raise exceptions.InvalidInput(reason=f"it is too late: site {newest.site} has it")
    if reason is Reason.UNPLANNED and newest.site == journal.site:
        raise exceptions.InvalidInput(reason="the journal says that this site has the server already")
    following = _generation(app, journal, newest.number + 1, reason)
    following.backups = journal.last_backups(server.server_id, newest)
    if reason is Reason.UNPLANNED and not following.backups:
        raise exceptions.InvalidInput(reason="no backup was published: there is nothing to run the server from")
    if not journal.write(server.server_id, following):
        raise exceptions.InvalidInput(reason="the journal has just got another generation: look at replication list")


def disable(app: App, args: argparse.Namespace) -> None:
    """Delete the row, and then withdraw from the journal, which may be lost."""
    server = app.db.read(replicated_servers.get, args.server)
    app.db.write(replicated_servers.remove, args.server)
    journal = site_journal.load(app.conf)
    if journal is None:
        return
    try:
        journal.withdraw(server.server_id, args.server)
    except exceptions.SiteJournalUnavailable as error:
        app.say(f"The server is an ordinary one. The journal may still name this site for it: {error.message}")


def adopt(app: App, args: argparse.Namespace) -> int:
    journal = _journal(app)
    status = 0
    found = journal.servers()
    for server_id, server in found.items():
        newest = journal.newest(server_id)
        is_here = journal.is_here(server_id, newest)
        try:
            role = app.db.write(replicated_servers.adopt, journal.site, server_id, server, newest, is_here)
            if role is not None:
                app.say(f"Server {server.instance_uuid} is replicated again. It is {role}.")
                app.db.read(replicated_servers.require_policy, server.policy_id)
        except exceptions.InvalidInput as error:
            app.say(error.message)
            status = 1
    for known in app.db.read(replicated_servers.list_):
        if known.server_id not in found:
            app.say(
                f"Server {known.instance_uuid} is replicated in this database, and the journal does not name it. "
                "If its replication was disabled, disable it again."
            )
            status = 1
    return status


def _note_server(app: App, journal: SiteJournal, instance_uuid: str) -> None:
    server = app.db.read(replicated_servers.get, instance_uuid)
    journal.note_server(server.server_id, app.db.read(replicated_servers.described, server))


def _generation(app: App, journal: SiteJournal, number: int, reason: Reason) -> SiteGeneration:
    return SiteGeneration(number=number, site=journal.site, reason=reason, written_at=app.db.read(_now))


def _now(uow: UnitOfWork) -> datetime.datetime:
    return uow.now


def _journal(app: App) -> SiteJournal:
    journal = site_journal.load(app.conf)
    if journal is None:
        raise exceptions.ConfigurationError(reason="[replication] directory is not set.")
    return journal
