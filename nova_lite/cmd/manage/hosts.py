"""Commands ``service`` and ``host``: daemons and hypervisors."""

from __future__ import annotations

import argparse
import re
import time
from typing import Any

from nova_lite.base import exceptions
from nova_lite.cmd.manage import capacity, cpu_baseline, joining, maintenance, moves, scheduler
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.hosts import evacuations, hosts, leases, services
from nova_lite.db.hosts import host_health as health_of_hosts
from nova_lite.fence import methods

_REASON_LENGTH = 255
#: A day: a suspension that was forgotten ends.
_MAX_MINUTES = 1440

_TEST, _OFF, _STATUS, _FORGET = "test", "off", "status", "forget"


def register(commands: Commands) -> None:
    noun = commands.noun("service", "List, enable and disable services.")
    commands.verb(noun, "list", "List all services with their state and last heartbeat.", service_list)
    _register_switches(commands, noun)
    noun = commands.noun("host", "List, add, drain, maintain, rebalance, retire, and remove hypervisors.")
    commands.verb(noun, "list", "List hypervisors with their capacity and usage.", host_list)
    drain = commands.verb(
        noun, "drain", "Disable a host and move all its servers to others; it stays disabled.", scheduler.drain
    )
    drain.add_argument("host", metavar="HOST")
    moves.add_options(drain)
    maintenance.register(commands, noun)
    rebalance = commands.verb(
        noun, "rebalance", "Move servers so that the hosts are about equally full.", scheduler.rebalance
    )
    rebalance.add_argument("--max-moves", type=at_least(1), default=100, metavar="N")
    rebalance.add_argument("--az", metavar="ZONE", help="consider hosts of this zone only")
    rebalance.add_argument("--aggregate", metavar="NAME", help="consider hosts of this aggregate only")
    moves.add_options(rebalance)
    survive = commands.verb(
        noun, "capacity", "Check whether protected servers of lost hosts would fit elsewhere.", capacity.host_capacity
    )
    survive.add_argument(
        "--survive", type=at_least(1), required=True, metavar="N", help="number of hosts that are lost, any of them"
    )
    baseline = commands.verb(
        noun,
        "cpu-baseline",
        "Propose the largest CPU that all hosts of an aggregate have, and explain which hosts limit it.",
        cpu_baseline.run,
    )
    cpu_baseline.add_options(baseline)
    balance = commands.verb(
        noun,
        "balance",
        "Show which servers would move off hosts under measured pressure, and why.",
        scheduler.balance,
    )
    what = balance.add_mutually_exclusive_group()
    what.add_argument("--explain", action="store_true", help="show for each server considered why it moves or stays")
    what.add_argument(
        "--run", dest="run_once", action="store_true", help="begin the moves, within the budget of [balance]"
    )
    retire = commands.verb(
        noun,
        "retire",
        "Declare a host permanently lost: its allocations are released, and its service can be deleted.",
        host_retire,
    )
    retire.add_argument("host", metavar="HOST")
    retire.add_argument(
        "--with-instances",
        action="store_true",
        help="accept the loss of its servers: they go to ERROR, except servers whose disks or image are elsewhere",
    )
    fence = commands.verb(
        noun,
        "fence",
        "Test the fence methods of a host, switch it off, or show, suspend or forget the state of fencing.",
        host_fence,
    )
    fence.add_argument("host", metavar="HOST", nargs="?", help="default, for --status only: all hosts")
    what = fence.add_mutually_exclusive_group(required=True)
    what.add_argument("--test", dest="what", action="store_const", const=_TEST, help="read its power by each method")
    what.add_argument("--off", dest="what", action="store_const", const=_OFF, help="switch it off and force it down")
    what.add_argument("--status", dest="what", action="store_const", const=_STATUS, help="show what is known")
    what.add_argument(
        "--forget",
        dest="what",
        action="store_const",
        const=_FORGET,
        help="forget which hosts fence themselves and which are lost. Run it if the database has lost commits, before "
        "conductors start again",
    )
    what.add_argument(
        "--suspend",
        type=_minutes,
        metavar="MINUTES",
        help="let no host fence itself for so long, so guests continue while all conductors are stopped. 0 ends it",
    )
    commands.verb(noun, "health", "Show which hosts have signs that their machine will fail.", host_health)
    joining.register(commands, noun)


def host_health(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("Host", "Kind", "Since", "Problem", "State"),
        [
            (health.host, problem.kind, health.since[problem.key], problem.text, health.state or None)
            for health in app.db.read(health_of_hosts.list_)
            for problem in health.problems
        ],
    )


def _register_switches(commands: Commands, noun: Any) -> None:
    for name, disabled, text in (
        ("enable", False, "Enable a service, so that its host gets new servers again."),
        ("disable", True, "Disable a service. Its host gets no new servers; those on it stay."),
    ):
        verb = commands.verb(noun, name, text, service_switch)
        verb.add_argument("host", metavar="HOST")
        verb.add_argument("--binary", default=services.COMPUTE, metavar="NAME", help="default: %(default)s")
        verb.set_defaults(disabled=disabled, reason=None)
        if disabled:
            verb.add_argument("--reason", type=_reason, metavar="TEXT", help="shown to admins in lists of services")


def _minutes(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) > _MAX_MINUTES:
        raise argparse.ArgumentTypeError(f"minutes are a number from 0 to {_MAX_MINUTES}")
    return int(text)


def _reason(text: str) -> str:
    if not 1 <= len(text) <= _REASON_LENGTH or not text.isprintable():
        raise argparse.ArgumentTypeError(f"a reason is one line of 1 to {_REASON_LENGTH} printable characters")
    return text


def service_list(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Binary", "Host", "Zone", "Status", "State", "Last Seen", "Version", "Reason"),
        (
            (
                service.id,
                service.binary,
                service.host,
                service.availability_zone,
                "disabled" if service.disabled else "enabled",
                "up" if service.up else "down",
                service.last_seen_up,
                service.version,
                service.disabled_reason,
            )
            for service in app.db.read(services.list_)
        ),
    )


def service_switch(app: App, args: argparse.Namespace) -> None:
    """Carry out ``service enable`` and ``disable``, by a conductor, so that schedulers know it at once."""
    conductor = app.servers.conductor
    binary = args.binary.replace("nova-lite-", "nova-", 1)
    found = conductor.service_list(app.context, args.host, binary)
    if not found:
        raise exceptions.HostBinaryNotFound(host=args.host, binary=binary)
    changes = {"disabled": args.disabled, "disabled_reason": args.reason}
    conductor.service_update(app.context, found[0].uuid, changes)
    app.say(f"{binary} of {args.host} is {'disabled' if args.disabled else 'enabled'}.")


def host_list(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("Host", "Node", "Zone", "State", "VCPUs", "VCPUs Used", "RAM", "RAM Used", "Disk", "Disk Used", "Servers"),
        (
            (
                state.host,
                state.node,
                state.availability_zone,
                ("up" if state.up else "down") + (", disabled" if state.disabled else ""),
                state.vcpus,
                state.vcpus_used,
                state.memory_mb,
                state.memory_mb_used,
                state.disk_gb,
                state.disk_gb_used,
                len(state.instances),
            )
            for state in app.db.read(hosts.states)
        ),
    )


def host_retire(app: App, args: argparse.Namespace) -> int:
    found = app.servers.conductor.host_retire(app.context, args.host, args.with_instances)
    if found.servers or app.output == "json":
        app.show(
            ("Server", "Name", "State", "Outcome" if found.done else "To Do"),
            [(server.uuid, server.name, server.vm_state, server.outcome) for server in found.servers],
        )
    if not found.done:
        raise exceptions.HostNotRetirable(
            host=args.host,
            reason=f"{len(found.servers)} server(s) are on it. Evacuate them (openstack server evacuate), or, if they "
            "are lost with it: --with-instances",
        )
    app.say(
        f"Host {args.host} is retired; {found.closed} open action(s) were closed. Its service can be deleted: "
        "openstack compute service delete"
    )
    return 0


def host_fence(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host fence``. Its methods and their passwords are on this machine, as on each conductor's."""
    if args.suspend is not None:
        return _fence_suspend(app, args.host, args.suspend)
    if args.what == _STATUS:
        _fence_status(app, args.host)
        return 0
    if args.what == _FORGET:
        _fence_forget(app, args.host)
        return 0
    if args.host is None:
        raise exceptions.ConfigurationError(reason=f"host fence --{args.what} needs the name of a host.")
    known = methods.load(app.conf.conductor.fencing_file).get(args.host)
    if not known:
        raise exceptions.ConfigurationError(
            reason=f"[conductor] fencing_file has no method of host {args.host}: docs/howto/protect-servers.md"
        )
    return _fence_test(app, args.host, known) if args.what == _TEST else _fence_off(app, args.host, known)


def _fence_test(app: App, host: str, known: list[methods.Method]) -> int:
    checks = methods.test(known)
    app.show(("Method", "Power", "Error"), [tuple(check) for check in checks])
    app.db.write(leases.record_checks, host, [check._asdict() for check in checks])
    return 0 if all(not check.error for check in checks) else 1


def _fence_off(app: App, host: str, known: list[methods.Method]) -> int:
    """Switch a host off. Its registration is looked at first, so that a host that is back meanwhile is not lost."""
    service = app.db.read(services.find, host, services.COMPUTE)
    if service is None:
        raise exceptions.ComputeHostNotFound(host=host)
    method = methods.switch_off(host, known)
    if not app.db.write(leases.record_off, host, service.boot_id, method):
        raise exceptions.FenceFailed(reason=f"Host {host} has registered again: it is on.")
    app.say(
        f"Host {host} is off ({method}) and forced down. Its protected servers are evacuated. When it is back: "
        "openstack --os-compute-api-version 2.11 compute service set --up"
    )
    return 0


def _fence_suspend(app: App, host: str | None, minutes: int) -> int:
    """Let hosts protect nothing, and wait for the length of a lease until each one has confirmed it."""
    if host is not None:
        raise exceptions.ConfigurationError(reason="host fence --suspend is for all hosts. Leave out the name.")
    seconds = app.db.write(leases.suspend, minutes)
    if not minutes:
        app.say("Hosts fence themselves again, as they are configured, from their next request on.")
        return 0
    deadline = time.monotonic() + seconds
    while (left := app.db.read(leases.still_protecting)) and time.monotonic() < deadline:
        time.sleep(app.timing.suspend_poll)
    if left:
        raise exceptions.FenceFailed(
            reason=f"{len(left)} host(s) have not confirmed it within {seconds} s, and would stop their protected "
            f"guests without conductors: {', '.join(left)}. Conductors have to run meanwhile. Repeat the command."
        )
    app.say(
        f"No host fences itself for {minutes} minutes: guests continue without conductors, and servers of a lost host "
        "stay there."
    )
    return 0


def _fence_forget(app: App, host: str | None) -> None:
    """Forget the promises of all hosts. The rows of each host are older than the lost commits."""
    if host is not None:
        raise exceptions.ConfigurationError(reason="host fence --forget is for all hosts. Leave out the name.")
    app.db.write(leases.forget, app.conf.service_down_time)
    app.say("No host counts as fencing itself or as lost. Start the conductors: hosts make their promises again.")


def _fence_status(app: App, host: str | None) -> None:
    states = [state for state in app.db.read(leases.all_hosts) if host in (None, state.host)]
    if host is not None and not states:
        raise exceptions.ComputeHostNotFound(host=host)
    protected = app.db.read(leases.hosts_of_protected, app.conf)
    app.show(
        ("Host", "Self-Fencing", "Methods", "Tested", "Protected", "Confirmed", "Fenced", "By", "Comes Back"),
        [
            (
                state.host,
                f"{state.armed:.0f} s" if state.armed else "no",
                ", ".join(f"{check['name']}: {check['error'] or check['power']}" for check in state.checks) or "none",
                state.checked_at,
                protected.get(state.host, 0),
                len(state.guests),
                state.fenced or "no",
                state.fenced_by,
                "yes" if state.is_fenceable else "NO: neither self-fencing nor a working method",
            )
            for state in states
        ],
    )
    plan = [row for state in states for row in app.db.read(evacuations.of_host, state.host)]
    if plan and app.output != "json":
        app.show(
            ("Server", "Host", "Priority", "Attempts", "Next", "Cause"),
            [(row.instance_uuid, row.host, row.priority, row.attempts, row.due_at, row.cause) for row in plan],
        )
