"""``network trace``: what the hosts do to a packet, hop by hop."""

from __future__ import annotations

import argparse
import secrets
from typing import Any

from nova_lite.base import exceptions, threads
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.network import packet_trace
from nova_lite.network.trace import probe as probes
from nova_lite.network.trace.packets import PROTOCOLS, Trace
from nova_lite.network.trace.probe import Comparison, Sending
from nova_lite.objects import PacketSighting

#: Seconds in which a host has to answer a probe, which takes 6.
_SECONDS = 20.0


def register(commands: Commands, noun: Any) -> None:
    parser = commands.verb(
        noun,
        "trace",
        "Show what hosts do to a packet, hop by hop: ports, security groups, routers, NAT and tunnels. The status is 1 "
        "if it does not arrive, and 2 if a probe has another way.",
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
    parser.add_argument(
        "--probe", action="store_true", help="send the packet from the source's port, and say where hosts see it"
    )
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
    trace, wanted, sending = app.db.read(packet_trace.answer, question)
    comparison = _probe(app, trace, sending) if args.probe else None
    rows: list[tuple[Any, ...]] = [
        (hop.host, hop.kind, hop.id, hop.group_id, hop.passes, hop.text) for hop in trace.hops
    ]
    names: tuple[str, ...] = ("Host", "Part", "ID", "Group", "Passes", "What happens")
    if comparison is not None:
        names = (*names[:5], "Seen", names[5])
        rows = [(*row[:5], seen, row[5]) for row, seen in zip(rows, comparison.seen, strict=True)]
    app.show(names, rows)
    arrives = trace.arrives and wanted in (None, trace.arrived_at)
    app.say(f"{trace.packet}: {_verdict(arrives, trace.arrived_at)}")
    if comparison is not None:
        for line in comparison.differences or ["The model and the probe agree."]:
            app.say(line)
        if comparison.differences:
            return 2
    return 0 if arrives else 1


def _probe(app: App, trace: Trace, sending: Sending | None) -> Comparison:
    """Send the packet, and compare its way. Raises `InvalidInput` for a packet that no port sends."""
    if sending is None:
        raise exceptions.InvalidInput(reason="a probe is sent from a port of a server, and the source is none.")
    probe = sending.probe(mark=secrets.randbelow(2**32 - 2) + 1)
    if probe is None:
        raise exceptions.InvalidInput(reason=f"the guest sends no packet, so there is no probe. {trace.hops[-1].text}")
    compute = app.servers.compute

    def look(host: str) -> list[PacketSighting] | None:
        try:
            return compute.probe_packet(app.context, host, probe, timeout=_SECONDS)
        except exceptions.ServiceUnavailable as error:
            if host == sending.host.name:
                raise
            app.say(f"Host {host} does not look for the probe: {error.message}")
            return None

    hosts = list(sending.cloud.hosts)
    with threads.Pool(len(hosts)) as pool:
        return probes.compare(sending, trace, dict(zip(hosts, pool.map(look, hosts), strict=True)))


def _verdict(arrives: bool, arrived_at: str | None) -> str:
    if arrives:
        return f"it arrives at {arrived_at}."
    return "it does not arrive." if arrived_at is None else f"it arrives at {arrived_at}, which has an equal address."
