"""The documentation names what there is, and nothing else."""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from nova_lite import operations, rpc
from nova_lite.cmd import manage
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.scheduler.rpcapi import SchedulerRPC
from tests.model.protections import PROTECTIONS, Protection

TOP = pathlib.Path(__file__).parents[3]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
ARCHITECTURE = (TOP / "docs/explanation/architecture.md").read_text()


def rpc_methods() -> list[str]:
    found: list[str] = []
    for protocol in (ConductorRPC, SchedulerRPC, ComputeRPC):
        found += rpc.contract_of(protocol).methods
    return sorted({*found, *(step.method for step in operations.command_methods().values())})


@pytest.mark.parametrize("method", rpc_methods())
def test_rpc_method_is_in_the_message_table(method: str) -> None:
    table = [line for line in ARCHITECTURE.splitlines() if line.startswith("| ") and "→" in line]
    assert any(f"`{method}`" in line for line in table)


def test_the_message_table_names_no_method_that_is_gone() -> None:
    table = [line for line in ARCHITECTURE.splitlines() if re.match(r"\| [a-z, ]+ → [a-z ]+ \|", line)]
    assert len(table) > 10
    named = {name for line in table for name in re.findall(r"`([a-z]+_[a-z_]+)`", line)}
    assert named - {"resync_interval"} <= set(rpc_methods())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_paths_exist(page: pathlib.Path) -> None:
    """Paths of the repository in code font; NAME and braces stand for several."""
    for path in re.findall(r"`((?:nova_lite|etc|devstack|tests|docs)/[A-Za-z0-9_./-]+)`", page.read_text()):
        if not re.search(r"[A-Z]{4}|local\.conf$", path):
            assert (TOP / path).exists(), path


def manage_commands() -> list[str]:
    found = []
    for page in PAGES:
        if page.name == "cli.md":  # it shows usages, not commands
            continue
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
            found += [line.split("#")[0].strip() for line in block.splitlines() if line.startswith("nova-lite-manage ")]
    return sorted(set(found))


@pytest.mark.parametrize("command", manage_commands())
def test_manage_command_is_understood(command: str) -> None:
    arguments = manage.parser().parse_args(shlex.split(command)[1:])
    assert callable(arguments.run)


def test_there_are_commands_to_check() -> None:
    assert len(manage_commands()) > 3


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection.rule)
def test_the_table_of_protections_says_where_each_is(protection: Protection) -> None:
    page = (TOP / "docs/explanation/delivery-guarantees.md").read_text()
    row = f"| {protection.rule} | {protection.upholds} | {protection.code or 'planned'} |"
    assert any(line.startswith(row) for line in page.splitlines())
    for module in re.findall(r"[a-z_/]+\.py", protection.code):
        assert list((TOP / "nova_lite").rglob(module)), module
