"""The locked requirements of devstack match setup.cfg."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "devstack/requirements").glob("*.txt"))


def locked(name: str) -> dict[str, list[str]]:
    """Versions by package; one may have several, each for other Pythons."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text(name), re.MULTILINE):
        found.setdefault(canonicalize_name(package), []).append(version)
    return found


def text(name: str) -> str:
    return (ROOT / "devstack/requirements" / f"{name}.txt").read_text()


def wanted(section: str, option: str) -> list[Requirement]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in config[section][option].split("\n") if line]


@pytest.mark.parametrize("name", ["stack", "tests"])
def test_a_lock_has_what_the_package_needs(name: str) -> None:
    needed = wanted("options", "install_requires")
    for extra in ("libvirt", "ldap", "oidc", *(["test"] if name == "tests" else [])):
        needed += wanted("options.extras_require", extra)
    versions = locked(name)
    for requirement in needed:
        found = versions.get(canonicalize_name(requirement.name), [])
        fits = found and all(requirement.specifier.contains(version) for version in found)
        assert fits, f"{requirement}: {name}.txt has {found}; run devstack/lock.sh {name}"


def test_libvirt_binding_is_an_extra_because_it_is_compiled() -> None:
    names = [requirement.name for requirement in wanted("options", "install_requires")]
    assert "libvirt-python" not in names
    assert [requirement.name for requirement in wanted("options.extras_require", "libvirt")] == ["libvirt-python"]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_of_a_lock_has_hashes(path: Path) -> None:
    entries = [entry for entry in re.split(r"\n(?=\S)", path.read_text()) if "==" in entry.partition("\n")[0]]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_no_index(path: Path) -> None:
    assert "://" not in path.read_text()
