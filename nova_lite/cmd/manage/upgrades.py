"""Command ``upgrade``: the upgrade of a cloud, host by host.

Hosts cannot log in to each other, and this program has no way to them of its own. An operator's command does the work
of a host, such as ``ssh {host} nova-lite-setup upgrade``. This program keeps the order, believes only the heartbeats of
the host's daemons, and stops at the first host that is not healthy.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import time
from collections import defaultdict

from nova_lite.base import exceptions, version
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.hosts import services
from nova_lite.objects import Service
from nova_lite.rpc import keys

#: Daemons with heartbeats in the order of an upgrade. A host takes the place of its first one.
_ORDER = ("nova-conductor", "nova-scheduler", "nova-compute")


def register(commands: Commands) -> None:
    noun = commands.noun("upgrade", "Upgrade the hosts of the cloud one by one.")
    commands.verb(noun, "status", "List hosts in the order of an upgrade, with their versions.", show_status)
    verb = commands.verb(
        noun,
        "run",
        "Upgrade host by host: conductors, schedulers, compute hosts. Wait for each one until all its daemons are up "
        "with the version, and stop at the first unhealthy host. The same command resumes there.",
        run,
    )
    verb.add_argument(
        "--command",
        dest="template",
        metavar="COMMAND",
        help="program that upgrades {host}, such as 'ssh {host} nova-lite-setup upgrade'; it is run without a shell. "
        "Default: print the next host, and wait until the operator has upgraded it",
    )
    verb.add_argument(
        "--to", metavar="VERSION", default=version.VERSION, help="the version to reach; default: this program's"
    )
    verb.add_argument("--rollback", action="store_true", help="go through the hosts in the reverse order")
    verb.add_argument(
        "--host", action="append", default=[], metavar="HOST", help="only this host; may be repeated. Default: all"
    )
    verb.add_argument(
        "--timeout",
        type=at_least(1),
        default=600,
        metavar="SECONDS",
        help="how long a host may take to become healthy after its command has ended; default: %(default)s",
    )


def show_status(app: App, args: argparse.Namespace) -> None:
    rows = [
        (host, service.binary, service.version, service.version_since, "up" if service.up else "down")
        for host, found in _hosts(app).items()
        for service in found
    ]
    app.show(("Host", "Binary", "Version", "Since", "State"), rows)


def run(app: App, args: argparse.Namespace) -> None:
    hosts = _hosts(app)
    if unknown := sorted(set(args.host) - hosts.keys()):
        raise exceptions.ConfigurationError(reason=f"no daemon of the host {unknown[0]} has ever reported.")
    names = [name for name in hosts if not args.host or name in args.host]
    if args.rollback:
        names.reverse()
    for number, name in enumerate(names, 1):
        label = f"[{number}/{len(names)}] {name}"
        if not (missing := _missing(app, name, args.to)):
            app.say(f"{label}: has {args.to} and is healthy.")
            continue
        _upgrade(app, args, name, label, missing)
        app.say(f"{label}: has {args.to} now and is healthy.")
    app.say(f"{len(names)} host(s) have {args.to}.")


def _upgrade(app: App, args: argparse.Namespace, name: str, label: str, missing: str) -> None:
    if args.template is None:
        app.say(f"{label}: upgrade it now, such as by nova-lite-setup upgrade; waiting ({missing}).")
    else:
        command = _command(args.template, name)
        app.say(f"{label}: {shlex.join(command)}")
        _run(command, name)
    deadline = time.monotonic() + args.timeout
    while missing := _missing(app, name, args.to):
        if time.monotonic() > deadline:
            raise exceptions.ConfigurationError(
                reason=f"{name} is not healthy after {args.timeout} s: {missing}. The hosts after it are as they were. "
                "Correct this, and run the same command again."
            )
        time.sleep(app.timing.upgrade_poll)


def _command(template: str, host: str) -> list[str]:
    """Return the operator's command for a host, whose name cannot add options or arguments to it."""
    keys.check_name(keys.COMPUTE, host)
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise exceptions.ConfigurationError(reason=f"--command: {error}.") from error
    if not any("{host}" in word for word in words):
        raise exceptions.ConfigurationError(reason="--command: it has no {host}, so it is the same for all hosts.")
    return [word.replace("{host}", host) for word in words]


def _run(command: list[str], host: str) -> None:
    """Run the command, whose output goes to the operator. Raises `ConfigurationError` if it fails."""
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{command[0]}: {error.strerror}.") from error
    if status:
        raise exceptions.ConfigurationError(
            reason=f"the command for {host} ended with status {status}. The hosts after it are as they were. Correct "
            "this, and run the same command again."
        )


def _missing(app: App, host: str, wanted: str) -> str:
    """Return what the host's daemons lack to be healthy with the version, or an empty text."""
    found = _hosts(app).get(host, [])
    problems = [f"{item.binary} has {item.version}" for item in found if item.version != wanted]
    problems += [f"{item.binary} is down" for item in found if not item.up]
    return ", ".join(problems)


def _hosts(app: App) -> dict[str, list[Service]]:
    """Return the daemons of each host, in the order of an upgrade."""
    found: dict[str, list[Service]] = defaultdict(list)
    for service in app.db.read(services.list_):
        found[service.host].append(service)
    return dict(sorted(found.items(), key=lambda item: (min(map(_rank, item[1])), item[0])))


def _rank(service: Service) -> int:
    return _ORDER.index(service.binary) if service.binary in _ORDER else len(_ORDER)
