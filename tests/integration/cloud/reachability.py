"""Guests on two networks, a machine outside, and a table of who reaches whom."""

from __future__ import annotations

import base64
import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.integration.cloud.conftest import StackedCloud
from tests.support.waiting import wait_for

#: The machine outside, and the addresses of the first and the second host in its network.
OUTSIDE, FIRST, SECOND = "198.51.100.1", "198.51.100.2", "198.51.100.3"
SPACE, BRIDGE, SECOND_LINK = "nlt-outside", "nl-hosts", "nl-host2"
#: The guest tries all targets at once and prints a line per round.
TRIES = """#!/bin/sh
round=0
while :; do
    round=$((round + 1))
    for target in {targets}; do
        (ping -c 1 -W 1 "${{target#*=}}" >/dev/null 2>&1 && echo yes >"/run/${{target%%=*}}" ||
            echo no >"/run/${{target%%=*}}") &
    done
    wait
    line="round $round"
    for target in {targets}; do line="$line ${{target%%=*}}=$(cat "/run/${{target%%=*}}")"; done
    echo "$line done"
    usleep 300000
done
"""
FROM_OUTSIDE = "outside→floating"
ROUND = re.compile(r"^round \d+ (.*) done\r?$", re.MULTILINE)


def user_data(targets: dict[str, str]) -> str:
    """Return the script of a guest that tries these addresses by name."""
    listed = " ".join(f"{name}={address}" for name, address in targets.items())
    return base64.b64encode(TRIES.format(targets=listed).encode()).decode()


@contextlib.contextmanager
def outside(cloud: StackedCloud, pool: str) -> Iterator[Callable[[str], bool]]:
    """Yield a function that checks whether a machine outside reaches an address.

    Both hosts are in its network. Each routes the addresses of the pool that it does not have to the other one.
    """
    second = list(cloud.entered)[1]
    run("ip", "netns", "add", SPACE)
    try:
        run("ip", "link", "add", SPACE, "type", "veth", "peer", "name", "eth0", "netns", SPACE)
        run("ip", "link", "set", SPACE, "master", BRIDGE, "up")
        run("ip", "address", "add", f"{FIRST}/24", "dev", BRIDGE)
        run("ip", "route", "add", pool, "via", SECOND)
        cloud.on(second, "ip", "address", "add", f"{SECOND}/24", "dev", "eth0")
        cloud.on(second, "ip", "route", "add", pool, "via", FIRST)
        for command in (f"address add {OUTSIDE}/24 dev eth0", "link set eth0 up", f"route add {pool} dev eth0"):
            run("ip", "-n", SPACE, *command.split())

        def reaches(address: str) -> bool:
            # A host announces no address on its loopback device: the network forgets where it was.
            run("ip", "-n", SPACE, "neigh", "flush", "dev", "eth0")
            command = ("ip", "netns", "exec", SPACE, "ping", "-q", "-c", "1", "-W", "1", address)
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        yield reaches
    finally:
        for enter, device, address in (((), BRIDGE, FIRST), (cloud.entered[second], "eth0", SECOND)):
            for command in (f"route delete {pool}", f"address delete {address}/24 dev {device}"):
                subprocess.run([*enter, "ip", *command.split()], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", SPACE], capture_output=True, check=False)


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=60, capture_output=True)


class Table:
    """Table of who reaches whom after each call."""

    def __init__(self, cloud: StackedCloud, reaches: Callable[[str], bool], floating: str) -> None:
        self._cloud, self._reaches, self._floating = cloud, reaches, floating
        self.guests: dict[str, Any] = {}
        self.rows: list[tuple[str, dict[str, bool]]] = []

    def rounds(self, name: str) -> list[dict[str, bool]]:
        """Return what a guest has found so far, oldest first."""
        log = str(self._cloud.compute.get_server_console_output(self.guests[name].id)["output"])
        return [
            {f"{name}→{target}": answer == "yes" for target, answer in re.findall(r"(\w+)=(\w+)", line)}
            for line in ROUND.findall(log)
        ]

    def after(self, call: str, expected: dict[str, bool], *, without: str = "") -> None:
        """Wait until a round of all guests, and the machine outside, find what is expected.

        ``without``: the guest that does not run.
        """
        names = [name for name in self.guests if name != without]
        seen = {name: len(self.rounds(name)) for name in names}

        def found() -> dict[str, bool]:
            answers: dict[str, bool] = {}
            for name in names:
                # The first of them may have begun before the call.
                rounds = self.rounds(name)[seen[name] + 1 :]
                if not rounds:
                    return {}
                answers |= rounds[-1]
            return answers | {FROM_OUTSIDE: self._reaches(self._floating)}

        last: dict[str, bool] = {}

        def as_expected() -> bool:
            last.update(found())
            return {key: last.get(key) for key in expected} == expected

        try:
            wait_for(call, as_expected, timeout=40)
        finally:
            self.rows.append((call, dict(last)))

    def text(self) -> str:
        columns = list(dict.fromkeys(key for _, row in self.rows for key in row))
        lines = [["After", *columns]]
        for call, row in self.rows:
            lines.append([call, *({True: "yes", False: "no", None: ""}[row.get(column)] for column in columns)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
