"""``nova-lite-manage upgrade``: the order of hosts, the stop at the first unhealthy one, and the resumption."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base import version
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import services
from tests.support.manage import Tool

OLD, NEW = "0.0.9", version.VERSION
#: Host with its daemons. Their names are not in the order of an upgrade.
CLOUD = {
    "a-compute": ["nova-compute"],
    "b-controller": ["nova-scheduler", "nova-conductor"],
    "c-compute": ["nova-compute"],
    "z-scheduler": ["nova-scheduler"],
}
ORDER = ["b-controller", "z-scheduler", "a-compute", "c-compute"]

#: Upgrades a host: appends its name to a file and sets the version of its daemons, unless it is to fail.
PROGRAM = """
import os, sqlite3, sys
path, host, version = sys.argv[1:]
open(path + "/log", "a").write(host + "\\n")
if os.path.exists(path + "/fails-" + host):
    sys.exit(3)
if not os.path.exists(path + "/lags-" + host):
    with sqlite3.connect(path + "/db.sqlite") as connection:
        connection.execute("UPDATE services SET version = ? WHERE host = ?", (version, host))
"""


@pytest.fixture
def db(tool: Tool) -> Iterator[Database]:
    """Provide the database of a cloud with the old version."""
    database = tool.database_of()
    for host, binaries in CLOUD.items():
        for binary in binaries:
            database.write(services.report, host, binary, binary, OLD)
    yield database
    database.close()


@pytest.fixture
def command(tool: Tool) -> str:
    program = tool.path / "upgrade.py"
    program.write_text(PROGRAM)
    return f"{sys.executable} {program} {tool.path} {{host}} {NEW}"


def upgraded(path: Path) -> list[str]:
    log = path / "log"
    return log.read_text().split() if log.exists() else []


def test_hosts_are_upgraded_in_order(tool: Tool, db: Database, command: str) -> None:
    lines = tool("upgrade", "run", "--command", command).splitlines()
    assert upgraded(tool.path) == ORDER
    assert lines[0].startswith("[1/4] b-controller: ") and lines[0].endswith(f"b-controller {NEW}")
    assert lines[1] == f"[1/4] b-controller: has {NEW} now and is healthy."
    assert lines[-1] == f"4 host(s) have {NEW}."


def test_upgrade_stops_at_the_first_failure_and_goes_on_from_there(tool: Tool, db: Database, command: str) -> None:
    failing = tool.path / "fails-a-compute"
    failing.touch()
    assert "the command for a-compute ended with status 3." in tool.fails("upgrade", "run", "--command", command)
    assert upgraded(tool.path) == ORDER[:3]
    failing.unlink()
    (tool.path / "log").unlink()
    lines = tool("upgrade", "run", "--command", command).splitlines()
    assert lines[:2] == [f"[{n}/4] {host}: has {NEW} and is healthy." for n, host in enumerate(ORDER[:2], 1)]
    assert upgraded(tool.path) == ORDER[2:]


def test_host_that_does_not_report_the_version_stops_the_upgrade(tool: Tool, db: Database, command: str) -> None:
    """Its command has ended with status 0, which proves nothing."""
    (tool.path / "lags-z-scheduler").touch()
    error = tool.fails("upgrade", "run", "--command", command, "--timeout", "1")
    assert f"z-scheduler is not healthy after 1 s: nova-scheduler has {OLD}." in error
    assert upgraded(tool.path) == ORDER[:2]


def test_host_that_is_down_stops_the_upgrade(tool: Tool, db: Database, command: str) -> None:
    down = sa.update(models.Service).where(models.Service.host == "a-compute").values(up=False, version=NEW)
    db.write(lambda uow: uow.change(down))
    error = tool.fails("upgrade", "run", "--command", command, "--timeout", "1")
    assert "a-compute is not healthy after 1 s: nova-compute is down." in error
    assert "c-compute" not in upgraded(tool.path)


def test_rollback_has_the_reverse_order(tool: Tool, db: Database, command: str) -> None:
    tool("upgrade", "run", "--command", command.replace(NEW, "0.0.8"), "--rollback", "--to", "0.0.8")
    assert upgraded(tool.path) == ORDER[::-1]


def test_upgrade_without_a_command_waits_for_the_operator(tool: Tool, db: Database) -> None:
    db.write(lambda uow: uow.change(sa.update(models.Service).values(version=NEW)))
    db.write(services.report, "c-compute", "nova-compute", "compute", OLD)
    error = tool.fails("upgrade", "run", "--timeout", "1")
    assert "c-compute is not healthy" in error
    assert (
        f"[4/4] c-compute: upgrade it now, such as by nova-lite-setup upgrade; waiting (nova-compute has {OLD})."
        in (tool.text)
    )


def test_chosen_hosts_only_are_upgraded(tool: Tool, db: Database, command: str) -> None:
    tool("upgrade", "run", "--command", command, "--host", "c-compute")
    assert upgraded(tool.path) == ["c-compute"]
    assert "no daemon of the host nobody has ever reported" in tool.fails("upgrade", "run", "--host", "nobody")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("ssh host upgrade", "it has no {host}"),
        ("ssh '{host}", "No closing quotation"),
        ("/nowhere/program {host}", "/nowhere/program: No such file or directory"),
    ],
)
def test_command_that_cannot_work_is_refused(tool: Tool, db: Database, template: str, said: str) -> None:
    assert said in tool.fails("upgrade", "run", "--command", template)
    assert {service.version for service in db.read(services.list_)} == {OLD}


def test_name_of_a_host_cannot_become_an_option(tool: Tool, db: Database) -> None:
    db.write(services.report, "-oProxyCommand=x", "nova-conductor", "conductor", OLD)
    assert "is not a host name" in tool.fails("upgrade", "run", "--command", "echo {host}")


def test_status_lists_the_versions(tool: Tool, db: Database) -> None:
    listed = tool.json("upgrade", "status")
    assert [item["host"] for item in listed] == [host for host in ORDER for _ in CLOUD[host]]
    assert {item["version"] for item in listed} == {OLD} and all(item["since"] for item in listed)
