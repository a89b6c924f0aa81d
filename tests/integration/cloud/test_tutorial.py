"""The tutorials for users and for operators, executed command by command on the stacked cloud."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cloud.conftest import PATIENCE, StackedCloud
from tests.support.waiting import wait_for

TOP = Path(__file__).resolve().parents[3]
TUTORIALS = TOP / "docs/tutorial"

#: Commands of the pages that prepare or remove the machine's cloud. The test stage runs them around these tests.
ELSEWHERE = re.compile(r"(git clone|cd \S*nova_lite|(sudo )?devstack/(stack|unstack)\.sh|sudo -i$)")

#: Servers that the first page creates.
SERVERS = ("one", "two")
#: Servers that the second page creates.
MANY = tuple(f"many-{number}" for number in range(1, 6))

#: Commands that would stop the broker for all programs on this machine, and what stops it for this cloud alone.
FOR_THIS_CLOUD = {
    "rabbitmqctl stop_app": (
        """rabbitmqctl set_vhost_limits -p nova-lite '{"max-connections": 0}'"""
        " && rabbitmqctl close_all_connections --vhost nova-lite stopped"
    ),
    "rabbitmqctl start_app": "rabbitmqctl clear_vhost_limits -p nova-lite",
}


def commands(page: str) -> list[tuple[str, str]]:
    """Return the page's commands that run on an existing cloud, in order, each with the remark behind it."""
    found = []
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", (TUTORIALS / page).read_text(), re.MULTILINE | re.DOTALL):
        if language == "python":
            found.append((f"python - <<'END'\n{text}END", ""))
            continue
        for line in filter(str.strip, text.splitlines()):
            command, _, remark = line.partition("   # ")
            if not ELSEWHERE.match(command):
                found.append((command.strip().removeprefix("sudo "), remark.strip()))
    return found


class Shell:
    """A root shell whose commands keep its variables, as a reader's does."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command after all variable assignments so far."""
        script = "\n".join([*self.lines, command])
        if re.match(r"(export )?\w+=", command):
            self.lines.append(command)
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=300, env=os.environ, check=False, cwd=TOP
        )

    def output(self, command: str) -> str:
        """Return the output of a command that has to succeed."""
        done = self.run(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(cloud: StackedCloud) -> Iterator[Shell]:
    """Provide a shell, and remove what the page's reader would leave."""
    admin = "openstack --os-cloud nova-lite"
    shell = Shell()
    listing = f"{admin} security group rule list default -f value -c ID"
    rules = set(shell.output(listing).split())
    yield shell
    for name in SERVERS:
        shell.run(f"{admin} server delete --wait {name}")
    for rule in set(shell.output(listing).split()) - rules:
        shell.output(f"{admin} security group rule delete {rule}")


def filled(shell: Shell, command: str) -> str:
    """Replace the placeholders of a command by the values that the page names."""
    if "ADDRESS" in command:
        server = json.loads(shell.output("openstack server show one -f json"))
        command = command.replace("ADDRESS", server["addresses"]["private"][0])
    if "REQUEST-ID" in command:
        events = json.loads(shell.output("openstack server event list one -f json"))
        command = command.replace("REQUEST-ID", events[-1]["Request ID"])
    return command


def settle(shell: Shell) -> None:
    """Wait until the server has no task, as a reader does before the next action."""

    def has_no_task() -> bool:
        server = json.loads(shell.output("openstack server show one -f json"))
        return server["OS-EXT-STS:task_state"] in (None, "None")

    wait_for("the server has no task", has_no_task, PATIENCE, 0.5)


def answers_pings(cloud: StackedCloud, shell: Shell) -> bool:
    """Return whether the guest answers a ping of its host. The page has one host; here, each has its own bridge."""
    server = json.loads(shell.output("openstack server show one -f json"))
    try:
        cloud.on(server["OS-EXT-SRV-ATTR:host"], *f"ping -c 1 -W 2 {server['addresses']['private'][0]}".split())
    except AssertionError:
        return False
    return True


def test_tutorial_commands_succeed_in_their_order(cloud: StackedCloud, shell: Shell) -> None:
    done = []
    for command, _ in commands("first-cloud.md"):
        command = filled(shell, command)
        if command.startswith("ping "):
            continue  # the page says that it may fail until the rule below is there
        if re.match(r"openstack server (stop|start|reboot|resize|delete) ", command):
            settle(shell)
        shell.output(command)
        done.append(command)
        if command.startswith("openstack security group rule create"):
            wait_for("the guest answers pings", lambda: answers_pings(cloud, shell), PATIENCE, 0.5)
    assert [command for command in done if command.startswith("openstack server create")]
    assert "openstack server list" in done


@pytest.fixture
def operator(cloud: StackedCloud) -> Iterator[Shell]:
    """Provide the operator's shell. Afterwards broker, daemons and servers are as before, also if the test fails."""
    shell = Shell()
    yield shell
    shell.run(FOR_THIS_CLOUD["rabbitmqctl start_app"])
    shell.output("devstack/service.sh start all")
    for name in MANY:
        shell.run(f"openstack --os-cloud nova-lite server delete --wait {name}")


def statuses(listing: str) -> list[str]:
    """Return the statuses of the second page's servers in the output of ``openstack server list``."""
    return re.findall(r"\| many-\d +\| (\w+) ", listing)


#: Checks of the output that the second page's "repeat until" remarks name.
FULFILLED: dict[str, Callable[[str], bool]] = {
    "all five are ACTIVE": lambda output: statuses(output) == ["ACTIVE"] * 5,
    "three are SHUTOFF": lambda output: sorted(statuses(output)) == ["ACTIVE"] * 2 + ["SHUTOFF"] * 3,
    "two are SHUTOFF": lambda output: sorted(statuses(output)) == ["ACTIVE"] * 3 + ["SHUTOFF"] * 2,
    "the host is down": lambda output: re.search(r"compute.*\bdown\b", output) is not None,
    "many-4 is gone": lambda output: "many-4" not in output,
    "it succeeds": lambda output: True,
}


def repeat(shell: Shell, command: str, result: str) -> None:
    """Run a command until it succeeds and shows the result that the page names."""

    def shows_result() -> bool:
        done = shell.run(command)
        return done.returncode == 0 and FULFILLED[result](done.stdout)

    wait_for(f"{command}: {result}", shows_result, PATIENCE, 0.5)


def test_operators_tutorial_killed_daemons_lose_nothing(operator: Shell) -> None:
    done = []
    for command, remark in commands("kill-a-daemon.md"):
        command = FOR_THIS_CLOUD.get(command, command)
        done.append(command)
        if remark.startswith("repeat until "):
            repeat(operator, command, remark.removeprefix("repeat until "))
        elif remark == "fails":
            failed = operator.run(command)
            assert failed.returncode != 0 and "503" in failed.stderr, failed
        elif remark == "":
            operator.output(command)
        else:
            raise AssertionError(f"the test does not know the remark of {command!r}: {remark!r}")
    assert [command for command in done if " kill compute" in command]

    def nothing_is_open() -> bool:
        metrics = operator.output("curl -s http://127.0.0.1:9770/metrics")
        # The conductor that repeated the builds was killed, and its count with it. This one may have repeated nothing.
        assert "\n# TYPE nova_lite_action_retries_total counter\n" in metrics
        return set(re.findall(r"^nova_lite_actions_open\{.*\} (\S+)$", metrics, re.MULTILINE)) <= {"0.0"}

    wait_for("no action is open", nothing_is_open, PATIENCE, 0.5)
