"""A container with systemd, made of this machine's /usr, with the units and the code of this checkout.

It has a network of its own, so that nothing in it reaches this machine's interfaces and packet filters.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence

from tests.support.waiting import polls

TOP = pathlib.Path(__file__).parents[3]
SOURCE = "/opt/nova-lite/source"
USERS = ("nova-lite", "nova-lite-api", "nova-lite-conductor", "nova-lite-scheduler", "nova-lite-console")
FIRST_USER = 64000
#: Parts of this machine's /etc that systemd, D-Bus and Python need.
SETTINGS = (
    "passwd",
    "group",
    "shadow",
    "nsswitch.conf",
    "alternatives",
    "dbus-1",
    "pam.d",
    "ssl",
    "protocols",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
)
DEADLINE = 120.0


def inside(path: str | pathlib.Path) -> str:
    """Return where a container has a path of this machine. The checkout may be in /tmp, which units hide."""
    path = pathlib.Path(path)
    return f"{SOURCE}/{path.relative_to(TOP)}" if path.is_relative_to(TOP) else str(path)


def completed(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program of this machine without input, and return its end and its output, whatever its status."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
    )


PROXIES = ("novncproxy", "serialproxy", "spicehtml5proxy")


class Machine:
    """The container in ``tree``. `stop` ends it. ``shared``: directories, as HERE:THERE.

    ``up_states``: states of systemd in which the machine has started.
    """

    def __init__(self, tree: pathlib.Path, shared: Sequence[str] = ()) -> None:
        self.up_states = {"running"}
        self.tree, self._shared = tree, shared
        self._make_tree()
        self._boot()

    def _boot(self) -> None:
        tree = self.tree
        with open(tree.parent / "console.log", "wb") as log:
            self._process = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--directory", str(tree), "--boot", "--register=no", "--keep-unit"]
                # systemd 257 has a directory of each name, which a killed machine leaves behind.
                + [f"--machine=nova-lite-{uuid.uuid4().hex[:8]}", f"--hostname={tree.name}"]
                + ["--private-network", "--console=pipe", "--capability=CAP_SYS_MODULE,CAP_NET_ADMIN,CAP_SYS_NICE"]
                + self._usr()
                + self._programs()
                + [f"--bind={path}" for path in self._shared],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment()},
            )
        try:
            self._init = self._find_init()
            self._plug()
            self._wait_until_up()
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(DEADLINE)
        finally:
            self._process.kill()

    @property
    def init(self) -> int:
        """Return the pid of the container's first process."""
        return self._init

    # --- use

    def run(self, *command: str, check: bool = True, seconds: float = DEADLINE) -> str:
        """Run a command in the container and return its output. With ``check``, fail if its status is not 0."""
        enter = ["nsenter", "--target", str(self._init), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        done = completed([*enter, *command], seconds)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def property_of(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def write(self, path: str, content: str, mode: int = 0o644) -> None:
        """Write a file of the container."""
        place = self.tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(mode)

    def change_unit(self, unit: str, *lines: str) -> None:
        """Add lines to the [Service] section of a unit, in a drop-in."""
        self.write(f"/etc/systemd/system/{unit}.d/test.conf", "\n".join(["[Service]", *lines, ""]))
        self.run("systemctl", "daemon-reload")

    # --- start

    def _plug(self) -> None:
        """Connect a machine that starts, before its daemons do."""

    def _environment(self) -> dict[str, str]:
        """Return variables of systemd-nspawn."""
        return {}

    def _usr(self) -> list[str]:
        """Return the options of systemd-nspawn that mount /usr."""
        return ["--bind-ro=/usr"]

    def _programs(self) -> list[str]:
        """Return the options of systemd-nspawn that mount the checkout and its libraries."""
        prefix = pathlib.Path(sys.prefix)
        libraries = [] if prefix.is_relative_to("/usr") or prefix.is_relative_to(TOP) else [str(prefix)]
        return [f"--bind-ro={path}" for path in (f"{TOP}:{SOURCE}", *libraries)]

    def _make_tree(self) -> None:
        for name in ("usr", "etc/systemd/system", "var/lib", "var/log", "run", "tmp", "proc", "sys", "dev", "root"):
            (self.tree / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (self.tree / name).symlink_to(f"usr/{name}")
        for name in SETTINGS:
            source = pathlib.Path("/etc", name)
            if source.is_dir():
                shutil.copytree(source, self.tree / "etc" / name, symlinks=True)
            else:
                shutil.copy(source, self.tree / "etc" / name)
        shutil.copy("/etc/os-release", self.tree / "etc/os-release")
        (self.tree / "etc/machine-id").touch()
        # A tmpfs on /tmp would hide the directories that are bound there.
        (self.tree / "etc/systemd/system/tmp.mount").symlink_to("/dev/null")
        self._make_users()
        self._make_units_and_programs()
        self._make_directories()

    def _make_units_and_programs(self) -> None:
        for unit in (TOP / "etc/systemd").glob("*.service"):
            shutil.copy(unit, self.tree / "etc/systemd/system")
        python = inside(sys.executable)
        for script in ("api", "compute", "conductor", "registrar", "scheduler", *PROXIES):
            self.write(
                f"/opt/nova-lite/venv/bin/nova-lite-{script}",
                f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {python} -W ignore -m nova_lite.cmd.{script} "$@"\n',
                0o755,
            )
        self.write(
            "/opt/nova-lite/venv/bin/python",
            f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {python} "$@"\n',
            0o755,
        )

    def _make_users(self) -> None:
        """Add the daemons' users and groups. This machine may have the same names with other numbers."""
        numbered = list(enumerate(USERS, FIRST_USER))
        added = {
            "group": [f"{user}:x:{number}:" for number, user in numbered],
            "passwd": [f"{user}:x:{number}:{number}::/:/bin/false" for number, user in numbered],
            "shadow": [],
        }
        for name, mine in added.items():
            lines = (self.tree / "etc" / name).read_text().splitlines()
            others = [line for line in lines if line.partition(":")[0] not in USERS]
            self.write(f"/etc/{name}", "\n".join([*others, *mine, ""]))

    def _make_directories(self) -> None:
        """Make the directories and files that the installation makes, with their owners."""
        owners = {
            "images": ("nova-lite-api", "nova-lite-conductor"),
            "identity": ("nova-lite-api", "nova-lite-api"),
            "conductor": ("nova-lite-conductor", "nova-lite-conductor"),
        }
        for name in ("instances", "volumes", "fences", *owners):
            path = self.tree / "var/lib/nova-lite" / name
            path.mkdir(parents=True)
            path.chmod(0o770)
            if name in owners:
                os.chown(path, *(FIRST_USER + USERS.index(owner) for owner in owners[name]))
        (self.tree / "etc/nova-lite").mkdir()
        for name in ("nova-lite", "api", "compute", "conductor", "scheduler", *PROXIES):
            self.write(f"/etc/nova-lite/{name}.conf", "")
        shutil.copy(TOP / "etc/nova-lite/api-paste.ini", self.tree / "etc/nova-lite")

    def _find_init(self) -> int:
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for _ in polls(DEADLINE):
            for pid in children.read_text().split() if children.exists() else []:
                # The first child of systemd-nspawn only makes the container, and ends.
                with contextlib.suppress(OSError):
                    if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                        return int(pid)
            assert self._process.poll() is None, self._log()
        raise AssertionError(f"the container does not start: {self._log()}")

    def _wait_until_up(self) -> None:
        for _ in polls(DEADLINE, 0.2):
            if self.run("systemctl", "is-system-running", check=False).strip() in self.up_states:
                return
        failed = self.run("systemctl", "list-units", "--failed", check=False)
        raise AssertionError(f"systemd does not come up: {failed}{self._log()}")

    def _log(self) -> str:
        return (self.tree.parent / "console.log").read_text(errors="replace")
