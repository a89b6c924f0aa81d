"""Fence methods: their file, and how a host is switched off for certain."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.fence import methods
from nova_lite.fence.agent import FenceAgent, Power
from nova_lite.fence.methods import Method

TIMING = ConductorTiming(fence_wait=0.05, fence_poll=0.01)

#: User who owns nothing.
NOBODY = 65534


class Agent(FenceAgent):
    """An agent. ``looks``: what it reads, one after the other; the last one repeats. ``fails``: its calls fail."""

    def __init__(self, *looks: Power, fails: Exception | None = None) -> None:
        super().__init__({})
        self.looks, self.fails, self.switched = list(looks), fails, 0

    def off(self, seconds: float) -> None:
        self.switched += 1

    def power(self, seconds: float) -> Power:
        if self.fails is not None:
            raise self.fails
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def off(*agents: Agent) -> str:
    return methods.switch_off("c1", [Method(str(number), agent) for number, agent in enumerate(agents, 1)], TIMING)


def test_host_is_off_when_its_power_says_so() -> None:
    agent = Agent(Power.ON, Power.ON, Power.OFF)
    assert off(agent) == "1"
    assert agent.switched == 1


def test_host_that_is_off_already_is_not_switched() -> None:
    agent = Agent(Power.OFF)
    assert off(agent) == "1"
    assert agent.switched == 0


def test_agent_that_lies_is_not_believed_and_the_second_method_is_tried() -> None:
    liar, second = Agent(Power.ON), Agent(Power.ON, Power.OFF)
    assert off(liar, second) == "2"
    with pytest.raises(exceptions.FenceFailed, match="1: the host is on, although"):
        off(liar)


@pytest.mark.parametrize("error", [exceptions.FenceFailed(reason="it hangs"), ZeroDivisionError("a defect")])
def test_agent_that_fails_keeps_no_other_method_back(error: Exception) -> None:
    assert off(Agent(fails=error), Agent(Power.OFF)) == "2"
    with pytest.raises(exceptions.FenceFailed, match=r"it hangs|a defect"):
        off(Agent(fails=error))
    assert methods.test([Method("1", Agent(fails=error))])[0].error
    assert methods.test([Method("1", Agent(Power.ON))]) == [methods.Check("1", "on", "")]


def test_host_that_returns_while_its_first_method_fails_is_not_switched_off() -> None:
    liar, second = Agent(Power.ON), Agent(Power.ON, Power.OFF)
    looks = iter([False])
    with pytest.raises(exceptions.FenceFailed, match="although it was switched off; it is not lost any more"):
        methods.switch_off("c1", [Method("1", liar), Method("2", second)], TIMING, lambda: next(looks))
    assert second.switched == 0


def test_host_without_a_method_is_not_off() -> None:
    with pytest.raises(exceptions.FenceFailed, match="no fence method"):
        off()


def write(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_methods_of_the_file_are_in_order(tmp_path: Path) -> None:
    text = """
c1:
- {agent: redfish, url: "https://192.0.2.1", system: /redfish/v1/Systems/1, username: u, password_file: /p}
- {agent: script, program: /usr/local/bin/fence, target: c1}
"""
    found = methods.load(write(tmp_path / "fencing.yaml", text))
    assert [method.name for method in found["c1"]] == ["1. redfish", "2. script"]
    assert methods.load(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "no YAML"),
        ("[a]", "must name hosts"),
        ("c1: redfish", "list of methods"),
        ("c1: [{url: x}]", "list of methods"),
        ("c1: [{agent: ssh}]", "unknown ssh"),
        ("c1: [{agent: script, target: c1}]", "host c1: Script needs the setting program"),
        ("c1: [{agent: script, program: /p, target: c1, user: x}]", "has no setting user"),
        ("c1: [{agent: script, program: p, target: c1}]", "value of program is wrong"),
    ],
)
def test_mistake_in_the_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=words) as raised:
        methods.load(write(tmp_path / "fencing.yaml", text))
    assert "\n" not in str(raised.value)


def test_file_that_others_may_read_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="others may read"):
        methods.load(write(tmp_path / "fencing.yaml", "{}", 0o644))
    with pytest.raises(exceptions.ConfigurationError, match="No such file"):
        methods.load(str(tmp_path / "none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_file_that_the_conductor_cannot_read_is_named_with_the_right_owner_and_mode() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        path = write(Path(directory) / "fencing.yaml", "{}", 0o600)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(exceptions.ConfigurationError, match=r"its group to that of the conductor.*0640"):
                methods.load(path)
        finally:
            os.seteuid(0)
