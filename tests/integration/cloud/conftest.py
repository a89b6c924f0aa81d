"""The cloud that devstack/stack.sh makes of this machine, as its users and its operator see it.

devstack/test.sh stacks the machine first; elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

TOP = Path(__file__).parents[3]
SETTINGS = Path("/etc/nova-lite/devstack.env")
STATE = Path("/var/lib/nova-lite")
LIBVIRT_NETWORKS = Path("/var/lib/libvirt/dnsmasq")
PREFIX = "nova-lite-it-"
GUEST_LINE = re.compile(r"^nova-lite-guest: instance=(\S+) hostname=(\S+) ip=(\S+)$", re.MULTILINE)
PATIENCE = 120.0
VIRSH = ("virsh", "--connect", "qemu:///system", "--quiet")


def wait_for(what: str, check: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first true answer of ``check``, asked until ``timeout`` seconds have passed."""
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.5)
    return answer


def run(*command: str) -> str:
    """Standard output of a command that has to succeed."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


class StackedCloud:
    """Clients of the cloud, and looks behind it."""

    def __init__(self) -> None:
        connection = openstack.connect(cloud="nova-lite")
        self.compute: Any = connection.compute
        self.images: Any = connection.image

    def cli(self, *arguments: str) -> Any:
        """The unmodified command line client's JSON."""
        return json.loads(run("openstack", "--os-cloud", "nova-lite", *arguments, "-f", "json"))

    def cli_quiet(self, *arguments: str) -> None:
        run("openstack", "--os-cloud", "nova-lite", *arguments)

    def manage(self, *arguments: str) -> Any:
        return json.loads(run("nova-lite-manage", *arguments, "--format", "json"))

    def service(self, verb: str, name: str) -> None:
        run(str(TOP / "devstack/service.sh"), verb, name)

    def image(self, name: str) -> str:
        return str(next(image.id for image in self.images.images() if image.name == name))

    def create(self, name: str, image: str = "nova-lite-guest", **body: Any) -> Any:
        return self.compute.create_server(
            name=PREFIX + name, image_id=self.image(image), flavor_id="42", **{"networks": "auto", **body}
        )

    def servers(self) -> list[Any]:
        """Those of these tests."""
        return list(self.compute.servers(name=f"^{PREFIX}"))

    def wait_status(self, server_id: str, status: str) -> Any:
        """The server, once nothing is being done to it and it is ``status``; any other outcome fails."""

        def settled() -> Any:
            server = self.compute.get_server(server_id)
            return server if not server.task_state and server.status in (status, "ERROR") else None

        server = wait_for(f"{server_id} is {status}", settled)
        assert server.status == status, server.fault
        return server

    def guest_lines(self, server_id: str) -> list[tuple[str, ...]]:
        """What the guest says of itself, each time it boots: uuid, host name, address. At least once."""

        def said() -> list[tuple[str, ...]]:
            output = self.compute.get_server_console_output(server_id)["output"].replace("\r", "")
            return GUEST_LINE.findall(output)

        lines: list[tuple[str, ...]] = wait_for(f"{server_id} says who it is", said)
        return lines

    def delete(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.compute.delete_server(server_id)
        gone = set(server_ids)
        wait_for("deletes are done", lambda: not gone & {server.id for server in self.compute.servers()})

    # --- behind it

    def traces(self) -> dict[str, Any]:
        """All that servers of this cloud take: compared before and after, it tells whether something was left. What
        others have on the same libvirtd and in the same kernel is left out."""
        (network,) = (network for network in self.manage("network", "list") if network["name"] == "private")
        return {
            "domains": sorted(self.domains()),
            "disks": sorted(path.name for path in STATE.glob("**/instances/*") if not path.name.startswith("_")),
            "taps": sorted(
                line.split()[0] for line in run("ip", "-br", "link", "show", "master", network["bridge"]).splitlines()
            ),
            "reservations": sorted(path.name for path in LIBVIRT_NETWORKS.glob(f"nova-lite-{network['id']}.d/*")),
            "used": [{key: value for key, value in host.items() if "used" in key} for host in self.hosts()],
            "limits": self.used_limits(),
        }

    def hosts(self) -> list[dict[str, Any]]:
        hosts: list[dict[str, Any]] = self.manage("host", "list")
        return hosts

    def domains(self) -> list[str]:
        """Uuids of this cloud's domains, by the host name that their metadata tell."""
        names = {host["host"] for host in self.hosts()}
        found = []
        for uuid in run(*VIRSH, "list", "--all", "--uuid").split():
            command = (*VIRSH, "metadata", uuid, "urn:nova-lite:instance:1")
            metadata = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if names & set(re.findall(r"host>([^<]+)<", metadata)):
                found.append(uuid)
        return found

    def used_limits(self) -> dict[str, int]:
        absolute = self.compute.get("/limits").json()["limits"]["absolute"]
        return {key: value for key, value in absolute.items() if key.startswith("total") and key.endswith("Used")}

    def audit(self) -> list[Any]:
        """What is wrong between rows."""
        result = subprocess.run(
            ["nova-lite-manage", "audit", "--format", "json"], capture_output=True, text=True, check=False
        )
        assert not result.stderr, result.stderr
        problems: list[Any] = json.loads(result.stdout)
        return problems


@pytest.fixture(scope="session")
def stacked() -> StackedCloud:
    if not SETTINGS.exists():
        pytest.skip("this machine is no cloud (devstack/test.sh makes it one)")
    if "VIRT_DRIVER=libvirt" not in SETTINGS.read_text():
        pytest.skip("this machine is a cloud without real guests")
    return StackedCloud()


@pytest.fixture
def cloud(stacked: StackedCloud) -> Iterator[StackedCloud]:
    """The cloud; the test's servers are deleted at its end, and then nothing of them may be left."""
    stacked.delete(*(server.id for server in stacked.servers()))
    before = stacked.traces()
    yield stacked
    stacked.delete(*(server.id for server in stacked.servers()))
    deadline = time.monotonic() + 15
    while (after := stacked.traces()) != before:
        assert time.monotonic() < deadline, f"left: {after}, before: {before}"
    assert stacked.audit() == []
