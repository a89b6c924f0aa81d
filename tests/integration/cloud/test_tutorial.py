"""The tutorial for users, executed command by command on the stacked cloud."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cloud.conftest import StackedCloud, wait_for

PAGE = Path(__file__).resolve().parents[3] / "docs/tutorial/first-cloud.md"

#: Commands of the page that prepare or remove the machine's cloud. The test stage runs them around these tests.
ELSEWHERE = re.compile(r"(git clone|cd nova_lite|(sudo )?devstack/(stack|unstack|service)\.sh|sudo -i$)")

#: Servers that the page creates.
SERVERS = ("one", "two")


def blocks() -> Iterator[tuple[str, str]]:
    """Yield language and text of each code block of the page."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the page's commands that run on an existing cloud, in order."""
    found = []
    for language, text in blocks():
        if language == "python":
            found.append(f"python - <<'END'\n{text}END")
        else:
            lines = [line.split("   # ")[0].strip() for line in text.splitlines() if line.strip()]
            found += [line.removeprefix("sudo ") for line in lines if not ELSEWHERE.match(line)]
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
            ["bash", "-c", script], capture_output=True, text=True, timeout=300, env=os.environ, check=False
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

    wait_for("the server has no task", has_no_task)


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
    for command in commands():
        command = filled(shell, command)
        if command.startswith("ping "):
            continue  # the page says that it may fail until the rule below is there
        if re.match(r"openstack server (stop|start|reboot|resize|delete) ", command):
            settle(shell)
        shell.output(command)
        done.append(command)
        if command.startswith("openstack security group rule create"):
            wait_for("the guest answers pings", lambda: answers_pings(cloud, shell))
    assert [command for command in done if command.startswith("openstack server create")]
    assert "openstack server list" in done
