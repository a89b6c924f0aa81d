"""Empty machines with a release of ``devstack/releases``: what debootstrap makes, with systemd. They install packages.

The versions of our packages say for which release they are. Others are downloaded before a machine starts, because a
container has no network for that.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from tests.integration.systemd.bare_machine import SET_UP_SECONDS, BareMachine
from tests.integration.systemd.machine import TOP, completed


class Release(NamedTuple):
    """A row of ``devstack/releases``."""

    suite: str
    mark: str
    mirror: str
    components: str
    keyring: str
    script: str


RELEASES = [
    Release(*line.split()) for line in (TOP / "devstack/releases").read_text().splitlines() if not line.startswith("#")
]
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
#: Version of systemd from which on it does not start with control groups of version 1.
_SYSTEMD_WITHOUT_VERSION_1 = 256


def make_tree(release: Release, tree: pathlib.Path) -> pathlib.Path:
    """Make the smallest system with systemd of a release. Returns its list of sources.

    KEYRING names the file of keys of a release whose keys this machine does not have.
    """
    assert shutil.which("debootstrap"), "debootstrap is missing: install the package."
    keyring = pathlib.Path(f"/usr/share/keyrings/{release.keyring}.gpg")
    if not keyring.exists():
        keyring = pathlib.Path(os.environ.get("KEYRING", keyring))
    options = ("--variant=minbase", f"--include={','.join(SYSTEM)}", f"--keyring={keyring}")
    script = f"/usr/share/debootstrap/scripts/{release.script}"
    _run("debootstrap", *options, release.suite, str(tree), release.mirror, script)
    sources = tree / "etc/apt/sources.list"
    sources.write_text(f"deb {release.mirror} {release.suite} {release.components.replace(',', ' ')}\n")
    return sources


class Tree:
    """The smallest system with systemd that debootstrap makes, and our packages.

    ``built``: directory of our packages, as ``devstack/packages.sh`` makes them.
    """

    def __init__(self, directory: pathlib.Path, built: pathlib.Path) -> None:
        self.tree, self.packages = directory / "debian", directory / "packages"
        found = [list(built.glob(f"{name}_*.deb")) for name in OURS]
        assert all(len(paths) == 1 for paths in found), f"{built} has not one package of each of {', '.join(OURS)}."
        release = _release(found[0][0].name)
        self.packages.mkdir(mode=0o755)
        for (path,) in found:
            shutil.copy(path, self.packages)
        self.sources = make_tree(release, self.tree)

    def run(self, script: str, *arguments: str) -> str:
        """Run a script of the shell, with this machine's network. Returns what it prints."""
        return _run(
            "systemd-nspawn",
            "--quiet",
            f"--directory={self.tree}",
            "--register=no",
            "--keep-unit",
            "--as-pid2",
            "--resolv-conf=copy-host",
            "--pipe",
            f"--bind-ro={self.packages}:{PACKAGES}",
            "sh",
            "-euc",
            script,
            "script",
            *arguments,
        )


class Debian(Tree):
    """A tree that machines copy, and the packages that they install. ``names``: of Debian's packages."""

    def __init__(self, directory: pathlib.Path, built: pathlib.Path, names: Sequence[str]) -> None:
        super().__init__(directory, built)
        self.run(_DOWNLOAD, *names)
        for path in (self.tree / "var/cache/apt/archives").glob("*.deb"):
            path.rename(self.packages / path.name)
        shutil.rmtree(self.tree / "var/lib/apt/lists")
        self.sources.write_text(f"deb [trusted=yes] file:{PACKAGES} ./\n")
        (self.packages / "Packages").write_text("\n".join(map(_entry, sorted(self.packages.glob("*.deb")))))

    def megabytes(self) -> int:
        return sum(path.stat().st_size for path in self.packages.glob("*.deb")) >> 20


class ReleaseMachine(BareMachine):
    """A machine with the smallest system of a release in ``tree``, and nothing of ours."""

    programs = "/usr/bin"

    def _make_tree(self) -> None:
        self.write("/etc/hostname", f"{self.name}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost {self.name}\n")
        (self.tree / "etc/machine-id").write_text("")
        # Modules are the real machine's matter. systemd of Debian 13 tries to load some.
        (self.tree / "etc/systemd/system/systemd-modules-load.service").symlink_to("/dev/null")

    def _environment(self) -> dict[str, str]:
        """Choose the version of control groups, which systemd-nspawn would choose by the systemd in the tree.

        Version 1 as far as systemd takes it, because `allow_guests` unmounts its hierarchies. libvirt ignores version 2
        in a container whose machine has all controllers in version 1.
        """
        if _VERSION_2.exists():
            return {}
        (library,) = self.tree.glob("usr/lib/*/systemd/libsystemd-shared-*.so")
        version = int(library.stem.removeprefix("libsystemd-shared-"))
        return {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if version >= _SYSTEMD_WITHOUT_VERSION_1 else "0"}

    def _usr(self) -> list[str]:
        return []

    def _programs(self) -> list[str]:
        # A mounted /etc/localtime, which systemd-nspawn makes where there is no tzdata yet, lets that package fail.
        return ["--timezone=off"]


class DebianMachine(ReleaseMachine):
    """A machine with a copy of a tree, which installs our packages."""

    def __init__(self, tree: pathlib.Path, name: str, debian: Debian, shared: Sequence[str] = ()) -> None:
        self._debian = debian
        super().__init__(tree, name, shared)

    def _make_tree(self) -> None:
        subprocess.run(["cp", "--archive", str(self._debian.tree), str(self.tree)], check=True)
        super()._make_tree()

    def _programs(self) -> list[str]:
        return [*super()._programs(), f"--bind-ro={self._debian.packages}:{PACKAGES}"]

    def install(self, *packages: str) -> None:
        command = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages)
        self.run("apt-get", "--quiet", "update", seconds=SET_UP_SECONDS)
        self.run("env", "DEBIAN_FRONTEND=noninteractive", *command, seconds=SET_UP_SECONDS)


def _release(package: str) -> Release:
    """Return the release that a package of ours is for."""
    for release in RELEASES:
        if f"~{release.mark}_" in package:
            return release
    raise AssertionError(f"{package} is for none of {', '.join(release.mark for release in RELEASES)}.")


def _entry(path: pathlib.Path) -> str:
    """Return the entry of a package in the index of its directory."""
    fields = subprocess.run(["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{fields.rstrip()}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"


def _run(*command: str) -> str:
    done = completed(command, _DOWNLOAD_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}"
    return done.stdout
