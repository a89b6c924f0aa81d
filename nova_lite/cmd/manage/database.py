"""Command ``db``: schema, purge, and version."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from nova_lite.base import exceptions, version
from nova_lite.cmd.manage.app import App, Commands, at_least, utc_time
from nova_lite.db.hosts import services
from nova_lite.db.migrations import schema
from nova_lite.db.upkeep import purge

#: Seconds between two lines of progress.
TELL = 5.0


def register(commands: Commands) -> None:
    noun = commands.noun("db", "Migrate, check, and purge the database.")
    commands.verb(
        noun,
        "sync",
        "Create or expand the schema. The daemons may run meanwhile, and older conductors still start afterwards.",
        sync,
    )
    commands.verb(
        noun,
        "contract",
        "Remove from the schema what only older versions need, once all daemons have this version. There is no way "
        "back to older versions afterwards.",
        run_contract,
    ).add_argument("--dry-run", action="store_true", help="only print what would be removed")
    commands.verb(noun, "version", "Print the schema's version.", show_version)
    _register_purge(
        commands.verb(
            noun,
            "purge",
            "Remove what has been over for so long: deleted servers with all that belongs to them, closed actions, "
            "finished migrations. The daemons may run meanwhile. What hosts have not confirmed stays.",
            run_purge,
        )
    )
    commands.verb(noun, "check", "Exit with 1 unless this program runs on the schema.", check)


def _register_purge(parser: argparse.ArgumentParser) -> None:
    age = parser.add_mutually_exclusive_group()
    age.add_argument("--before", type=utc_time, metavar="TIME", help="ISO 8601, in UTC unless it has an offset")
    age.add_argument("--older-than", type=at_least(0), metavar="DAYS")
    parser.add_argument(
        "--tombstones-older-than",
        type=at_least(0),
        metavar="DAYS",
        help="also forget the uuids of servers that were purged so long ago; a domain with such a uuid is never "
        "touched again, so make sure that no host has one",
    )
    parser.add_argument(
        "--batch-size",
        type=at_least(1),
        default=100,
        metavar="N",
        help="servers, actions or migrations per transaction; default: 100",
    )
    parser.add_argument(
        "--max-rows", type=at_least(1), metavar="N", help="stop after the batch that reaches this number"
    )
    parser.add_argument("--dry-run", action="store_true", help="count the rows, but delete nothing")


def run_purge(app: App, args: argparse.Namespace) -> None:
    if args.before is None and args.older_than is None and args.tombstones_older_than is None:
        raise exceptions.ConfigurationError(reason="say how old: --older-than DAYS, --before TIME.")
    gone: purge.Rows = purge.Rows()
    before = args.before
    if args.older_than is not None:
        before = app.db.read(purge.days_ago, args.older_than)
    if before is not None:
        if before > app.db.read(purge.days_ago, 0):
            raise exceptions.ConfigurationError(reason=f"{before.isoformat(' ')} is yet to come.")
        gone += purge.run(app.db, before, args.batch_size, args.max_rows, args.dry_run, tell=_progress(app))
    if args.tombstones_older_than is not None:
        old = app.db.read(purge.days_ago, args.tombstones_older_than)
        gone["purged_instances"] += purge.forget(app.db, old, args.batch_size, args.dry_run)
    app.show(("Table", "Rows"), sorted(gone.items()))
    app.say(f"{gone.total()} row(s) {'would go' if args.dry_run else 'purged'}.")


def _progress(app: App) -> Callable[[purge.Rows], None]:
    told = time.monotonic()

    def tell(gone: purge.Rows) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            app.say(f"{gone.total()} row(s) so far: {purge.told(gone)}")

    return tell


def sync(app: App, args: argparse.Namespace) -> None:
    done = schema.sync(app.conf)
    found = done.schema
    print(f"The schema is {found.version} {'already' if done.before == found.version else 'now'}.")
    if done.before not in (None, found.version):
        print(f"Conductors from schema {found.oldest} on run on it.")
    if waiting := schema.pending(found):
        print(f"{len(waiting)} change(s) wait for nova-lite-manage db contract, when all daemons are upgraded.")


def run_contract(app: App, args: argparse.Namespace) -> None:
    waiting = schema.pending(schema.check_current(app.conf))
    if args.dry_run:
        app.show(("Change",), [(line,) for line in waiting])
        return
    others = [service for service in app.db.read(services.list_) if service.version != version.VERSION]
    if waiting and others:
        raise exceptions.ConfigurationError(
            reason=f"{len(others)} daemon(s) have another version than this program's {version.VERSION}, such as "
            f"{others[0].binary} on {others[0].host} ({others[0].version or 'unknown'}). Upgrade it, or delete its "
            "service if it is gone for good."
        )
    done = schema.contract(app.conf)
    app.has_written = bool(done)
    for line in done:
        app.say(line)
    app.say(f"{len(done)} change(s) made." if done else "There is nothing to contract.")


def show_version(app: App, args: argparse.Namespace) -> None:
    print(schema.version(app.conf) or "none: run nova-lite-manage db sync")


def check(app: App, args: argparse.Namespace) -> None:
    found = schema.check(app.conf)
    fits = "as it has to be" if found.version == schema.head() else "newer than this program, which it still serves"
    print(f"The schema is {found.version}, {fits}.")
