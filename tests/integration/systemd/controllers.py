"""Containers for a cloud with several controllers: a machine for clients and compute hosts, and the controllers.

The first machine has the network, so that it stays while controllers are killed.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from concurrent import futures

from tests.integration.systemd.bare_machine import FAR_END, SET_UP_SECONDS, VENV, BareMachine, read_until
from tests.integration.systemd.machine import DEADLINE

SETUP, MANAGE, PYTHON = f"{VENV}/bin/nova-lite-setup", f"{VENV}/bin/nova-lite-manage", f"{VENV}/bin/python"
VIRTUAL = "10.242.0.10"
CLIENT = "10.242.0.9"
ADDRESSES = {"ha1": "10.242.0.11", "ha2": "10.242.0.12", "ha3": "10.242.0.13"}
#: Seconds from the begin of a boot until a machine has its address. Daemons start before.
ADDRESS_SECONDS = 8.0
#: Step at which a set-up waits for the operator.
JOINS = 6
IMAGES = "/var/lib/nova-lite/images"


class ControllerMachine(BareMachine):
    """A machine with Debian's MariaDB, HAProxy and keepalived, as their packages leave it."""

    _cable: Callable[[], None] = staticmethod(lambda: None)

    def _make_directories(self) -> None:
        super()._make_directories()
        shutil.copytree("/etc/mysql", self.tree / "etc/mysql", symlinks=True)
        shutil.copytree("/etc/haproxy", self.tree / "etc/haproxy")
        (self.tree / "etc/keepalived").mkdir(exist_ok=True)
        for path in ("var/lib/mysql", "var/log/mysql"):
            (self.tree / path).mkdir(parents=True)
            shutil.chown(self.tree / path, "mysql", "mysql")
        (self.tree / "var/lib/haproxy/dev").mkdir(parents=True)
        # The user's data of the package come with its installation.
        self.write("/etc/systemd/system/mariadb.service.d/test.conf", _DATABASE)

    def _usr(self) -> list[str]:
        return [*super()._usr(), "--capability=CAP_IPC_LOCK,CAP_NET_RAW"]

    def power_on(self, cable: Callable[[], None], address: str) -> None:
        """Start a machine whose power was cut. ``cable`` connects it, before its daemons start.

        The address comes later, as from DHCP or after a slow negotiation of the link.
        """
        give = ("ip", "address", "add", f"{address}/24", "dev", FAR_END)
        late = threading.Timer(ADDRESS_SECONDS, self.run, give)

        def plug() -> None:
            cable()
            late.start()

        self._cable = plug
        self._boot()
        late.join()

    def _plug(self) -> None:
        self._cable()

    def power_off(self) -> None:
        """Cut the power: no process learns of it."""
        self.stop()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to each process of the machine; twice, as processes make others meanwhile."""
        space = os.stat(f"/proc/{self.init}/ns/pid").st_ino
        for _ in range(2):
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and (entry / "ns/pid").stat().st_ino == space:
                        os.kill(int(entry.name), number)
                except (FileNotFoundError, PermissionError, ProcessLookupError):  # Others end, or are not ours.
                    continue


_DATABASE = """[Service]
ExecStartPre=+/bin/sh -c 'test -d /var/lib/mysql/mysql || mariadb-install-db --user=mysql --skip-test-db >/dev/null'
ExecStartPost=
"""


class Cloud:
    """Machine ``client`` and ``controllers`` by name, connected. `set_up_first` and `set_up_further` make the cloud.

    ``prepare`` gets each new machine, before anything is set up there.
    """

    def __init__(self, directory: pathlib.Path, prepare: Callable[[BareMachine], None] = lambda machine: None) -> None:
        self.images = directory / "images"
        self.images.mkdir()
        self._prepare = prepare
        self.client = ControllerMachine(_tree(directory, "haclient"), "haclient")
        self.client.add_address(CLIENT)
        prepare(self.client)
        self.controllers: dict[str, ControllerMachine] = {}
        self.others: list[BareMachine] = []
        self._directory = directory
        self._plugging = threading.Lock()

    def stop(self) -> None:
        for machine in (*self.controllers.values(), *self.others, self.client):
            machine.stop()

    def add(self, name: str) -> ControllerMachine:
        # All machines share the directory of images, as by NFS.
        machine = ControllerMachine(_tree(self._directory, name), name, [f"{self.images}:{IMAGES}"])
        self.controllers[name] = machine
        self.client.connect(machine, ADDRESSES[name])
        self._prepare(machine)
        return machine

    def add_host(self, name: str, address: str) -> BareMachine:
        """Add a machine that only becomes a compute host."""
        machine = BareMachine(_tree(self._directory, name), name, [f"{self.images}:{IMAGES}"])
        self.others.append(machine)
        self.client.connect(machine, address)
        self._prepare(machine)
        return machine

    def set_up_first(self) -> str:
        machine = self.add("ha1")
        options = ("--address", ADDRESSES["ha1"], "--virtual-address", VIRTUAL, "--database", "mariadb")
        return machine.run(SETUP, "controller", *options, seconds=SET_UP_SECONDS)

    def set_up_further(self, name: str, killed_at: Iterable[int] = (), attempts: int = 1) -> str:
        """Let a controller join, and confirm its code on the first one. Returns what the set-up prints.

        ``killed_at``: steps at each of which the set-up is killed, and run again. ``attempts``: runs that may fail.
        """
        machine = self.controllers.get(name) or self.add(name)
        return set_up_confirmed(self.controllers["ha1"], machine, "controller", 12, killed_at, attempts)

    def power_on(self, *names: str, is_whole: bool = True) -> None:
        """Start machines whose power was cut, with their cables, at the same time.

        ``is_whole``: all controllers are on then. Else services that wait for the others keep a machine in its start.
        """
        for name in names:
            self.controllers[name].up_states = {"running"} if is_whole else {"running", "starting"}
        with futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(self._power_on, name) for name in names]:
                done.result()

    def _power_on(self, name: str) -> None:
        machine = self.controllers[name]

        def plug() -> None:
            with self._plugging:  # The far ends of all cables have the same name here.
                self.client.plug(machine)

        machine.power_on(plug, ADDRESSES[name])

    def cut(self, name: str) -> None:
        self.client.run("ip", "link", "set", f"to-{name}", "down")

    def mend(self, name: str) -> None:
        self.client.run("ip", "link", "set", f"to-{name}", "up")


def set_up_confirmed(
    first: BareMachine, machine: BareMachine, kind: str, count: int, killed_at: Iterable[int] = (), attempts: int = 1
) -> str:
    """Run a set-up that an operator confirms on the first controller. Returns what its last run prints.

    ``count``: of its steps. ``killed_at``: steps at each of which it is killed, and run again. ``attempts``: runs to
    the end, each of which repeats a failed run.
    """
    token, confirmed = first.run(MANAGE, "host", "token").strip(), False
    for step in (*killed_at, *[0] * attempts):
        process = machine.start(SETUP, kind, token)
        said = ""
        if not confirmed and (not step or step >= JOINS):
            said, confirmed = confirm(first, process), True
        if step:
            said += read_until(process, f"[{step:2}/{count}]") if f"[{step:2}/" not in said else ""
            assert f"[{step:2}/" in said, said
            process.kill()
            process.wait(DEADLINE)
            continue
        said += process.communicate(timeout=SET_UP_SECONDS)[0]
        if process.returncode == 0:
            return said
        print(said, flush=True)
    raise AssertionError(said)


def confirm(first: BareMachine, process: subprocess.Popen[str]) -> str:
    """Run the command that a set-up shows on the first controller. Returns what the set-up has printed."""
    said = read_until(process, " admit ")
    said += read_until(process, "\n")
    found = re.search(r"nova-lite-manage ((?:controller|frontend) admit .*)", said)
    assert found is not None, said
    first.run(MANAGE, *found[1].split())
    return said


def _tree(directory: pathlib.Path, name: str) -> pathlib.Path:
    (directory / name).mkdir()
    return directory / name / "tree"
