"""``network trace``: what the hosts do to a packet, hop by hop."""

from __future__ import annotations

import argparse
from typing import Any

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.network import packet_trace
from nova_lite.network.trace.packets import PROTOCOLS


def register(commands: Commands, noun: Any) -> None:
    parser = commands.verb(
        noun,
        "trace",
        "Show what hosts do to a packet, hop by hop: ports, security groups, routers, NAT and tunnels. The status is 1 "
        "if it does not arrive. Nothing is sent.",
        run,
    )
    parser.add_argument("source", metavar="SOURCE", help="server or port (uuid), or an address")
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        help="server or port (uuid), or an address: of a server, floating, outside, or 169.254.169.254",
    )
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="icmp", help="default: icmp, a ping")
    parser.add_argument("--port", type=at_least(1, 65535), help="destination port of tcp or udp")
    parser.add_argument("--network", metavar="NAME-OR-ID", help="the source's network, if several have its address")
    parser.add_argument("--ipv6", action="store_true", help="use the IPv6 address of a destination that is no address")


def run(app: App, args: argparse.Namespace) -> int:
    if app.conf.network.backend != "local":
        reason = f"[network] backend = {app.conf.network.backend}: hosts filter and route built-in networks only."
        raise exceptions.ConfigurationError(reason=reason)
    if (args.port is None) != (args.protocol == "icmp"):
        raise exceptions.InvalidInput(reason="tcp and udp need --port, and icmp has none.")
    question = packet_trace.Question(
        args.source, args.destination, args.protocol, args.port, args.network, 6 if args.ipv6 else 4
    )
    trace, wanted = app.db.read(packet_trace.answer, question)
    app.show(
        ("Host", "Part", "ID", "Group", "Passes", "What happens"),
        [(hop.host, hop.kind, hop.id, hop.group_id, hop.passes, hop.text) for hop in trace.hops],
    )
    arrives = trace.arrives and wanted in (None, trace.arrived_at)
    app.say(f"{trace.packet}: {_verdict(arrives, trace.arrived_at)}")
    return 0 if arrives else 1


def _verdict(arrives: bool, arrived_at: str | None) -> str:
    if arrives:
        return f"it arrives at {arrived_at}."
    return "it does not arrive." if arrived_at is None else f"it arrives at {arrived_at}, which has an equal address."
