"""``service`` and ``host``: daemons and hypervisors."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage import scheduler
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.conductor.db import hosts, services


def register(commands: Commands) -> None:
    noun = commands.noun("service", "Look at daemons.")
    commands.verb(noun, "list", "List every daemon that ever reported.", service_list)
    noun = commands.noun("host", "Look at hypervisors.")
    commands.verb(noun, "list", "List hypervisors with what may be given out, and what is.", host_list)
    drain = commands.verb(noun, "drain", "Where each server of a host would go.", scheduler.drain)
    drain.add_argument("host", metavar="HOST")
    drain.add_argument("--dry-run", action="store_true", required=True, help="a plan only: servers are not moved")
    rebalance = commands.verb(
        noun, "rebalance", "Moves that would even out how full the hosts are.", scheduler.rebalance
    )
    rebalance.add_argument("--dry-run", action="store_true", required=True, help="a plan only: servers are not moved")
    rebalance.add_argument("--max-moves", type=at_least(1), default=100, metavar="N")
    rebalance.add_argument("--az", metavar="ZONE", help="among the hosts of this zone only")
    rebalance.add_argument("--aggregate", metavar="NAME", help="among the hosts of this aggregate only")


def service_list(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Binary", "Host", "Zone", "Status", "State", "Last Seen", "Version"),
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
            )
            for service in app.db.read(services.list_)
        ),
    )


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
