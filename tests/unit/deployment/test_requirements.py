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
    found: list[Requirement] = []
    for requirement in map(Requirement, filter(None, config[section][option].split("\n"))):
        extras = sorted(requirement.extras) if requirement.name == "nova_lite" else None
        found += [requirement] if extras is None else of_extras(*extras)
    return found


def of_extras(*names: str) -> list[Requirement]:
    return [requirement for name in names for requirement in wanted("options.extras_require", name)]


#: Extras by lock.
EXTRAS = {
    "stack": ["all", "libvirt", "mariadb", "ldap", "oidc"],
    "tests": ["test", "libvirt", "mariadb", "ldap", "oidc"],
    "compute": ["compute", "libvirt"],
    "controller": ["api", "conductor", "scheduler", "console", "mariadb", "ldap", "oidc"],
}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_lock_has_what_the_package_needs(name: str) -> None:
    needed = [*wanted("options", "install_requires"), *of_extras(*EXTRAS[name])]
    versions = locked(name)
    for requirement in needed:
        found = versions.get(canonicalize_name(requirement.name), [])
        fits = found and all(requirement.specifier.contains(version) for version in found)
        assert fits, f"{requirement}: {name}.txt has {found}; run devstack/lock.sh {name}"


@pytest.mark.parametrize(("extra", "name"), [("libvirt", "libvirt-python"), ("mariadb", "mysqlclient")])
def test_binding_is_an_extra_because_it_is_compiled(extra: str, name: str) -> None:
    required = [*wanted("options", "install_requires"), *of_extras("all")]
    assert name not in [requirement.name for requirement in required]
    assert [requirement.name for requirement in of_extras(extra)] == [name]


def test_lock_of_compute_hosts_has_no_sql() -> None:
    """Nor has any other extra than that of conductors."""
    sql = {"sqlalchemy", "alembic", "psycopg", "psycopg-binary", "pymysql", "mysqlclient"}
    assert sql - {"psycopg-binary"} == {canonicalize_name(item.name) for item in of_extras("conductor", "mariadb")}
    assert sql <= set(locked("controller"))
    assert sql.isdisjoint(locked("compute"))
    others = [*wanted("options", "install_requires"), *of_extras("api", "scheduler", "compute", "console", "libvirt")]
    assert sql.isdisjoint(canonicalize_name(item.name) for item in others)


@pytest.mark.parametrize("name", ["compute", "controller"])
def test_lock_of_a_debian_package_has_the_versions_of_the_stack(name: str) -> None:
    stack = locked("stack")
    assert {package: stack.get(package) for package in locked(name)} == locked(name)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_of_a_lock_has_hashes(path: Path) -> None:
    entries = [entry for entry in re.split(r"\n(?=\S)", path.read_text()) if "==" in entry.partition("\n")[0]]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_no_index(path: Path) -> None:
    assert "://" not in path.read_text()
