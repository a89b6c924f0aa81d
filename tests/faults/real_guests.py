"""Faults while real guests are created, stopped, started and deleted: libvirt, qemu, and dying daemons.

A private cloud has one compute daemon on this machine's libvirtd, with a host name, network and bridge of its own.
Cases and judges are those of the matrix; libvirt's state replaces the fake hypervisors' files. In addition guests
die (their qemu is killed).

``python -m tests.faults.real_guests GUEST`` runs all; ``GUEST`` is the directory of devstack/guest/build.sh.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt

from nova_lite.base import failpoints
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.net import dhcp
from tests.faults import arena as arenas
from tests.faults import matrix, scenarios
from tests.faults.arena import Arena, Site
from tests.faults.matrix import Case
from tests.faults.points import Fault
from tests.faults.report import Table
from tests.faults.scenarios import Scenario
from tests.functional import cloud
from tests.support.host_networks import remove_network
from tests.support.waiting import wait_for

#: An emulated guest needs at least 80 MB.
MEMORY_MB = 96
CONFIG = """
[DEFAULT]
compute_driver = libvirt
shutdown_timeout = 6
[libvirt]
virt_type = qemu
"""


class RealCloud(cloud.Cloud):
    """``guest``: the directory with the guest's image."""

    memory_mb_of_flavor = MEMORY_MB

    def __init__(self, path: Path, guest: Path, **options: Any) -> None:
        super().__init__(path, extra_config=CONFIG, **options)
        self.image_file = guest / "disk.qcow2"
        token = uuid.uuid4()
        self.computes = [f"compute-{token.hex[:8]}"]
        prefix = f"10.{200 + token.bytes[0] % 50}.{token.bytes[1]}"
        self.network = {
            "cidr": f"{prefix}.0/24",
            "gateway": f"{prefix}.1",
            "start": f"{prefix}.10",
            "end": f"{prefix}.250",
            "bridge": f"nlt{token.hex[:8]}",
        }
        libvirt.registerErrorHandler(lambda *_: None, None)  # it prints what is raised as well
        self.libvirt = libvirt.open("qemu:///system")

    @property
    def host(self) -> str:
        (host,) = self.computes
        return host

    def states(self) -> dict[str, bool]:
        """Return, by instance uuid, whether its domain runs."""
        found = {}
        for domain in self.libvirt.listAllDomains():
            with contextlib.suppress(libvirt.libvirtError):  # gone meanwhile, or not of our kind
                owner = guest_xml.parse_owner(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, guest_xml.NAMESPACE))
                if owner is not None and owner.host == self.host:
                    found[domain.UUIDString()] = bool(domain.isActive())
        return found

    def domains(self) -> dict[str, str]:
        return dict.fromkeys(self.states(), self.host)

    def kill_guest(self, server_id: str) -> None:
        """Kill the guest's qemu, as a crash or a lack of memory would."""
        name = self.libvirt.lookupByUUIDString(server_id).name()
        os.kill(int(Path(f"/run/libvirt/qemu/{name}.pid").read_text()), signal.SIGKILL)

    def traces(self) -> list[str]:
        """Return everything that servers have left: disks, records, interfaces, reservations."""
        instances = self.path / self.host / "instances"
        found: list[Path] = [path for path in instances.glob("*") if not path.name.startswith("_")]
        found += instances.glob("_interfaces/*")
        for network in self.networks():
            found += Path(dhcp.DIRECTORY, f"{network.name()}.d").glob("*")
        found += Path("/sys/class/net", self.network["bridge"]).glob("brif/tap*")
        return [str(path) for path in found]

    def networks(self) -> list[Any]:
        return [network for network in self.libvirt.listAllNetworks() if network.bridgeName() == self.network["bridge"]]

    def destroy(self) -> None:
        """Destroy everything, leftovers of failed cases included."""
        super().destroy()
        for instance_uuid in self.states():
            domain = self.libvirt.lookupByUUIDString(instance_uuid)
            with contextlib.suppress(libvirt.libvirtError):  # it does not run
                domain.destroy()
            domain.undefine()
        for network in self.networks():
            remove_network(self.libvirt, network.name())
        self.libvirt.close()


class RealArena(Arena):
    cloud: RealCloud

    def guests(self) -> dict[str, tuple[str, int]]:
        power = {True: PowerState.RUNNING, False: PowerState.SHUTDOWN}
        return {uuid: (self.cloud.host, power[runs]) for uuid, runs in self.cloud.states().items()}

    def boots(self, server_id: str) -> int:
        """Return libvirt's number of the running domain, which grows with each start."""
        number: int = self.cloud.libvirt.lookupByUUIDString(server_id).ID()
        return number

    def check_nothing_left(self) -> None:
        wait_for("nothing is left on the host", lambda: not self.cloud.traces(), arenas.SETTLE_SECONDS)
        super().check_nothing_left()


# --- scenarios that the matrix does not have


def dies(arena: Arena) -> None:
    """Kill the guest: its server shows as off without help, and can be started again."""
    assert isinstance(arena, RealArena)
    arena.cloud.kill_guest(arena.one())
    arena.settle("SHUTOFF", 1)
    scenarios.act({"os-start": None}, "ACTIVE")(arena)


def dies_unseen(arena: Arena) -> None:
    """Kill the guest while its host's daemon is dead, too."""
    assert isinstance(arena, RealArena)
    arena.leave_dead(arena.cloud.host)
    arena.cloud.kill_guest(arena.one())
    arena.bring_back(arena.cloud.host)
    arena.settle("SHUTOFF", 1)


def dies_during(body: dict[str, Any], status: str) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        assert isinstance(arena, RealArena)
        server_id = arena.one()
        arena.insist("POST", f"/servers/{server_id}/action", body, (202,))
        arena.cloud.kill_guest(server_id)
        arena.settle(status, 1)

    return run


def delete_dead(arena: Arena) -> None:
    """Kill the guest, and its host's daemon during the delete."""
    assert isinstance(arena, RealArena)
    arena.cloud.kill_guest(arena.one())
    scenarios.delete(arena)


STOP, START, REBOOT = {"os-stop": None}, {"os-start": None}, {"reboot": {"type": "SOFT"}}
DEATHS = [
    Scenario("guest dies", scenarios.one_active, dies, {}),
    Scenario("guest dies while its host's daemon is dead", scenarios.one_active, dies_unseen, {}),
    Scenario("guest dies during stop", scenarios.one_active, dies_during(STOP, "SHUTOFF"), {}),
    Scenario("guest dies during reboot", scenarios.one_active, dies_during(REBOOT, "ACTIVE"), {}),
]
DELETE_DEAD = Scenario("delete of a dead guest", scenarios.one_active, delete_dead, {})

#: Operation, daemon, point, and what happens there.
FAULTS = [
    ("create 1", "compute-*", "handle/build_and_run_instance/before", "kill"),
    ("create 1", "compute-*", "domain/spawn/before", "kill pause"),
    ("create 1", "compute-*", "fence/before", "delay"),
    ("create 1", "compute-*", "fence/after", "kill"),
    ("create 1", "compute-*", "domain/spawn/after", "kill pause"),
    ("create 1", "compute-*", "send/finish_build/before", "kill"),
    ("create 1", "api", "send/build_instances/before", "drop duplicate"),
    ("create 1", "conductor*", "send/build_and_run_instance/before", "drop duplicate"),
    ("create 1", "conductor*", "commit/finish_build/after", "kill"),
    ("delete", "compute-*", "fence/after", "kill"),
    ("delete", "compute-*", "domain/destroy/before", "kill pause delay"),
    ("delete", "compute-*", "domain/destroy/after", "kill"),
    ("delete", "compute-*", "send/finish_action/before", "kill"),
    ("delete", "api", "send/terminate_instance/before", "duplicate"),
    ("stop", "compute-*", "handle/stop_instance/after", "kill"),
    ("stop", "compute-*", "send/finish_action/before", "kill"),
    ("stop", "api", "send/stop_instance/before", "duplicate"),
    ("start", "compute-*", "handle/start_instance/after", "kill delay"),
    ("start", "compute-*", "send/finish_action/before", "kill"),
    ("start", "api", "send/start_instance/before", "duplicate"),
    ("reboot", "compute-*", "handle/reboot_instance/after", "kill"),
    ("reboot", "compute-*", "send/finish_action/before", "kill pause"),
    ("reboot", "api", "send/reboot_instance/before", "duplicate"),
]


def cases() -> list[Case]:
    operations = {scenario.name: scenario for scenario in matrix.SCENARIOS}
    found = [
        Case(operations[name], (Fault(daemon, point, effect),))
        for name, daemon, point, effects in FAULTS
        for effect in effects.split()
    ]
    found.append(Case(DELETE_DEAD, (Fault("compute-*", "domain/destroy/before", failpoints.KILL),)))
    return found + [Case(death) for death in DEATHS]


@contextlib.contextmanager
def arena(guest: Path) -> Iterator[RealArena]:
    """Run a cloud below /var/tmp, which qemu's user can read."""
    with tempfile.TemporaryDirectory(prefix="nova-lite-guests-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        path = Path(directory)
        control = path / "failpoints.json"
        running = RealCloud(path, guest, environment={failpoints.ENVIRONMENT: str(control)}, quota=-1)
        try:
            running.make()
            running.start_all()
            ready = RealArena(running, control, {}, Site(computes=1))
            try:
                yield ready
            finally:
                ready.close()
        finally:
            running.destroy()


def run(chosen: list[Case], guest: Path, logs: Path, table: Table) -> None:
    """Run the cases one by one. A cloud with a failed case is replaced, and its logs are kept."""
    left = list(chosen)
    while left:
        with arena(guest) as ready:
            while left:
                result = matrix.run_case(left.pop(0), ready)
                if result.wrong:
                    result.logs = str(matrix.keep_logs(ready.cloud.path, logs))
                table.add(result)
                if result.wrong:
                    break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guest", type=Path, help="directory with the guest's disk.qcow2")
    parser.add_argument("--only", action="append", default=[], help="only cases whose description contains this")
    parser.add_argument("--logs", type=Path, help="directory for the logs of cases that fail; made if not given")
    options = parser.parse_args()
    chosen = matrix.chosen(cases(), options.only)
    logs = options.logs or Path(tempfile.mkdtemp(prefix="nova-lite-faults-logs-"))
    table = Table(len(chosen), "devstack/faults.sh --real-guests")
    run(chosen, options.guest, logs, table)
    table.print()
    if not options.logs and not table.failures:
        logs.rmdir()
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
