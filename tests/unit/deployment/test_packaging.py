"""The parts of the Debian packages agree with each other and with the rest of the checkout."""

from __future__ import annotations

import configparser
import itertools
import re
import subprocess
from pathlib import Path

import pytest

from nova_lite.cmd.setup import (
    admission,
    broker,
    clouds,
    cluster,
    compute,
    controller,
    libvirt,
    settings,
    upgrade,
)
from tests.support import pages

TOP = Path(__file__).resolve().parents[3]
PACKAGING = TOP / "devstack/packaging"
SCRIPTS = sorted(path for path in (PACKAGING / "debian").iterdir() if path.suffix in (".postinst", ".postrm", ".prerm"))
ROLES = ("controller", "compute")


def of_role(function: str, role: str) -> set[str]:
    """Return what a function of install.sh prints for a role."""
    text = (PACKAGING / "install.sh").read_text()
    found = re.search(rf"^{function}\(\) {{.*?^}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    done = subprocess.run(["bash", "-c", f"{found[0]}\n{function} {role}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_each_unit_is_in_one_package() -> None:
    units = [of_role("units", role) for role in ROLES]
    assert sorted(name for names in units for name in names) == [
        path.name for path in sorted((TOP / "etc/systemd").glob("*.service"), key=lambda path: path.name)
    ]


@pytest.mark.parametrize("role", ROLES)
def test_package_has_the_programs_of_its_units_and_restarts_and_removes_them(role: str) -> None:
    units, programs = of_role("units", role), of_role("programs", role)
    assert {name.removesuffix(".service").rstrip("@") for name in units} <= programs
    assert {"nova-lite-manage", "nova-lite-setup"} <= programs
    for suffix in ("postinst", "prerm"):
        named = re.findall(
            r"'(nova-lite-[a-z0-9@*]+\.service)'", (PACKAGING / f"debian/nova-lite-{role}.{suffix}").read_text()
        )
        assert {name.replace("@*", "@") for name in named} == units


def test_every_program_of_a_machine_is_in_a_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    scripts = {line.split("=")[0].strip() for line in setup["options.entry_points"]["console_scripts"].split("\n")}
    only_for_tests = {"", "nova-lite"}
    assert scripts - only_for_tests == set().union(*(of_role("programs", role) for role in ROLES))


def test_purge_removes_the_users_and_groups_that_the_packages_make() -> None:
    lines = [line.split() for line in (TOP / "etc/sysusers.d/nova-lite.conf").read_text().splitlines()]
    users = {line[1]: line[2] for line in lines if line[0] in ("u", "g")}
    assert sorted(users.values()) == [str(number) for number in range(60720, 60725)]
    text = (PACKAGING / "debian/nova-lite-common.postrm").read_text()
    assert [name for name in users if not re.search(rf"\b(user|group) .*\b{name}\b", text)] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_maintainer_script_is_shell_that_ends_at_the_first_error(path: Path) -> None:
    assert path.read_text().startswith("#!/bin/sh\nset -e\n") and "#DEBHELPER#" in path.read_text()
    subprocess.run(["sh", "-n", str(path)], check=True)


def debian_version(version: str) -> str:
    text = (TOP / "devstack/packages.sh").read_text()
    found = re.search(r"^debian_version\(\) {.*?^}", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    command = f"{found[0]}\ndebian_version {version}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.strip()


def test_debian_versions_are_in_the_order_of_versions() -> None:
    versions = ["0.1.0", "0.2.0.dev9+gffff", "0.2.0.dev10+g0000", "0.2.0a1", "0.2.0rc1", "0.2.0", "0.2.1.dev1+gaaaa"]
    assert debian_version("0.2.0.dev9+gab12rc3") == "0.2.0~~dev9+gab12rc3"
    made = [debian_version(version) for version in versions]
    for older, newer in itertools.pairwise(made):
        subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)


def test_page_lists_the_releases_whose_packages_are_built() -> None:
    """A machine that goes to a newer release gets the packages of that one."""
    rows = [line.split() for line in (TOP / "devstack/releases").read_text().splitlines() if not line.startswith("#")]
    page = (TOP / "docs/howto/debian-packages.md").read_text()
    assert re.findall(r"^\| .*? \| `([a-z]+)` \|", page, re.MULTILINE) == [suite for suite, *_ in rows]
    for (_, older, *_), (_, newer, *_) in itertools.pairwise(rows):
        if older[:3] == newer[:3]:
            subprocess.run(["dpkg", "--compare-versions", f"1.0~{older}", "lt", f"1.0~{newer}"], check=True)


def test_purge_knows_what_the_set_up_leaves_outside_of_our_directories() -> None:
    compute_script = (PACKAGING / "debian/nova-lite-compute.postrm").read_text()
    of_libvirt = (*libvirt.MARKS, libvirt.QEMU, libvirt.NETWORK, *libvirt.LINKS)
    of_libvirt += (libvirt.SOCKET_SETTINGS, libvirt.TLS_SOCKET)
    for text in (*of_libvirt, admission.MEMORY, admission.CERTIFICATES):
        assert str(text) in compute_script
    controller_script = (PACKAGING / "debian/nova-lite-controller.postrm").read_text()
    marks = [mark.replace("NAME", ".*") for mark in clouds.marks("NAME")]
    for text in (*marks, f"delete_vhost {broker.VHOST}", f"'^{broker.PREFIX}-'"):
        assert text in controller_script
    for text in (*cluster.HOSTS_MARKS, cluster.HOSTS):
        assert str(text) in controller_script


@pytest.mark.parametrize("role", ROLES)
def test_package_leaves_restarts_to_the_command_that_upgrades_a_machine(role: str) -> None:
    assert f'[ -z "${upgrade.ENVIRONMENT}" ]' in (PACKAGING / f"debian/nova-lite-{role}.postinst").read_text()


def recommended(package: str) -> set[str]:
    text = (PACKAGING / "debian/control").read_text()
    (part,) = (part for part in text.split("\n\n") if f"Package: {package}\n" in part)
    found = re.search(r"^Recommends: (.*)$", part, re.MULTILINE)
    assert found is not None
    return set(found[1].split(", "))


def test_packages_recommend_what_the_set_up_installs_and_the_page_lists() -> None:
    assert recommended("nova-lite-controller") == set(controller.PACKAGES)
    assert recommended("nova-lite-compute") == set(compute.PACKAGES)
    (first, *_) = pages.blocks("howto/join-a-host.md", "By hand")
    named = {word for line in first for word in line.removeprefix(controller.INSTALL).split()}
    assert named == set(compute.PACKAGES)


def test_pages_install_packages_without_what_these_recommend() -> None:
    """Recommended packages of libvirt and qemu are a desktop, and a gigabyte. The packages that pip recommends are
    compilers."""
    lines = [line.strip() for path in (TOP / "docs").rglob("*.md") for line in path.read_text().splitlines()]
    commands = [line for line in lines if re.match(r"apt(-get)? install ", line)]
    assert len(commands) >= 7
    assert [line for line in commands if not line.startswith(controller.INSTALL)] == []


@pytest.mark.parametrize("place", ["nowhere", "path", "beside"])
def test_last_lines_of_the_set_up_name_the_client_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "venv/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for name in ("path", "venv"):
        (tmp_path / name).mkdir()
    command = {"path": "openstack", "beside": f"{tmp_path}/venv/openstack"}.get(place)
    if command is not None:
        program = tmp_path / ("path" if place == "path" else "venv") / "openstack"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    said = controller.farewell(settings.Settings("127.0.0.1", "sqlite", "r", "cloud", "", "h1"))
    if command is None:
        assert "openstack --os-cloud" not in said
        assert "apt install --no-install-recommends python3-openstackclient" in said
    else:
        assert f"\n    {command} --os-cloud cloud service list\n" in said
