"""The cloud that devstack/stack.sh makes of this machine, as its users and its operator see it.

devstack/test.sh stacks the machine first; elsewhere these tests are skipped.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

from tests.integration.cloud import transcript
from tests.support.waiting import wait_for, wait_for_none

TOP = Path(__file__).parents[3]
SETTINGS = Path("/etc/nova-lite/devstack.env")
STATE = Path("/var/lib/nova-lite")
LIBVIRT_NETWORKS = "/var/lib/libvirt/dnsmasq"
PREFIX = "nova-lite-it-"
GUEST_LINE = re.compile(r"^nova-lite-guest: instance=(\S+) hostname=(\S+) ip=(\S+)$", re.MULTILINE)
PATIENCE = 300.0
VIRSH = ("virsh", "--connect", "qemu:///system", "--quiet")
LIBVIRT_HOST = "/opt/nova-lite/libvirt-host.sh"


def run(*command: str) -> str:
    """Return the standard output of a command that has to succeed."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


class StackedCloud:
    """Clients of the cloud, and looks behind it."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        connection = openstack.connect(cloud="nova-lite")
        self.compute: Any = connection.compute
        self.images: Any = connection.image
        self.networks: Any = connection.network
        #: Traces of the cloud while no test has a server.
        self.untouched: dict[str, Any] | None = None
        #: Compute hosts by name, with what leads a command there.
        self.entered: dict[str, tuple[str, ...]] = {socket.gethostname(): ()}
        if (computes := int(re.findall(r"^COMPUTES=(\d+)$", SETTINGS.read_text(), re.MULTILINE)[0])) > 1:
            self.entered = {f"{socket.gethostname()}-1": ()}
            for number in range(2, computes + 1):
                self.entered[f"{socket.gethostname()}-{number}"] = (LIBVIRT_HOST, "enter", str(number))

    def cli(self, *arguments: str) -> Any:
        """Return the JSON output of the command line client."""
        return json.loads(self.cli_quiet(*arguments, "-f", "json"))

    def cli_quiet(self, *arguments: str) -> str:
        status, output, errors = self.client.run(shlex.join(arguments))
        assert status == 0, f"openstack {arguments}: {output}{errors}"
        return output

    @functools.cached_property
    def client(self) -> transcript.Client:
        return self._closing.enter_context(transcript.Client(["--os-cloud", "nova-lite"], {}))

    def close(self) -> None:
        self._closing.close()

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
        """Return the servers of these tests."""
        return list(self.compute.servers(name=f"^{PREFIX}"))

    def wait_status(self, server_id: str, status: str) -> Any:
        """Return the server once it has no task and is ``status``; any other outcome fails."""

        def settled() -> Any:
            server = self.compute.get_server(server_id)
            return server if not server.task_state and server.status in (status, "ERROR") else None

        server = wait_for(f"{server_id} is {status}", settled, PATIENCE, 0.5)
        assert server.status == status, server.fault
        return server

    def guest_lines(self, server_id: str) -> list[tuple[str, ...]]:
        """Return the guest's reports of uuid, host name and address, one per boot. There has to be at least one."""

        def said() -> list[tuple[str, ...]]:
            output = self.compute.get_server_console_output(server_id)["output"].replace("\r", "")
            return GUEST_LINE.findall(output)

        lines: list[tuple[str, ...]] = wait_for(f"{server_id} says who it is", said, PATIENCE, 0.5)
        return lines

    def delete(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.compute.delete_server(server_id)
        gone = set(server_ids)
        wait_for("deletes are done", lambda: not gone & {server.id for server in self.compute.servers()}, PATIENCE, 0.5)

    def sweep(self) -> None:
        """Delete what these tests have made, also in a run that broke off: there may be several things of one name."""
        self.delete(*(server.id for server in self.servers()))
        for image in [image for image in self.images.images() if (image.name or "").startswith(PREFIX)]:
            self.images.delete_image(image.id)

    # --- behind it

    def traces(self) -> dict[str, Any]:
        """Return everything that servers of this cloud occupy, to be compared before and after. Other users' things
        on the same libvirtd and kernel are left out.
        """
        return {
            "domains": sorted(uuid for host in self.entered for uuid in self.domains(host)),
            "disks": sorted(path.name for path in STATE.glob("**/instances/*") if not re.search("^_|@", path.name)),
            "taps": {host: self.taps(host) for host in self.entered},
            "reservations": {host: self.reservations(host) for host in self.entered},
            "used": [{key: value for key, value in host.items() if "used" in key} for host in self.hosts()],
            "limits": self.used_limits(),
        }

    def hosts(self) -> list[dict[str, Any]]:
        hosts: list[dict[str, Any]] = self.manage("host", "list")
        return hosts

    def on(self, host: str, *command: str) -> str:
        """Run a command on a compute host, which may have its own namespaces."""
        return run(*self.entered[host], *command)

    def domains(self, host: str) -> list[str]:
        """Return the uuids of this cloud's domains on the host, by the host name in their metadata."""
        found = []
        for uuid in self.on(host, *VIRSH, "list", "--all", "--uuid").split():
            command = (*self.entered[host], *VIRSH, "metadata", uuid, "urn:nova-lite:instance:1")
            metadata = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if self.entered.keys() & set(re.findall(r"host>([^<]+)<", metadata)):
                found.append(uuid)
        return found

    def where(self, server_id: str) -> dict[str, str]:
        """State of the server's domain on each host that has one."""
        return {
            host: self.on(host, *VIRSH, "domstate", server_id).strip()
            for host in self.entered
            if server_id in self.domains(host)
        }

    def taps(self, host: str) -> list[str]:
        bridge = self.network["bridge"]
        lines = self.on(host, "ip", "-br", "link").splitlines()
        if not any(line.split()[0] == bridge for line in lines):
            return []  # no guest has been there yet
        lines = self.on(host, "ip", "-br", "link", "show", "master", bridge).splitlines()
        return sorted(line.split()[0] for line in lines if line.startswith("tap"))

    def reservations(self, host: str) -> list[str]:
        pattern = f"*/nova-lite-{self.network['id']}.d/*"
        return sorted(self.on(host, "find", LIBVIRT_NETWORKS, "-path", pattern, "-printf", "%f\n").split())

    @functools.cached_property
    def network(self) -> dict[str, Any]:
        return next(network for network in self.manage("network", "list") if network["name"] == "private")

    def used_limits(self) -> dict[str, int]:
        absolute = self.compute.get("/limits").json()["limits"]["absolute"]
        return {key: value for key, value in absolute.items() if key.startswith("total") and key.endswith("Used")}

    def audit(self) -> list[Any]:
        """Return the problems of the audit."""
        result = subprocess.run(
            ["nova-lite-manage", "audit", "--format", "json"], capture_output=True, text=True, check=False
        )
        assert not result.stderr, result.stderr
        problems: list[Any] = json.loads(result.stdout)
        return problems


@pytest.fixture(scope="session")
def stacked() -> Iterator[StackedCloud]:
    if not SETTINGS.exists():
        pytest.skip("this machine is no cloud (devstack/test.sh makes it one)")
    if "VIRT_DRIVER=libvirt" not in SETTINGS.read_text():
        pytest.skip("this machine is a cloud without real guests")
    made = StackedCloud()
    yield made
    made.close()


@pytest.fixture
def cloud(stacked: StackedCloud) -> Iterator[StackedCloud]:
    """Provide the cloud. Afterwards delete the test's servers and compare the traces with those before the first
    test.
    """
    if stacked.untouched is None:
        stacked.sweep()
        stacked.untouched = stacked.traces()
    before, stacked.untouched = stacked.untouched, None
    yield stacked
    stacked.sweep()
    wait_for_none(f"only {before} is left", lambda: [now for now in [stacked.traces()] if now != before], 60)
    assert stacked.audit() == []
    stacked.untouched = before
