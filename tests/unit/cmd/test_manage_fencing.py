"""``nova-lite-manage host fence``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import services
from tests.support.manage import Tool, placed, report

ALWAYS = {"ha:restart": "always"}
#: A host that is on until it is switched off, unless its card fails.
PROGRAM = """#!/bin/sh
test -e {path}/broken && exit 1
[ $1 = off ] && touch {path}/off
test -e {path}/off && echo off || echo on
"""


@pytest.fixture
def hosts(tool: Tool, tmp_path: Path) -> Path:
    program, file = tmp_path / "fence", tmp_path / "fencing.yaml"
    program.write_text(PROGRAM.format(path=tmp_path))
    program.chmod(0o700)
    file.write_text(f"h1: [{{agent: script, program: {program}, target: h1}}]\n")
    file.chmod(0o600)
    tool.configure(f"[conductor]\nfencing_file = {file}")
    report(tool, "h1", "h2")
    placed(tool, "h1", metadata_=ALWAYS)
    return tmp_path


def test_methods_are_tested_and_nothing_is_switched(tool: Tool, hosts: Path) -> None:
    assert tool.json("host", "fence", "h1", "--test") == [{"method": "1. script", "power": "on", "error": ""}]
    assert not (hosts / "off").exists()
    (status, other) = tool.json("host", "fence", "--status")
    assert (status["methods"], status["protected"], status["comes_back"]) == ("1. script: on", 1, "yes")
    assert other["comes_back"].startswith("NO")


def test_method_that_fails_is_named(tool: Tool, hosts: Path) -> None:
    (hosts / "broken").touch()
    (check,) = tool.json("host", "fence", "h1", "--test", status=1)
    assert "failed" in check["error"]
    assert "1. script" in tool.fails("host", "fence", "h1", "--off")


def test_host_is_switched_off_and_forced_down(tool: Tool, hosts: Path) -> None:
    assert "Host h1 is off (1. script) and forced down" in tool("host", "fence", "h1", "--off")
    assert (hosts / "off").exists()
    (status,) = tool.json("host", "fence", "h1", "--status")
    assert (status["fenced"], status["by"]) == ("off", "1. script")
    service = tool.database_of().read(services.find, "h1", services.COMPUTE)
    assert service is not None
    assert service.forced_down


def test_promises_are_forgotten_while_no_conductor_runs(tool: Tool, hosts: Path) -> None:
    tool("host", "fence", "h1", "--off")
    with contextlib.closing(tool.database_of()) as database:
        database.write(services.report, "c1", services.CONDUCTOR, "conductor", "")
        said = tool.fails("host", "fence", "--forget")
        assert "the conductor of c1 has reported in the last 30 s. Stop all conductors." in said
        assert "host fence --suspend 60" in said
        database.write(lambda uow: uow.change(sa.update(models.Service).values(last_seen_up=None)))
    assert "hosts make their promises again" in tool("host", "fence", "--forget")
    (status,) = tool.json("host", "fence", "h1", "--status")
    assert status["fenced"] == "no"


def test_promises_are_suspended_once_each_host_has_confirmed_it(tool: Tool, hosts: Path) -> None:
    with contextlib.closing(tool.database_of()) as database:

        def arm(uow: UnitOfWork) -> None:
            service = services.locked(uow, "h1", services.COMPUTE)
            assert service is not None
            row = models.HostLease(host="h1", seconds=0.01, boot_id=service.boot_id, guests=[])
            uow.session.add(row)

        database.write(arm)
        said = tool.fails("host", "fence", "--suspend", "60")
        assert "1 host(s) have not confirmed it" in said
        assert "h1" in said
        database.write(lambda uow: uow.change(sa.update(models.HostLease).values(seconds=0.0)))
        assert "No host fences itself for 60 minutes" in tool("host", "fence", "--suspend", "60")
        database.write(lambda uow: uow.change(sa.update(models.HostLease).values(seconds=50.0)))
        assert "fence themselves again" in tool("host", "fence", "--suspend", "0")


@pytest.mark.parametrize("minutes", ["-1", "1441", "x", "1.5"])
def test_suspension_of_a_wrong_time_is_refused(tool: Tool, minutes: str) -> None:
    tool("host", "fence", f"--suspend={minutes}", status=2)
    assert "minutes are a number from 0 to 1440" in tool.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("h2", "--test"), "no method of host h2"),
        (("h1", "--forget"), "is for all hosts"),
        (("h1", "--suspend", "60"), "is for all hosts"),
        (("--off",), "needs the name of a host"),
        (("h3", "--status"), "h3 could not be found"),
    ],
)
def test_mistake_is_one_line(tool: Tool, hosts: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in tool.fails("host", "fence", *arguments)
