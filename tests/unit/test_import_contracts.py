"""The import contracts in ``pyproject.toml`` name every program that they are about, and layers every room."""

from __future__ import annotations

import configparser
import tomllib
from pathlib import Path
from typing import Any

import pytest

import nova_lite

ROOT = Path(nova_lite.__file__).parent
TOP = ROOT.parent

#: Programs that may reach SQL: the conductor, and what an operator runs on its machine.
MAY_REACH_SQL = {"conductor", "manage", "setup", "status", "entry"}


def contract(name: str) -> dict[str, Any]:
    (found,) = [
        item
        for item in tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if item["name"] == name
    ]
    return found


def programs() -> set[str]:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"].split()
    return {item.split(":")[0].removeprefix("nova_lite.cmd.") for item in scripts if item.startswith("nova_lite.cmd.")}


def test_contract_about_sql_names_every_program_that_must_not_reach_it() -> None:
    sources = set(contract("Only the conductor and the tools reach SQL at all")["source_modules"])
    wanted = programs() - MAY_REACH_SQL
    assert {"api", "compute", "scheduler", "registrar"} <= wanted
    assert {f"nova_lite.cmd.{name}" for name in wanted} - sources == set()


def test_contract_about_the_cloud_in_one_process_names_every_daemon() -> None:
    sources = set(contract("No daemon knows the cloud in one process")["source_modules"])
    daemons = programs() - {"entry", "setup", "status"}
    assert {f"nova_lite.cmd.{name}" for name in daemons} - sources == set()


def test_contract_of_the_second_distribution_names_every_other_room() -> None:
    found = contract("The second distribution imports the APIs and what they are made of")["forbidden_modules"]
    rooms = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    allowed = {"__init__", "api", "base", "objects", "policies"}
    assert {name for name in found if name.startswith("nova_lite.")} == {
        f"nova_lite.{name}" for name in rooms - allowed
    }


@pytest.mark.parametrize("container", ["nova_lite", "nova_lite.db", "nova_lite.conductor"])
def test_layers_are_exhaustive(container: str) -> None:
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [item for item in contracts if item["type"] == "layers" and item["containers"] == [container]]
    assert layers["exhaustive"] is True and "exhaustive_ignores" not in layers and "ignore_imports" not in layers
