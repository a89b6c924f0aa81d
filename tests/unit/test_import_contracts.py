"""The import contracts in ``pyproject.toml`` name every room and every program that they are about."""

from __future__ import annotations

import configparser
import tomllib
from pathlib import Path
from typing import Any

import nova_lite

ROOT = Path(nova_lite.__file__).parent
TOP = ROOT.parent

#: Programs that may reach SQL: the conductor, and what an operator runs on its machine.
MAY_REACH_SQL = {"conductor", "manage", "setup", "status", "dev"}


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


def rooms() -> set[str]:
    return {f"nova_lite.{path.parent.name}" for path in ROOT.glob("*/__init__.py")}


def test_contract_about_sql_names_every_program_that_must_not_reach_it() -> None:
    sources = set(contract("Only the conductor and the tools reach SQL at all")["source_modules"])
    wanted = programs() - MAY_REACH_SQL
    assert {"api", "compute", "scheduler", "registrar"} <= wanted
    assert {f"nova_lite.cmd.{name}" for name in wanted} - sources == set()


def test_contract_about_sql_names_every_room_but_those_of_sql() -> None:
    sources = set(contract("Only the conductor and the tools reach SQL at all")["source_modules"])
    assert rooms() - sources == {"nova_lite.cmd", "nova_lite.conductor", "nova_lite.db"}


def test_contracts_about_all_rooms_name_every_room() -> None:
    foundations = contract("The foundations import no other room")
    assert rooms() - {*foundations["forbidden_modules"]} == {"nova_lite.base"}
    commands = contract("Only a command knows the daemons, which are commands")
    assert rooms() - {*commands["source_modules"]} == {"nova_lite.base", "nova_lite.cmd"}
    failpoints = contract("Failpoints are passed at seams only")
    assert rooms() - {*failpoints["source_modules"]} == {"nova_lite.base"}
    plugin = contract("The pytest plug-in loads nothing of the cloud")
    assert rooms() - {*plugin["forbidden_modules"]} == set()


def test_contract_about_the_cloud_in_one_process_names_every_daemon() -> None:
    sources = set(contract("No daemon knows the cloud in one process")["source_modules"])
    daemons = programs() - {"dev", "setup", "status"}
    assert {f"nova_lite.cmd.{name}" for name in daemons} - sources == set()
