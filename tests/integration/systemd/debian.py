"""Empty Debian machines: what debootstrap makes, with systemd. They install packages from a directory.

The packages are downloaded before a machine starts, because a container has no network for that.
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

from tests.integration.systemd.bare_machine import SET_UP_SECONDS, BareMachine
from tests.integration.systemd.machine import completed

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
#: Packages besides debootstrap's smallest choice: systemd, and a program for the network.
SYSTEM = ("systemd-sysv", "dbus", "iproute2")
OURS = ("nova-lite-common", "nova-lite-controller", "nova-lite-compute")
PACKAGES = "/srv/packages"
_DOWNLOAD = f"""
apt-get --quiet update
apt-get --quiet install --yes --no-install-recommends --download-only "$@" {PACKAGES}/*.deb
"""
_DOWNLOAD_SECONDS = 1800
#: File of a machine whose control groups are all of version 2.
_VERSION_2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")


class Debian:
    """A tree that machines copy, and the packages that they install.

    ``built``: directory of our packages, as ``devstack/packages.sh`` makes them. ``names``: of Debian's packages.
    """

    def __init__(self, directory: pathlib.Path, built: pathlib.Path, names: Sequence[str]) -> None:
        self.tree, self.packages = directory / "debian", directory / "packages"
        found = [list(built.glob(f"{name}_*.deb")) for name in OURS]
        assert all(len(paths) == 1 for paths in found), f"{built} has not one package of each of {', '.join(OURS)}."
        assert shutil.which("debootstrap"), "debootstrap is missing: install the package."
        self.packages.mkdir(mode=0o755)
        for (path,) in found:
            shutil.copy(path, self.packages)
        _run("debootstrap", "--variant=minbase", f"--include={','.join(SYSTEM)}", SUITE, str(self.tree), MIRROR)
        _run(
            *("systemd-nspawn", "--quiet", f"--directory={self.tree}", "--register=no", "--keep-unit", "--as-pid2"),
            *("--resolv-conf=copy-host", "--pipe", f"--bind-ro={self.packages}:{PACKAGES}"),
            *("sh", "-euc", _DOWNLOAD, "download", *names),
        )
        for path in (self.tree / "var/cache/apt/archives").glob("*.deb"):
            path.rename(self.packages / path.name)
        shutil.rmtree(self.tree / "var/lib/apt/lists")
        (self.tree / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{PACKAGES} ./\n")
        (self.packages / "Packages").write_text("\n".join(map(_entry, sorted(self.packages.glob("*.deb")))))

    def megabytes(self) -> int:
        return sum(path.stat().st_size for path in self.packages.glob("*.deb")) >> 20


class DebianMachine(BareMachine):
    """A machine with Debian's smallest system and nothing of ours."""

    programs = "/usr/bin"
    # systemd-nspawn decides by the systemd in the tree. `allow_guests` unmounts only the hierarchies of version 1.
    environment = {} if _VERSION_2.exists() else {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0"}

    def __init__(self, tree: pathlib.Path, name: str, debian: Debian) -> None:
        self._debian = debian
        super().__init__(tree, name)

    def _make_tree(self) -> None:
        subprocess.run(["cp", "--archive", str(self._debian.tree), str(self.tree)], check=True)
        self.write("/etc/hostname", f"{self.name}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost {self.name}\n")
        (self.tree / "etc/machine-id").write_text("")

    def _usr(self) -> list[str]:
        return []

    def _programs(self) -> list[str]:
        return [f"--bind-ro={self._debian.packages}:{PACKAGES}"]

    def install(self, *packages: str) -> None:
        command = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages)
        self.run("apt-get", "--quiet", "update", seconds=SET_UP_SECONDS)
        self.run("env", "DEBIAN_FRONTEND=noninteractive", *command, seconds=SET_UP_SECONDS)


def _entry(path: pathlib.Path) -> str:
    """Return the entry of a package in the index of its directory."""
    fields = subprocess.run(["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{fields.rstrip()}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"


def _run(*command: str) -> None:
    done = completed(command, _DOWNLOAD_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}"
