"""Files that the set-up writes outside of its own directories: both purges remove all of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from nova_lite.base import trees
from nova_lite.cmd import setup
from nova_lite.cmd.setup import (
    admission,
    balancer,
    broker,
    cluster,
    controller,
    galera,
    libvirt,
    machine,
    monitoring,
    removal,
)
from tests.support import postrm

_MODULES = [importlib.import_module(f"{setup.__name__}.{found.name}") for found in pkgutil.iter_modules(setup.__path__)]
HEADER = "# Written by nova-lite-setup, which replaces it.\n"
CHANGED_UNITS = (*balancer.UNITS, galera.UNIT, broker.UNIT)
#: Files that the set-up writes, by the package whose purge removes them.
WRITTEN = {
    "nova-lite-controller": (
        *broker.FILES,
        *balancer.FILES,
        *galera.FILES,
        *(machine.unit_settings(unit) for unit in CHANGED_UNITS),
        machine.UNITS / galera.RECOVERY,
        galera.REPORT,
        controller.BROKER_CERTIFICATES / "server-key.pem",
        controller.authority_file(),
        monitoring.DIRECTORY / "rules.yml",
    ),
    "nova-lite-compute": (
        libvirt.SOCKET_SETTINGS,
        *(libvirt.PKI / place for place in libvirt.LINKS),
        *(admission.CERTIFICATES / name for name in {*libvirt.LINKS.values()}),
    ),
}
#: Directories of ours, which go as a whole, or as far as no other host uses them.
OWN = (
    machine.CONFIGURATION,
    controller.STATE,
    monitoring.DIRECTORY,
    galera.CERTIFICATES,
    controller.BROKER_CERTIFICATES,
)
#: Files and directories of other programs, in which single lines or entries are ours.
EDITED = (
    controller.CLOUDS,
    cluster.HOSTS,
    libvirt.QEMU,
    libvirt.NETWORK,
    broker.COOKIE,
    galera._DATA,
)
#: Files of a set-up without packages, and a directory that goes with the machine's run.
WITHOUT_PACKAGES = (*removal._FILES, *removal._SOCKETS)

#: A program that fails for a question, and writes down anything else. The broker's replies with its nodes.
PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$PROGRAMS/log"
case "$*" in
*cluster_status*) echo "{\\"disk_nodes\\":[$NODES],\\"running_nodes\\":[$NODES]}" ;;
*list_vhosts*) echo nova-lite ;;
*list_users*) printf 'nova-lite-api\\t[]\\n' ;;
*list*|*show*|*dumpxml*|*is-active*) exit 1 ;;
esac
"""
PROGRAMS = ("systemctl", "setpriv", "virsh", "nft", "ip", "iptables", "ip6tables")


class Files:
    """The files of a machine below ``root``, and the lines of the programs that a script of a package runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._monkeypatch = root, monkeypatch
        programs = root / "bin"
        programs.mkdir(parents=True)
        for name in PROGRAMS:
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("PROGRAMS", str(programs))
        self.has_brokers("rabbit@c1")

    def has_brokers(self, *nodes: str) -> None:
        self._monkeypatch.setenv("NODES", ",".join(f'"{node}"' for node in nodes))

    def log(self) -> str:
        return (self.root / "bin/log").read_text()

    def below(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def write(self, package: str) -> None:
        self._write(machine.CONFIGURATION / "conductor.conf")
        self._write(admission.MEMORY)
        for path in WRITTEN[package]:
            self._write(path)

    def _write(self, path: Path) -> None:
        place = self.below(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        name = libvirt.LINKS.get(str(path.relative_to(libvirt.PKI)) if path.is_relative_to(libvirt.PKI) else "")
        if name is None:
            place.write_text(HEADER)
        else:
            place.symlink_to(self.below(admission.CERTIFICATES / name))

    def left(self, package: str) -> list[Path]:
        return [path for path in WRITTEN[package] if os.path.lexists(self.below(path))]

    def purge_package(self, package: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", postrm.script(package, self.root), "postrm", "purge"]
        environment = {**os.environ, "DPKG_MAINTSCRIPT_PACKAGE": package}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    def remove_by_setup(self) -> None:
        """Run the command with all its paths below ``root``. It runs no program."""
        for module in _MODULES:
            self._relocate(module)
        for owner, name in ((trees, "remove"), (Path, "unlink")):
            self._monkeypatch.setattr(owner, name, self._guarded(getattr(owner, name)))
        self._monkeypatch.setattr(machine, "run", lambda *_, **__: "")
        self._monkeypatch.setattr(machine, "succeeds", lambda *_: False)
        self._monkeypatch.setattr(shutil, "which", lambda name: name)
        removal.run(True, True)

    def _relocate(self, module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if isinstance(value, Path) and is_of_machine(value):
                self._monkeypatch.setattr(module, name, self.below(value))
            elif type(value) is tuple and value and all(isinstance(item, Path) for item in value):
                self._monkeypatch.setattr(module, name, tuple(map(self.below, value)))

    def _guarded(self, remove: Callable[..., object]) -> Callable[..., object]:
        def checked(path: Path, **options: object) -> object:
            assert Path(path).is_relative_to(self.root), path
            return remove(path, **options)

        return checked


def is_of_machine(path: Path) -> bool:
    return path.is_absolute() and path.parts[1:2] in (("etc",), ("run",), ("var",))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path / "machine", monkeypatch)


@pytest.mark.parametrize("package", WRITTEN)
def test_purge_of_the_package_leaves_no_file_of_the_set_up(files: Files, package: str) -> None:
    files.write(package)
    files.purge_package(package)
    assert files.left(package) == []
    assert list(files.root.rglob("*.service.d")) == []


@pytest.mark.parametrize("package", WRITTEN)
def test_removal_by_the_set_up_leaves_no_file_of_it(files: Files, package: str) -> None:
    files.write(package)
    files.remove_by_setup()
    assert files.left(package) == []
    assert list(files.root.rglob("*.service.d")) == []


@pytest.mark.parametrize("remove", ["package", "setup"])
def test_purge_leaves_settings_of_somebody_else_with_the_same_name(files: Files, remove: str) -> None:
    files.write("nova-lite-controller")
    environment = broker._ENVIRONMENT  # The removal by the set-up changes the constant.
    files.below(environment).write_text("NODENAME=rabbit@other\n")
    files.purge_package("nova-lite-controller") if remove == "package" else files.remove_by_setup()
    assert files.below(environment).read_text() == "NODENAME=rabbit@other\n"


def test_purge_of_the_only_controller_deletes_the_accounts_and_the_virtual_host(files: Files) -> None:
    files.write("nova-lite-controller")
    files.purge_package("nova-lite-controller")
    assert "delete_vhost nova-lite" in files.log() and "delete_user nova-lite-api" in files.log()


def test_purge_of_one_of_several_controllers_leaves_the_cluster_of_brokers_its_accounts(files: Files) -> None:
    """The nodes of a cluster have one set of accounts. The other controllers continue with it."""
    files.write("nova-lite-controller")
    files.has_brokers("rabbit@c1", "rabbit@c2", "rabbit@c3")
    files.purge_package("nova-lite-controller")
    assert "delete_" not in files.log()
    assert files.log().index(" stop_app") < files.log().index(" reset") < files.log().index("systemctl stop rabbitmq")


def test_purge_whose_broker_tells_no_nodes_deletes_no_account(files: Files) -> None:
    files.write("nova-lite-controller")
    files.has_brokers()
    done = files.purge_package("nova-lite-controller")
    assert "delete_" not in files.log() and "its accounts and virtual host nova-lite stay" in done.stderr


def test_each_path_of_the_set_up_is_ours_or_known() -> None:
    """A file with a new constant is put into the list above, by which both purges are tested."""
    found = {value for module in _MODULES for value in vars(module).values() if isinstance(value, Path)}
    known = {path for paths in (*WRITTEN.values(), EDITED, OWN, WITHOUT_PACKAGES) for path in paths}
    known |= {parent for path in known for parent in path.parents}
    unknown = [path for path in found if is_of_machine(path) and path not in known]
    ours = (*OWN, *WITHOUT_PACKAGES)
    assert [str(path) for path in unknown if not any(path.is_relative_to(own) for own in ours)] == []
