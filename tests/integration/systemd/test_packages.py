"""Debian packages: installed, set up, upgraded, removed and purged, in a container with systemd.

They are built first, unless ``NOVA_LITE_PACKAGES`` names a directory that has them.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.systemd.bare_machine import SET_UP_SECONDS, BareMachine
from tests.integration.systemd.debian import PACKAGES as MOUNTED
from tests.integration.systemd.debian import Tree
from tests.integration.systemd.machine import DEADLINE, TOP
from tests.support import pages
from tests.support.waiting import wait_for_none

pytestmark = pytest.mark.skipif(os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG=1 builds the packages")

PACKAGES = ("nova-lite-common", "nova-lite-controller", "nova-lite-compute")
DAEMONS = ("conductor", "scheduler", "api", "novncproxy", "serialproxy")
UNITS = [f"nova-lite-{name}.service" for name in DAEMONS]
#: Files that other programs write while the packages are there: the broker, D-Bus, the journal, dpkg and locks.
OTHERS = re.compile(
    r"/(var/lib/(rabbitmq|dpkg|systemd)|var/log/(rabbitmq|journal|dpkg|wtmp)|var/cache|var/tmp|root/\.|etc/(\.pwd\.lock|(passwd|group"
    r"|shadow|gshadow|subuid|subgid)-?$|ld\.so\.cache)|etc/systemd/system/(multi-user\.target\.wants/rabbitmq|rabbitmq-server\.service$|epmd))"
)
NEWER = "9.0.0"
#: A server of another host.
THEIRS = "22222222-0000-4000-8000-000000000000"
#: Path of the command, since the tests' own path comes before the container's.
MANAGE = "/usr/bin/nova-lite-manage"
#: Packages that the commands of a page install on an empty machine, at most.
PULLED = {
    ("howto/debian-packages.md", "Install a controller"): 130,
    ("howto/debian-packages.md", "Install a compute host"): 40,
    ("howto/join-a-host.md", "By hand"): 120,
}


class PackagedMachine(BareMachine):
    """A machine whose /usr takes packages, without the checkout's programs. ``changes`` has what they put there."""

    @property
    def changes(self) -> pathlib.Path:
        return self.tree.parent / "usr"

    def _usr(self) -> list[str]:
        self.changes.mkdir(mode=0o755)
        return [f"--overlay=/usr:{self.changes}:/usr"]

    def _make_units_and_programs(self) -> None:
        """Leave them to the packages."""

    def files(self) -> set[str]:
        """Return the paths of the machine's own files, except those of other programs."""
        found = {
            f"/{path.relative_to(self.tree)}"
            for top in ("etc", "var", "root")
            for path in (self.tree / top).rglob("*")
            if not path.is_dir() or path.is_symlink()
        }
        found |= {f"/usr/{path.relative_to(self.changes)}" for path in self.changes.rglob("*") if path.is_file()}
        return {path for path in found if not OTHERS.match(path)}

    def install(self, packages: list[pathlib.Path]) -> str:
        shutil.rmtree(self.tree / "root/packages", ignore_errors=True)
        (self.tree / "root/packages").mkdir()
        for path in packages:
            shutil.copy(path, self.tree / "root/packages")
        names = [f"/root/packages/{path.name}" for path in packages]
        return self.run("dpkg", "--force-confold", "--install", *names, seconds=SET_UP_SECONDS)


def package(name: str, directory: pathlib.Path) -> pathlib.Path:
    (found,) = directory.glob(f"{name}_*.deb")
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    given = os.environ.get("NOVA_LITE_PACKAGES")
    if given:
        return pathlib.Path(given)
    made = tmp_path_factory.mktemp("packages")
    subprocess.run([str(TOP / "devstack/packages.sh"), str(made)], check=True)
    return made


@pytest.fixture(scope="module")
def newer(packages: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Pack the packages once more, as those of a higher version."""
    made = tmp_path_factory.mktemp("newer")
    for name in PACKAGES:
        tree = made / name
        subprocess.run(["dpkg-deb", "--raw-extract", str(package(name, packages)), str(tree)], check=True)
        control = tree / "DEBIAN/control"
        old = re.search(r"^Version: (.*)$", control.read_text(), re.MULTILINE)
        assert old is not None
        control.write_text(control.read_text().replace(old[1], NEWER))
        for metadata in tree.glob("usr/lib/nova-lite/*/lib/python3*/site-packages/nova_lite-*.dist-info/METADATA"):
            text = re.sub(r"^Version: .*$", f"Version: {NEWER}", metadata.read_text(), count=1, flags=re.MULTILINE)
            metadata.write_text(text)
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(made / f"{name}_{NEWER}.deb")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


@pytest.fixture(scope="module")
def empty(packages: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    made = Tree(tmp_path_factory.mktemp("empty"), packages)
    made.run("apt-get --quiet update")
    return made


@pytest.mark.parametrize("place", PULLED, ids=" ".join)
def test_commands_of_the_page_install_few_packages(empty: Tree, place: tuple[str, str]) -> None:
    """Hundreds of packages are recommended: on a compute host, a gigabyte."""
    (first, *_) = pages.blocks(*place)
    commands = [line.replace("apt ", "apt-get --simulate ", 1) for line in first if line.startswith("apt ")]
    said = empty.run("\n".join([f"cd {MOUNTED}", *commands]))
    installed = {line.split()[1] for line in said.splitlines() if line.startswith("Inst ")}
    assert 0 < len(installed) <= PULLED[place], sorted(installed)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackagedMachine]:
    made = PackagedMachine(tmp_path_factory.mktemp("packaged") / "tree")
    try:
        yield made
    finally:
        made.stop()


def test_packages_from_installation_to_purge(
    bare: PackagedMachine, packages: pathlib.Path, newer: pathlib.Path
) -> None:
    """Go through the life of the packages in one test, because each step needs the one before."""
    before, users = bare.files(), bare.run("cat", "/etc/passwd", "/etc/group")
    _install(bare, packages)
    _set_up(bare)
    kept = _upgrade(bare, newer)
    _remove(bare, kept)
    _purge(bare)
    shutil.rmtree(bare.tree / "root/packages")
    assert bare.files() - before == set()
    assert bare.run("cat", "/etc/passwd", "/etc/group") == users
    assert bare.run("find", "/etc/systemd", "/run/systemd", "-name", "nova-lite*").split() == []
    assert "no packages found matching" in bare.run("dpkg-query", "--show", "nova-lite*", check=False)
    as_broker = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "rabbitmqctl", "--quiet")
    assert "nova-lite" not in bare.run(*as_broker, "list_vhosts") + bare.run(*as_broker, "list_users")


def _install(bare: PackagedMachine, packages: pathlib.Path) -> None:
    """Install the packages: users have their numbers, nothing is started, and a compute host has no SQL."""
    bare.install([package(name, packages) for name in PACKAGES])
    assert bare.run("id", "--user", "nova-lite-conductor").strip() == "60722"
    assert "60720(nova-lite)" in bare.run("id", "nova-lite-api")
    for unit in (*UNITS, "nova-lite-compute.service"):
        assert bare.property_of(unit, "ActiveState") == "inactive"
        assert bare.property_of(unit, "FragmentPath").endswith(f"/lib/systemd/system/{unit}")
        assert bare.run("systemd-analyze", "verify", unit) == ""
    python = "/usr/lib/nova-lite/compute/bin/python"
    assert "SQL: None" in bare.run(
        python, "-W", "ignore", "-c",
        "import nova_lite.cmd.compute, nova_lite.virt.libvirt.driver, importlib.util as util;"
        "print('SQL:', *{util.find_spec(name) for name in ('sqlalchemy', 'alembic', 'psycopg', 'pymysql', 'MySQLdb')})",
    )  # fmt: skip


def _set_up(bare: PackagedMachine) -> None:
    """Set up a controller with the package's programs and units."""
    assert "login works" in bare.run("/usr/bin/nova-lite-setup", "controller", seconds=SET_UP_SECONDS)
    for unit in UNITS:
        assert bare.property_of(unit, "FragmentPath").endswith(f"/lib/systemd/system/{unit}")
        assert not bare.property_of(unit, "FragmentPath").startswith("/etc")


def _upgrade(bare: PackagedMachine, newer: pathlib.Path) -> dict[str, str]:
    """Upgrade: each daemon restarts once, and the operator's files stay. Returns these files."""
    with open(bare.tree / "etc/nova-lite/nova-lite.conf", "a", encoding="utf-8") as file:
        file.write("# A change of the operator.\n")
    kept = {path.name: path.read_text() for path in (bare.tree / "etc/nova-lite").glob("*.*") if path.is_file()}
    pids = {unit: bare.property_of(unit, "MainPID") for unit in UNITS}
    bare.install([package(name, newer) for name in PACKAGES])

    def unchanged() -> list[str]:
        return [
            bare.run("journalctl", "--unit", unit, "--lines=20")
            for unit in UNITS
            if bare.property_of(unit, "ActiveState") != "active" or bare.property_of(unit, "MainPID") == pids[unit]
        ]

    wait_for_none("all daemons are restarted", unchanged, DEADLINE, 0.3)
    for unit in UNITS:
        lines = bare.run("journalctl", "--output=cat", "--unit", unit).splitlines()
        assert sum(line.startswith(f"Started {unit}") for line in lines) == 2, lines
    assert {path.name: path.read_text() for path in (bare.tree / "etc/nova-lite").glob("*.*") if path.is_file()} == kept
    assert bare.run(MANAGE, "--version").split() == ["nova-lite-manage", NEWER]

    def older() -> list[str]:
        services = bare.run(MANAGE, "service", "list")
        return [] if services.count(NEWER) >= 2 else [services]

    wait_for_none("services report the newer version", older, DEADLINE, 1)
    assert "can work" in bare.run(MANAGE, "config", "check")
    return kept


def _remove(bare: PackagedMachine, kept: dict[str, str]) -> None:
    """Remove the packages: daemons end, and the configuration and the records of the cloud stay."""
    bare.run("dpkg", "--remove", *reversed(PACKAGES), seconds=SET_UP_SECONDS)
    for unit in UNITS:
        assert bare.property_of(unit, "ActiveState") == "inactive"
    assert [str(path) for path in bare.changes.rglob("*nova*lite*") if path.is_file()] == []
    found = {path.name: path.read_text() for path in (bare.tree / "etc/nova-lite").glob("*.*") if path.is_file()}
    assert found == kept
    assert (bare.tree / "var/lib/nova-lite/conductor/nova-lite.sqlite").exists()


def _purge(bare: PackagedMachine) -> None:
    """Purge the packages. The remains of another host in directories that are mounted, or behind a link, stay."""
    state = "/var/lib/nova-lite"
    # A file system, a directory of the same file system, and one below a directory that is not shared.
    mounts = {"system": f"{state}/instances", "directory": f"{state}/images", "deep": f"{state}/conductor/deep"}
    bare.run("mkdir", "--parents", "/srv/system", "/srv/link")
    bare.run("mount", "-t", "tmpfs", "tmpfs", "/srv/system")
    bare.run("sh", "-c", f"rm -rf {state}/volumes; ln -s /srv/link {state}/volumes")
    for place, at in mounts.items():
        bare.run("rm", "--recursive", "--force", at)
        bare.run("mkdir", "--parents", f"/srv/{place}", at)
        bare.run("mount", "--bind", f"/srv/{place}", at)
    theirs = [f"/srv/{place}/{THEIRS}/disk" for place in (*mounts, "link")]
    for file in theirs:
        bare.run("sh", "-c", f"mkdir --parents {file.rpartition('/')[0]}; echo theirs >{file}")
    said = bare.run("dpkg", "--purge", *reversed(PACKAGES), check=False, seconds=DEADLINE)
    assert bare.run("cat", *theirs).split() == ["theirs"] * len(theirs), said
    for at in mounts.values():
        assert f"{at} is left: something is mounted there." in said
        bare.run("umount", at)
    assert f"/srv/link is left: {state}/volumes is a link to it." in said
    assert sorted(bare.run("find", state).split()) == sorted([state, f"{state}/conductor", *mounts.values()])
    bare.run("umount", "/srv/system")
    bare.run("rm", "--recursive", "/srv", state)
