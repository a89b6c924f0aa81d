"""``nova-lite-manage network trace``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions, ip
from nova_lite.cmd.manage.app import App
from nova_lite.db.network import packet_trace
from nova_lite.db.network.packet_trace import Answer, Question
from nova_lite.network.trace import walk
from nova_lite.network.trace.hosts import Host
from nova_lite.network.trace.packets import Hop, Packet, Trace
from nova_lite.network.trace.probe import Sending
from nova_lite.objects import VIF, Network, PacketProbe, PacketSighting, Place, PortFilters
from tests.support.manage import Tool

ANSWER = Answer(
    Trace(
        packet="10.0.0.2 to 10.0.0.3, tcp port 80",
        arrives=True,
        arrived_at="p3",
        hops=[Hop(kind="rule", host="h1", id="r1", group_id="g1", text="Rule r1 of group web accepts it.")],
    ),
    "p3",
)


@pytest.fixture
def asked(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """Record the questions, and answer them."""
    found: list[Question] = []
    tool("db", "sync")
    monkeypatch.setattr(packet_trace, "answer", lambda uow, question: found.append(question) or ANSWER)
    return found


def test_trace_shows_each_hop_and_where_the_packet_arrives(tool: Tool, asked: list[Question]) -> None:
    text = tool("network", "trace", "s1", "p3", "--protocol", "tcp", "--port", "80", "--network", "lan")
    assert asked == [Question("s1", "p3", "tcp", 80, "lan", 4)]
    assert "Rule r1 of group web accepts it." in text
    assert text.endswith("10.0.0.2 to 10.0.0.3, tcp port 80: it arrives at p3.")
    (hop,) = tool.json("network", "trace", "s1", "p3", "--ipv6")
    assert (hop["host"], hop["part"], hop["id"], hop["group"], hop["passes"]) == ("h1", "rule", "r1", "g1", True)
    assert asked[-1] == Question("s1", "p3", version=6)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (ANSWER._replace(wanted="other"), "it arrives at p3, which has an equal address."),
        (
            ANSWER._replace(trace=msgspec.structs.replace(ANSWER.trace, arrives=False, arrived_at=None)),
            "it does not arrive.",
        ),
    ],
)
def test_trace_that_does_not_arrive_has_the_status_1(
    tool: Tool, asked: list[Question], monkeypatch: pytest.MonkeyPatch, answer: Answer, verdict: str
) -> None:
    monkeypatch.setattr(packet_trace, "answer", lambda uow, question: answer)
    assert tool("network", "trace", "s1", "p3", status=1).endswith(verdict)


@pytest.mark.parametrize("words", [["--protocol", "tcp"], ["--port", "80"]])
def test_trace_without_a_port_that_fits_the_protocol_is_refused(
    tool: Tool, asked: list[Question], words: list[str]
) -> None:
    assert "tcp and udp need --port, and icmp has none." in tool.fails("network", "trace", "s1", "p3", *words)
    assert asked == []


def test_trace_of_another_network_service_is_refused(tool: Tool, asked: list[Question]) -> None:
    tool.configure("[network]\nbackend = neutron\n")
    assert "built-in networks only" in tool.fails("network", "trace", "s1", "p3")


# --- probes

LAN = Network(id="n", name="lan", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=5)


def vif(number: int) -> VIF:
    return VIF(id=f"p{number}", mac_address=f"fa:16:3e:00:00:0{number}", address=f"10.0.0.{number}", network=LAN)


HOSTS = [Host(f"h{number}", PortFilters(), {f"s{number}": [vif(number)]}, f"10.9.0.{number}") for number in (2, 3)]
START, END = Place("port", "p2", True), Place("port", "p3", False)
PROBED = Answer(
    Trace(
        packet="10.0.0.2 to 10.0.0.3, ping",
        arrives=True,
        arrived_at="p3",
        hops=[
            Hop(kind="port", host="h2", text="Server s2 sends.", place=START),
            Hop(kind="rule", host="h2", text="Rule r accepts it."),
            Hop(kind="port", host="h3", text="Server s3 gets it.", place=END),
        ],
    ),
    "p3",
    Sending(walk.Cloud(HOSTS), HOSTS[0], HOSTS[0].interfaces[0], Packet(ip.parse("10.0.0.2"), ip.parse("10.0.0.3"))),
)


class Hosts:
    """Compute hosts that have seen a probe at these places. An error instead is raised."""

    def __init__(self, **seen: Any) -> None:
        self.seen, self.probes = seen, []
        self.compute = self

    def probe_packet(self, context: Any, host: str, probe: PacketProbe, timeout: float) -> list[PacketSighting]:
        self.probes.append((host, probe))
        if isinstance(self.seen[host], Exception):
            raise self.seen[host]
        return [PacketSighting(place, "10.0.0.2", "10.0.0.3") for place in self.seen[host]]


def probed(tool: Tool, monkeypatch: pytest.MonkeyPatch, answer: Answer = PROBED, **seen: Any) -> Hosts:
    tool("db", "sync")
    monkeypatch.setattr(packet_trace, "answer", lambda uow, question: answer)
    hosts = Hosts(**seen)
    monkeypatch.setattr(App, "servers", hosts)
    return hosts


def test_probe_is_looked_for_on_each_host_and_seen_at_hops(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = probed(tool, monkeypatch, h2=[START], h3=[END])
    found = tool.json("network", "trace", "s2", "s3", "--probe")
    assert [row["seen"] for row in found] == [True, None, True]
    assert sorted(host for host, _ in hosts.probes) == ["h2", "h3"]
    (first, second) = (probe for _, probe in hosts.probes)
    assert first == second
    assert (first.instance_uuid, first.port_id, first.neighbour) == ("s2", "p2", "fa:16:3e:00:00:03")
    assert tool("network", "trace", "s2", "s3", "--probe").endswith("The model and the probe agree.")
    assert hosts.probes[-1][1].mark != first.mark
    assert "seen" not in tool.json("network", "trace", "s2", "s3")[0]


def test_probe_with_another_way_has_the_status_2(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    probed(tool, monkeypatch, h2=[START], h3=[])
    text = tool("network", "trace", "s2", "s3", "--probe", status=2)
    assert text.endswith(
        "The model: Server s3 gets it. The probe came from port p2 on h2, from 10.0.0.2 to 10.0.0.3, and was not seen "
        "any more."
    )


def test_host_that_does_not_answer_a_probe_is_named(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = exceptions.MessagingUnavailable(what="probe_packet", reason="x")
    probed(tool, monkeypatch, h2=[START], h3=lost)
    assert "Host h3 does not look for the probe: The control plane" in tool("network", "trace", "s2", "s3", "--probe")
    probed(tool, monkeypatch, h2=lost, h3=[])
    assert "did not answer" in tool.fails("network", "trace", "s2", "s3", "--probe")


@pytest.mark.parametrize(
    ("sending", "reason"),
    [
        (None, "the source is none"),
        (
            PROBED.sending._replace(packet=Packet(ip.parse("10.0.0.2"), ip.parse("10.0.0.9"))),
            "the guest sends no packet",
        ),
    ],
)
def test_probe_without_a_packet_of_a_port_is_refused(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, sending: Sending | None, reason: str
) -> None:
    hosts = probed(tool, monkeypatch, PROBED._replace(sending=sending), h2=[], h3=[])
    assert reason in tool.fails("network", "trace", "s2", "s3", "--probe")
    assert hosts.probes == []
