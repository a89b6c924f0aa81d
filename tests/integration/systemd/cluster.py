"""A cloud of containers to play with: a controller and N hosts, made with the commands that operators run.

``devstack/cluster.sh N`` starts it, and prints the seconds of each step. It lasts until the command is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator

from nova_lite.cmd.setup import compute, controller
from nova_lite.cmd.setup.controller import CLIENT
from tests.integration import guest_image
from tests.integration.systemd.alert import PROMETHEUS, Alert
from tests.integration.systemd.bare_machine import SET_UP_SECONDS, BareMachine
from tests.integration.systemd.debian import OURS, Debian, DebianMachine
from tests.integration.systemd.debian import PACKAGES as MOUNTED
from tests.support import pages
from tests.support.waiting import wait_for_none

CONTROLLER = "192.0.2.10"
FIRST_HOST = 11
MAX_HOSTS = 20
#: Words of the test guest when it has booted, and the seconds that it may take.
BOOTED, BOOT_SECONDS = "nova-lite-guest: instance=", 600.0
_OPENSTACK = "openstack --os-cloud nova-lite"
#: Directory of disks, which all hosts share if they are purged: it is the first one's, and mounted at the others.
INSTANCES = "var/lib/nova-lite/instances"
#: Seconds until a host has reported that disks are missing, or are back.
AUDIT_SECONDS = 180.0
PURGE = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "purge", "--yes", "--quiet", *OURS)
#: Prints what is left of a cloud on a machine: files, users, networks of the kernel, domains, and parts of the broker.
LEFT = rf"""
find / /run -xdev -path {MOUNTED} -prune -o -iname '*nova*lite*' -print
find /etc/pki ! -type d 2>/dev/null
cut -d: -f1 /etc/passwd /etc/group | grep nova-lite
ip -brief link | grep '^nl'
nft list tables 2>/dev/null | grep nova_lite
for program in iptables-save ip6tables-save; do $program 2>/dev/null | grep NOVA_LITE; done
virsh list --all --name 2>/dev/null | grep .
virsh net-list --all --name 2>/dev/null | grep nova-lite
as_broker="setpriv --reuid=rabbitmq --regid=rabbitmq --clear-groups env HOME=/var/lib/rabbitmq rabbitmqctl --quiet"
! command -v rabbitmqctl >/dev/null || {{ $as_broker list_vhosts; $as_broker list_users; }} | grep nova-lite
true
"""


class Cluster:
    """The machines of a cloud. ``debian``: they are empty ones, which install packages.

    ``shares_disks``: the hosts have one directory of disks. ``seconds``: what was measured, by its title.
    """

    def __init__(
        self, stack: contextlib.ExitStack, directory: pathlib.Path, debian: Debian | None, shares_disks: bool = False
    ) -> None:
        self._stack, self._directory, self._debian, self._shares_disks = stack, directory, debian, shares_disks
        self.hosts: list[BareMachine] = []
        self.seconds: dict[str, float] = {}
        self.controller = self._machine("controller")
        self.controller.add_address(CONTROLLER)
        self._install(self.controller, "nova-lite-common", "nova-lite-controller", CLIENT)
        with self._measured(f"{self.controller.name}: set-up"):
            setup = f"{self.controller.programs}/nova-lite-setup"
            self.controller.run(setup, "controller", "--address", CONTROLLER, seconds=SET_UP_SECONDS)

    def add_host(self) -> None:
        host = self._machine(f"h{len(self.hosts) + 1}")
        host.allow_guests()
        self.controller.connect(host, self.address(host))
        self.hosts.append(host)
        self._install(host, "nova-lite-common", "nova-lite-compute")
        (host.tree / INSTANCES).mkdir(parents=True, exist_ok=True)
        with self._measured(f"{host.name}: set-up"):
            token = self.controller.run(f"{self.controller.programs}/nova-lite-manage", "host", "token").strip()
            host.run(f"{host.programs}/nova-lite-setup", "compute", token, seconds=SET_UP_SECONDS)

    def add_image(self, disk: pathlib.Path) -> None:
        """Run the commands of the page that make a flavor, a network and an image."""
        shutil.copy(disk, self.controller.tree / "root/debian.qcow2")
        (commands,) = pages.blocks("howto/install.md", "9. Add the first host, a flavor, a network and an image")
        with self._measured("flavor, network, image"):
            self.controller.execute(commands)

    def add_guest(self, name: str) -> None:
        """Create a server, and wait until its guest has booted."""
        with self._measured(f"{name}: booted"):
            self.openstack(f"server create --image debian --flavor m1.small --wait {name}")

            def otherwise() -> list[str]:
                said = self.openstack(f"console log show {name}")
                return [] if BOOTED in said else [said[-1000:]]

            wait_for_none(f"{name} has booted", otherwise, BOOT_SECONDS, 0.5)

    def purge(self) -> None:
        """Purge the packages of hosts and controller. Fails if anything is left, or if a purge ends a running guest."""
        machines = list(reversed(self.machines))
        if names := self.openstack("server list -f value -c Name").split():
            self._try_to_purge(self.hosts[-1])
            if self._shares_disks:
                names = self._purge_first_host()
                machines.remove(self.hosts[0])
            self.openstack(f"server delete --wait {' '.join(names)}")
        for machine in machines:
            self._purge(machine)

    def _purge(self, machine: BareMachine) -> str:
        """Purge a machine, and return what the purge says. Nothing is left but a directory that hosts share."""
        with self._measured(f"{machine.name}: purge"):
            said = machine.run(*PURGE, seconds=SET_UP_SECONDS)
        is_sharing = self._shares_disks and machine in self.hosts
        found = machine.run("sh", "-c", LEFT).splitlines()
        left = [line for line in found if not (is_sharing and line.startswith(f"/{INSTANCES}/"))]
        assert left == (["/var/lib/nova-lite"] if is_sharing else []), f"Left on {machine.name}: {left}"
        print(f"{machine.name}: nothing is left{' but shared disks' if is_sharing else ''}", flush=True)
        return said

    def _purge_first_host(self) -> list[str]:
        """Purge the host that has the directory of disks, with both commands. The other hosts' servers lose nothing.

        Returns the names of these servers. Their disks are taken away for a moment, which an audit finds.
        """
        first, name = self.hosts[0], self.hosts[0].name
        of_first = self.openstack(f"server list -f value -c Name --host {name}").split()
        self.openstack(f"server delete --wait {' '.join(of_first)}")
        others = {line.split()[1]: line.split()[0] for line in self.openstack("server list -f value").splitlines()}
        shared = first.tree / INSTANCES
        before = {path: path.stat().st_ino for uuid in others.values() for path in shared.glob(f"{uuid}*/**/*")}
        assert others and all(uuid in str(before) for uuid in others.values()), before
        removed = first.run(f"{first.programs}/nova-lite-setup", "remove", "--purge", "--yes", seconds=SET_UP_SECONDS)
        assert f"/{INSTANCES}: other hosts use it: " in removed and name not in removed.rpartition(": ")[2], removed
        assert f"/{INSTANCES} is left: other hosts use it: " in self._purge(first)
        assert {path: path.stat().st_ino for path in before} == before
        assert self._audit("Nothing is wrong")
        for server, uuid in others.items():
            (disks,) = (path for path in shared.glob(f"{uuid}*") if path.is_dir())
            disks.rename(self._directory / uuid)
            assert self._audit(f"server {uuid}")
            (self._directory / uuid).rename(disks)
            assert self._audit("Nothing is wrong")
            self.openstack(f"server reboot --hard --wait {server}")
        return list(others)

    def _audit(self, expected: str) -> bool:
        """Wait until an audit says something."""

        def otherwise() -> list[str]:
            said = self.controller.execute(["nova-lite-manage audit || true"])
            return [] if expected in said else [said]

        wait_for_none(f"an audit says {expected}", otherwise, AUDIT_SECONDS, 1)
        return True

    def _try_to_purge(self, host: BareMachine) -> None:
        """Purge a host with a guest, which refuses, and install the packages again, which continue with the guest."""
        said = host.run(*PURGE, check=False, seconds=SET_UP_SECONDS)
        refused = [line for line in said.splitlines() if "guests run: instance-" in line]
        assert refused, said
        print(*refused, sep="\n", flush=True)
        with self._measured(f"{host.name}: packages again"):
            host.install("nova-lite-common", "nova-lite-compute")
            host.run("sh", "-c", "systemctl start nova-lite-compute || { journalctl --unit nova-lite-compute; false; }")

    def openstack(self, command: str) -> str:
        return self.controller.execute([f"{_OPENSTACK} {command}"])

    @property
    def machines(self) -> list[BareMachine]:
        return [self.controller, *self.hosts]

    def address(self, host: BareMachine) -> str:
        return f"192.0.2.{FIRST_HOST - 1 + int(host.name.removeprefix('h'))}"

    def sums(self) -> dict[str, float]:
        """Return the seconds until the first guest, and those of each host, from the start of empty machines."""
        if self._debian is None:
            return {}
        found = {f"host {host.name}, from an empty machine": self._sum(f"{host.name}:") for host in self.hosts}
        if "g1: booted" in self.seconds:
            parts = ("controller:", "h1:", "flavor", "g1:")
            found = {"from empty machines to the first guest": sum(map(self._sum, parts))} | found
        return found

    def _sum(self, beginning: str) -> float:
        return sum(took for title, took in self.seconds.items() if title.startswith(beginning))

    def _machine(self, name: str) -> BareMachine:
        (self._directory / f"of-{name}").mkdir()
        tree = self._directory / f"of-{name}" / name
        shared = [f"{self.hosts[0].tree / INSTANCES}:/{INSTANCES}"] if self._shares_disks and self.hosts else []
        if self._debian is None:
            machine = BareMachine(tree, name, shared)
        else:
            machine = DebianMachine(tree, name, self._debian, shared)
        self._stack.callback(machine.stop)
        return machine

    def _install(self, machine: BareMachine, *packages: str) -> None:
        if self._debian is not None:
            with self._measured(f"{machine.name}: packages"):
                machine.install(*packages)

    @contextlib.contextmanager
    def _measured(self, title: str) -> Iterator[None]:
        print(f"{title} ...", end=" ", flush=True)
        began = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - began
        print(f"{self.seconds[title]:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="devstack/cluster.sh", description=__doc__)
    parser.add_argument("hosts", metavar="N", type=_number, help=f"number of hosts, 1 to {MAX_HOSTS}")
    parser.add_argument(
        "--debian",
        metavar="DIRECTORY",
        type=pathlib.Path,
        help="start with empty Debian machines, which install the packages that devstack/packages.sh made there",
    )
    parser.add_argument("--guests", action="store_true", help="boot a server for each host")
    parser.add_argument(
        "--alert",
        metavar="DIRECTORY",
        type=pathlib.Path,
        help="boot servers, run Prometheus, cut off the last host until its alert fires, and store pictures there",
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="purge the packages at the end, and fail if anything is left; with --debian. With --guests, hosts share a "
        "directory of disks, and the purge of the one that has it takes nothing from the others",
    )
    parser.add_argument("--once", action="store_true", help="end without waiting for Ctrl-C")
    args = parser.parse_args()
    if args.purge and not args.debian:
        parser.error("--purge needs --debian.")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-cluster.")))
        _run(stack, directory, args)
        if not (args.once or args.purge):
            print("\nThe cloud lasts until you press Ctrl-C.", flush=True)
            signal.pause()
    return 0


def _number(text: str) -> int:
    """Return the number of hosts. End the program in one line for any other text."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_HOSTS:
        raise SystemExit(f"cluster.sh {text[:64]}: N must be a number from 1 to {MAX_HOSTS}.")
    return int(text)


def _run(stack: contextlib.ExitStack, directory: pathlib.Path, args: argparse.Namespace) -> None:
    has_guests = args.guests or args.alert
    disk = guest_image.build(directory) / "disk.qcow2" if has_guests else None
    debian = None
    if args.debian:
        print("debootstrap and downloads, which do not count ...", end=" ", flush=True)
        names = (*controller.PACKAGES, *compute.PACKAGES, CLIENT, *([PROMETHEUS] if args.alert else []))
        debian = Debian(directory, args.debian, names)
        print(f"{debian.megabytes()} MiB of packages", flush=True)
    cluster = Cluster(stack, directory, debian, shares_disks=args.purge and args.guests and args.hosts > 1)
    # The first guest comes as early as it can.
    for number in range(1, args.hosts + 1):
        cluster.add_host()
        if number == 1 and disk is not None:
            cluster.add_image(disk)
            cluster.add_guest("g1")
    for number in range(2, args.hosts + 1) if has_guests else ():
        cluster.add_guest(f"g{number}")
    print(cluster.controller.execute(["nova-lite-manage service list"]))
    for title, took in cluster.sums().items():
        print(f"{title}: {took:.0f} s")
    print(
        "load of this machine: {:.0f} in the last minute, {:.0f} in the last quarter of an hour".format(
            *os.getloadavg()[::2]
        )
    )
    if args.alert:
        alert = Alert(cluster.controller, {host: cluster.address(host) for host in cluster.hosts})
        alert.prepare()
        for number in range(1, 4):  # Something to see in the dashboards.
            cluster.openstack(f"server create --image debian --flavor m1.small --wait busy{number}")
            cluster.openstack(f"server delete --wait busy{number}")
        print(alert.run(cluster.hosts[-1], args.alert))
    if args.purge:
        cluster.purge()
        return
    print("Enter a machine:")
    for machine in cluster.machines:
        print(f"    {machine.name}: nsenter --target {machine.init} -m -u -i -n -p -C bash")


if __name__ == "__main__":
    sys.exit(main())
