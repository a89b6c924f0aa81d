"""A host is cut off the network during builds, for longer than a host may be silent, and returns. Nothing runs
twice, and everything settles.

Its daemon runs in its own network namespace, whose link is taken down: packets are lost without notice.
"""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.support.waiting import wait_for

CUT_OFF = "compute-1"
#: Addresses of the links between namespaces: from the range for benchmarks (RFC 2544), which no network uses.
RANGE = ipaddress.IPv4Network("198.19.0.0/16")
COUNT = 10


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


class Link:
    """A network namespace ``name`` with one way out, at the address ``outer``.

    Its addresses are its own, so that the link of a test that was killed does not take its packets.
    """

    def __init__(self) -> None:
        chance = uuid.uuid4()
        self.name = f"nlt-{chance.hex[:8]}"
        first = RANGE.network_address + chance.int % (RANGE.num_addresses // 4) * 4
        self.outer, self._inner = str(first + 1), str(first + 2)

    def make(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "name", "inner", "netns", self.name)
        ip("address", "add", f"{self.outer}/30", "dev", self.name)
        ip("link", "set", self.name, "up")
        for command in (
            ["address", "add", f"{self._inner}/30", "dev", "inner"],
            ["link", "set", "inner", "up"],
            ["link", "set", "lo", "up"],
        ):
            ip("-n", self.name, *command)

    def set(self, state: str) -> None:
        """``up`` or ``down``, at the host's end, so that the address here stays."""
        ip("-n", self.name, "link", "set", "inner", state)

    def destroy(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "delete", self.name)


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    try:
        try:
            made.make()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespace can be made here: {getattr(error, 'stderr', '') or error}")
        yield made
    finally:
        made.destroy()


def test_a_host_is_cut_off_while_it_builds(tmp_path: Path, link: Link) -> None:
    running = cloud.Cloud(tmp_path, computes=2, quota=-1)

    def watch(what: str, condition: Callable[[], Any]) -> None:
        """Wait, with a look at all hypervisors each time: an instance on two fails."""
        wait_for(what, lambda: running.domains() is not None and condition(), 90)

    def state() -> str:
        services = running.request("GET", "/os-services?binary=nova-compute").json()["services"]
        return str({item["host"]: item["state"] for item in services}[CUT_OFF])

    with Proxy(running.broker_port, link.outer) as proxy:
        try:
            running.make()
            config = tmp_path / f"{CUT_OFF}.conf"
            here = f"@127.0.0.1:{running.broker_port}/"
            config.write_text(config.read_text().replace(here, f"@{link.outer}:{proxy.port}/"))
            running.prefixes[CUT_OFF] = ["ip", "netns", "exec", link.name]
            running.start_all()
            for host in running.computes:
                running.control_host(host, spawn_delay=5.0)

            ids = running.create(count=COUNT)
            watch("the host has begun", lambda: CUT_OFF in hosts_of_builds(running, "spawning"))
            link.set("down")
            assert CUT_OFF in hosts_of_builds(running, "spawning")
            watch("the host counts as down", lambda: state() == "down")
            watch("the other host's are done", lambda: {CUT_OFF} >= hosts_of_builds(running))
            link.set("up")
            watch("the host is back", lambda: state() == "up")
            watch("all are ACTIVE", lambda: {item["status"] for item in running.servers()} == {"ACTIVE"})

            found = running.wait_active(ids)
            assert running.domains() == {key: item["OS-EXT-SRV-ATTR:host"] for key, item in found.items()}
            running.delete_all()
            wait_for("nothing is left", lambda: running.domains() == {})
            running.audit()
        finally:
            running.destroy()


def hosts_of_builds(running: cloud.Cloud, *tasks: str) -> set[str]:
    """Return the hosts that build servers in one of these task states, or in any."""
    return {
        item["OS-EXT-SRV-ATTR:host"]
        for item in running.servers()
        if item["status"] == "BUILD" and (not tasks or item["OS-EXT-STS:task_state"] in tasks)
    }
