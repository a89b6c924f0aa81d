"""A container with systemd on which nothing of a cloud is set up, with the package in a virtual environment."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence

from tests.integration.systemd.machine import DEADLINE, SOURCE, Machine, completed, inside

VENV = "/opt/nova-lite/venv"
#: Interface of a machine that `BareMachine.connect` connects.
FAR_END = "far-end"
#: Seconds that a whole set-up may take on a busy machine.
SET_UP_SECONDS = 600
#: Seconds for the commands of one block of a page.
COMMANDS_SECONDS = 1200
PROGRAMS = (
    "api",
    "compute",
    "conductor",
    "manage",
    "novncproxy",
    "registrar",
    "scheduler",
    "serialproxy",
    "setup",
    "spicehtml5proxy",
    "status",
)


class BareMachine(Machine):
    """A machine with Debian's packages, but without users, directories, units and settings of ours.

    ``programs``: directory of ours, and of the command line client.
    """

    programs = f"{VENV}/bin"

    def __init__(self, tree: pathlib.Path, name: str = "controller", shared: Sequence[str] = ()) -> None:
        self.name = name
        super().__init__(tree, shared)

    def _make_units_and_programs(self) -> None:
        """Make a virtual environment whose libraries are those of the tests, and whose code is this checkout's."""
        python = pathlib.Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        self.write(f"{VENV}/pyvenv.cfg", f"home = {python.parent}\ninclude-system-site-packages = false\n")
        (self.tree / f"{VENV}/bin".lstrip("/")).mkdir(parents=True)
        (self.tree / f"{VENV}/bin/python".lstrip("/")).symlink_to(python)
        libraries = f"{VENV}/lib/{python.name}/site-packages"
        self.write(f"{libraries}/here.pth", f"{SOURCE}\n{inside(sysconfig.get_path('purelib'))}\n")
        for name in PROGRAMS:
            text = f"#!{VENV}/bin/python\nimport sys\nfrom nova_lite.cmd.{name} import main\nsys.exit(main())\n"
            self.write(f"{VENV}/bin/nova-lite-{name}", text, 0o755)
        text = f"#!{VENV}/bin/python -W ignore\nimport sys\nfrom openstackclient.shell import main\nsys.exit(main())\n"
        self.write(f"{VENV}/bin/openstack", text, 0o755)

    def _make_users(self) -> None:
        """Leave out users of a cloud on this machine, such as devstack's, and keep the users of Debian's packages."""
        for name in ("group", "passwd", "shadow"):
            lines = (self.tree / "etc" / name).read_text().splitlines()
            kept = [line for line in lines if not line.startswith("nova-lite")]
            self.write(f"/etc/{name}", "\n".join([*kept, ""]))

    def _make_directories(self) -> None:
        """Make the files of Debian's packages, and a name for the machine."""
        shutil.copytree("/var/lib/dpkg", self.tree / "var/lib/dpkg", ignore=shutil.ignore_patterns("info"))
        self.write("/etc/hostname", f"{self.name}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost {self.name}\n")
        for path in ("var/lib/rabbitmq", "var/log/rabbitmq", "etc/rabbitmq"):
            (self.tree / path).mkdir(parents=True)
            shutil.chown(self.tree / path, "rabbitmq", "rabbitmq")

    def stop(self) -> None:
        """End the container at once: the broker would take long to stop."""
        self._process.kill()  # First, because it would start the container again.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self._process.wait(DEADLINE)

    def connect(self, other: BareMachine, address: str) -> None:
        """Connect another machine, with this address there, to the network of `add_address`."""
        self.plug(other)
        other.run("ip", "address", "add", f"{address}/24", "dev", FAR_END)

    def plug(self, other: BareMachine) -> None:
        """Connect another machine, which has no address yet."""
        cable = f"to-{other.name}"
        self.run("ip", "link", "delete", cable, check=False)  # The kernel removes a dead machine's some time later.
        self.run("ip", "link", "add", cable, "type", "veth", "peer", "name", FAR_END)
        # A process outside of the containers sees both network name spaces.
        enter = ["nsenter", "--target", str(self.init), "-n", "--"]
        subprocess.run([*enter, "ip", "link", "set", FAR_END, "netns", str(other.init)], check=True)
        self.run("ip", "link", "set", cable, "master", "lan", "up")
        other.run("ip", "link", "set", FAR_END, "up")

    def add_address(self, address: str) -> None:
        self.run("ip", "link", "add", "lan", "type", "bridge")
        self.run("ip", "address", "add", f"{address}/24", "dev", "lan")
        self.run("ip", "link", "set", "lan", "up")

    def allow_guests(self) -> None:
        """Let libvirt do without cgroups, which it cannot write in a container on a machine with their version 1."""
        self.run("sh", "-c", "grep -o '/sys/fs/cgroup/[a-z,_]*' /proc/mounts | grep -v systemd | xargs -r umount")

    def install(self, *packages: str) -> None:
        """Install packages. Here nothing is missing, as this machine has them."""

    def execute(self, commands: Sequence[str], seconds: float = COMMANDS_SECONDS) -> str:
        """Run commands of a page in root's shell, until one fails. Returns what they print."""
        paths = f"{self.programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        lines = ["set -euo pipefail", f"export PATH={paths} HOME=/root", "cd /root", *commands]
        return self.run("bash", "-c", "\n".join(lines), seconds=seconds)

    def beside(self, *command: str) -> str:
        """Run a program of this machine in the container's network. Returns its output."""
        enter = ["nsenter", "--target", str(self.init), "-n", "--"]
        done = completed([*enter, *command], DEADLINE)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command, whose output can be read while it runs, and which `kill` of the result ends."""
        enter = ["nsenter", "--no-fork", "--target", str(self.init), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        return subprocess.Popen(
            enter + list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read what a process prints, until it has printed a text or has ended."""
    assert process.stdout is not None
    said, deadline = "", time.monotonic() + SET_UP_SECONDS
    while text not in said and time.monotonic() < deadline:
        piece = process.stdout.read(1)
        if not piece:
            break
        said += piece
    return said
