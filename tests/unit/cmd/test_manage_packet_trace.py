"""``nova-lite-manage network trace``."""

from __future__ import annotations

import msgspec
import pytest

from nova_lite.db.network import packet_trace
from nova_lite.db.network.packet_trace import Answer, Question
from nova_lite.network.trace.packets import Hop, Trace
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
