"""``nova-lite-setup``: make this machine a controller or a host of a cloud, or remove it, with one command.

It may be interrupted anywhere, and repeated: each step does what is still missing. A file of the configuration that
exists is never changed, so an operator's changes stay.

- `steps`, `settings`, `machine`, `units`, `directories`: steps, settings, and the parts of a machine
- `controller`, `further`, `front_end`, `compute`: the steps of each kind of machine
- `joining`: what is the same for each machine that joins with a token
- `broker`, `broker_watch`: RabbitMQ, and its watch
- `database`, `database_watch`, `galera`: MariaDB and its cluster
- `balancer`, `cluster`: one address for several controllers, and their list
- `libvirt`, `guests`: libvirt of a host, and its guests
- `admission`: admission of this machine by the cloud: its request, and the files that the reply brings
- `clouds`: write the cloud into, or remove it from, a clouds.yaml that may hold other clouds
- `monitoring`: files for Prometheus and Grafana: what to scrape, alert rules, dashboards
- `removal`: removal of what the set-up made
- `rotation`: replacement of the keys of a machine that joined with a token
- `upgrade`: upgrade of one machine: check, backup, installation, schema
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import argparse  # noqa: E402
import contextlib  # noqa: E402
import fcntl  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

from nova_lite.base import exceptions, version  # noqa: E402
from nova_lite.cmd.setup import (  # noqa: E402
    cluster,
    compute,
    controller,
    database,
    front_end,
    further,
    joining,
    removal,
    rotation,
    settings,
    steps,
    upgrade,
)

PROG = "nova-lite-setup"

_LOCK = "/run/nova-lite-setup.lock"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog=PROG, description="Set up this machine for a nova_lite cloud.")
    top.add_argument("--version", action="version", version=f"{PROG} {version.VERSION}")
    top.set_defaults(is_shared=False)
    commands = top.add_subparsers(metavar="COMMAND", dest="command", required=True)

    def command(name: str, text: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    made = command(
        "controller",
        "Set up the API, conductor, scheduler and console proxies on this machine, with message broker, database, "
        "keys, certificates and the first admin. With TOKEN (nova-lite-manage host token), make this machine a further "
        "controller of a cloud whose first one has a virtual address. It can be repeated.",
        _controller,
    )
    made.add_argument(
        "token",
        metavar="TOKEN",
        nargs="?",
        help="the token of a cloud that this controller joins, or - to read it from standard input; of the options, "
        "only --address is used then",
    )
    settings.add_arguments(made)
    made = command(
        "compute",
        "Make this machine a compute host of the cloud whose controller printed TOKEN (nova-lite-manage host token). "
        "It can be repeated.",
        _compute,
    )
    _add_join_arguments(made, "the controller")
    for role, part in (("api", "the APIs"), ("console", "the console proxies")):
        made = command(
            role,
            f"Make this machine serve {part} alone, beside the controllers of the cloud that TOKEN is of "
            "(nova-lite-manage host token). It can be repeated.",
            _front_end,
        )
        _add_join_arguments(made, "the cloud")
    command(
        "rotate",
        "Replace the keys and the certificates of this machine, which joined with a token. It can be repeated.",
        _rotate,
    )
    made = command(
        "upgrade",
        "Upgrade this machine, or take it back to an older version: check, backup, installation, schema, and daemons "
        "one after the other. It can be repeated.",
        _upgrade,
    )
    upgrade.add_arguments(made)
    _add_cluster_commands(commands, command)
    made = command("remove", "Stop and remove what the set-up made on this machine.", _remove)
    made.add_argument("--yes", action="store_true", help="remove it; without this flag, only say what would go")
    made.add_argument(
        "--purge",
        action="store_true",
        help="remove images, keys, configuration, users and a database of SQLite as well",
    )
    return top


def _add_cluster_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    text = "Look at the database's nodes of several controllers, or begin a new majority of them."
    verbs = commands.add_parser("database", help=text, description=text).add_subparsers(metavar="VERB", required=True)
    text = "Print the state of each node, and what to do if there is no majority."
    made = verbs.add_parser("status", help=text, description=text)
    made.set_defaults(run=lambda args: database.status(), is_shared=True)
    text = (
        "Begin a new majority at this machine's node after all have lost theirs. It refuses while another node is in a "
        "majority, has later commits, or does not report."
    )
    made = verbs.add_parser("recover", help=text, description=text)
    made.set_defaults(run=lambda args: database.recover(args.without))
    made.add_argument(
        "--without",
        metavar="HOST",
        action="append",
        default=[],
        help="controller whose machine is off, and stays off until the others serve; what it alone has committed is "
        "lost; may be repeated",
    )
    made = command(
        "settle",
        "Wait for a minute at most until the other controllers can continue without this machine's broker or database. "
        "A unit's stop calls it.",
        lambda args: database.settle(args.part),
    )
    made.set_defaults(is_shared=True)
    made.add_argument("part", choices=("broker", "database"), help="the part that stops")
    text = "Write this version's settings of the units of broker, database and load balancer. An upgrade calls it."
    command("units", text, _write_units).set_defaults(is_shared=True)


def _add_join_arguments(made: argparse.ArgumentParser, reached: str) -> None:
    """Add the token and the address of a machine that joins. ``reached``: where the address leads by default."""
    made.add_argument("token", metavar="TOKEN", help="the token, or - to read it from standard input")
    made.add_argument(
        "--address",
        metavar="ADDRESS",
        help=f"address by which other machines reach this one; default: the one from which it reaches {reached}",
    )


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if os.geteuid() != 0:
            raise exceptions.ConfigurationError(reason="this needs root.")
        with contextlib.nullcontext() if args.is_shared else _alone():
            args.run(args)
    except exceptions.NovaLiteException as error:
        print(f"{PROG}: {' '.join(error.message.split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; the same command continues from here.", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, which the kernel frees with the process. Raises `ConfigurationError` while another one holds it."""
    with open(_LOCK, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise exceptions.ConfigurationError(reason=f"another {PROG} runs on this machine.") from error
        yield


def _controller(args: argparse.Namespace) -> None:
    if args.token is not None:
        _further_controller(args)
        return
    wanted = settings.read(args)
    steps.run(controller.steps(wanted))
    print(controller.farewell(wanted), flush=True)


def _further_controller(args: argparse.Namespace) -> None:
    refused = [name for name in settings.NAMES if name != "address" and getattr(args, name) is not None]
    if refused or args.answers:
        raise exceptions.ConfigurationError(
            reason=f"--{(refused or ['answers'])[0].replace('_', '-')}: a further controller gets it from the first."
        )
    wanted = joining.read(_token(args), args.address)
    steps.run(further.steps(wanted))
    print(further.farewell(wanted), flush=True)


def _token(args: argparse.Namespace) -> str:
    given: str = args.token
    return sys.stdin.readline() if given == "-" else given


def _compute(args: argparse.Namespace) -> None:
    wanted = joining.read(_token(args), args.address)
    steps.run(compute.steps(wanted))
    print(compute.farewell(wanted), flush=True)


def _front_end(args: argparse.Namespace) -> None:
    wanted = joining.read(_token(args), args.address)
    steps.run(front_end.steps(args.command, wanted))
    print(front_end.farewell(args.command, wanted), flush=True)


def _rotate(args: argparse.Namespace) -> None:
    del args
    steps.run(rotation.steps())


def _upgrade(args: argparse.Namespace) -> None:
    steps.run(upgrade.steps(upgrade.read(args)))


def _write_units(args: argparse.Namespace) -> None:
    del args
    if found := cluster.local():
        cluster.write_units(found)


def _remove(args: argparse.Namespace) -> None:
    removal.run(args.yes, args.purge)
