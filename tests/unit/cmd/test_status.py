"""``nova-lite-status upgrade check``: Nova's table and exit status, and what each check finds."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import version
from nova_lite.cmd import status
from nova_lite.cmd.manage import configuration, upgrade_checks
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import services
from nova_lite.db.migrations import schema
from nova_lite.rpc import keys
from tests.support import keys as made_keys
from tests.support import make
from tests.support.made_up_schemas import set_versions
from tests.support.manage import Tool


@pytest.fixture
def db(tool: Tool) -> Iterator[Database]:
    database = tool.database_of()
    yield database
    database.close()


class Status:
    """Calls the tool with the files of a conductor's machine."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        made_keys.make(tool.path / "keys", [("conductor", "h1"), ("api", "h1")])
        tool.configure(f"host = h1\n[rpc]\nkeys_directory = {tool.path}/keys")

    def __call__(self, *arguments: str, status_code: int) -> str:
        cfg.CONF.reset()
        files = ["--config-file", str(self._tool.config), "--directory", str(self._tool.path / "etc")]
        found = status.main(["upgrade", "check", *files, *arguments])
        text, error = self._tool.capsys.readouterr()
        assert found == status_code, text + error
        return text

    def of(self, name: str, status_code: int = 0) -> tuple[int, str | None]:
        """Return the result of one check by its name. ``status_code``: exit status of all."""
        checks = json.loads(self("--json", status_code=status_code))["checks"]
        (found,) = [check for check in checks if check["check"] == name]
        return found["result"], found["details"]


@pytest.fixture
def check(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Status:
    """Provide the tool on a machine whose configuration has no problem."""
    monkeypatch.setattr(configuration, "problems_of_machine", lambda directory: [])
    return Status(tool)


def test_result_is_novas_table(check: Status) -> None:
    text = check(status_code=0)
    lines = [line.strip("| ") for line in text.splitlines()]
    assert lines[1] == "Upgrade Check Results"
    assert lines[3:5] == ["Check: Schema", "Result: Success"]
    assert f"Details: The schema is {schema.head()}, and serves versions from {schema.BASE} on." in text
    assert text.count("Result: Success") == len(upgrade_checks.CHECKS)


def test_schema_that_db_sync_expands_is_a_warning(check: Status, tool: Tool, db: Database, next_migration: str) -> None:
    set_versions(make.conf(tool.database), schema.BASE, schema.BASE)
    with db.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE services DROP COLUMN version_since")
    code, details = check.of("Schema", status_code=2)
    assert (code, details) == (
        1,
        f"The schema is {schema.BASE}, and this version needs {schema.head()}: run db sync.",
    )


@pytest.mark.parametrize(
    ("current", "oldest", "result", "details"),
    [
        ("9999", schema.BASE, 0, "The schema 9999 is newer, and serves this version."),
        ("9999", "9998", 2, "serves programs from 9998 on: upgrade the program"),
    ],
)
def test_newer_schema_fails_unless_it_serves_this_version(
    check: Status, tool: Tool, current: str, oldest: str, result: int, details: str
) -> None:
    set_versions(make.conf(tool.database), current, oldest)
    code, found = check.of("Schema", status_code=result)
    assert code == result and details in str(found)


def test_database_that_does_not_answer_is_a_failure(check: Status, tool: Tool) -> None:
    tool.configure(f"[rpc]\nkeys_directory = {tool.path}/keys", database="mysql+pymysql://nobody:x@127.0.0.1:1/none")
    code, details = check.of("Schema", status_code=2)
    assert code == 2 and "the database is unavailable" in str(details)


def test_machine_without_database_checks_only_itself(check: Status, tool: Tool) -> None:
    tool.config.write_text(f"[DEFAULT]\nstate_path = {tool.path}\n[rpc]\nkeys_directory = {tool.path}/keys\n")
    assert check.of("Schema") == check.of("Operations in progress")
    assert "No file of this machine names a database" in str(check.of("Schema")[1])


def test_daemons_of_another_version_and_those_that_are_down_are_named(check: Status, db: Database) -> None:
    for number in range(1, 8):
        db.write(services.report, f"h{number}", "nova-compute", "compute", "0.0.9")
    db.write(services.report, "ctl", "nova-scheduler", "scheduler", version.VERSION)
    set_down = sa.update(models.Service).where(models.Service.host == "ctl").values(up=False)
    db.write(lambda uow: uow.change(set_down))
    named = ", ".join(f"nova-compute on h{number} (0.0.9)" for number in range(1, 6))
    assert check.of("Versions of daemons", status_code=1) == (
        1,
        f"7 of 8 daemons do not run {version.VERSION}: {named} "
        "and 2 more. 1 daemon(s) are down: nova-scheduler on ctl.",
    )


def test_operation_that_this_version_does_not_know_is_a_failure(check: Status, db: Database) -> None:
    """A program of an older version finds it before it is gone back to."""
    instance_uuid = db.write(make.instance)
    number = db.write(lambda uow: make.action(uow, instance_uuid).id)
    assert check.of("Operations in progress") == (0, "1 in progress.")
    action = models.InstanceAction
    db.write(lambda uow: uow.change(sa.update(action).where(action.id == number).values(action="levitate")))
    assert check.of("Operations in progress", status_code=2) == (
        2,
        "This version cannot carry out levitate, and 1 are in progress: let them end first.",
    )


def end_key(path: Path, host: str, days: float) -> None:
    trusted = keys.read_trusted(str(path))
    for key in trusted:
        if key.host == host:
            key.not_after = keys.now() + datetime.timedelta(days=days)
    keys.write_trusted(str(path), trusted)


def test_keys_that_end_soon_are_a_warning_and_none_is_a_failure(check: Status, tool: Tool) -> None:
    path = tool.path / "keys" / keys.TRUSTED
    assert check.of("Signing keys") == (0, "2 trusted keys are valid.")
    end_key(path, "h1", 3)
    code, details = check.of("Signing keys", status_code=1)
    assert (code, details) == (1, "The keys of api on h1, conductor on h1 end within 30 days.")
    end_key(path, "h1", -1)
    assert "has no trusted key that is valid now" in str(check.of("Signing keys", status_code=2)[1])


def test_rotated_key_is_no_warning(check: Status, tool: Tool) -> None:
    """Its successor is trusted already."""
    path = tool.path / "keys" / keys.TRUSTED
    end_key(path, "h1", 0.02)
    trusted = keys.read_trusted(str(path))
    successors = [keys.PrivateKey.generate().trusted(key.role, key.host, keys.now()) for key in trusted]
    keys.write_trusted(str(path), [*trusted, *successors])
    assert check.of("Signing keys")[0] == 0


def test_permissive_signing_is_a_warning(check: Status, tool: Tool) -> None:
    tool.configure(f"[rpc]\nsigning = permissive\nkeys_directory = {tool.path}/keys")
    assert check.of("Signing keys", status_code=1)[0] == 1


def test_problem_of_the_configuration_is_a_failure(check: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "problems_of_machine", lambda directory: [f"{directory}/api.conf: no", "more"])
    code, details = check.of("Configuration", status_code=2)
    assert code == 2 and str(details).startswith("2 problem(s), see nova-lite-manage config check: ")


def test_renamed_option_is_a_warning(check: Status, tool: Tool) -> None:
    directory = tool.path / "etc"
    directory.mkdir()
    (directory / "api.conf").write_text("[DEFAULT]\nlogdir = /var/log\nuse_json = true\n")
    assert check.of("Renamed options", status_code=1) == (
        1,
        f"{directory}/api.conf: [DEFAULT] logdir is called log-dir now.",
    )


def test_full_disk_is_a_failure(check: Status, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_checks, "FREE_MB", 10**9)
    code, details = check.of("Free disk space", status_code=2)
    # The database has some MiB itself.
    assert code == 2 and f"{tool.path} has " in str(details) and "needs 100000000" in str(details)


def test_user_who_cannot_read_the_configuration_learns_that(
    tool: Tool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "unreadable_files", lambda: [str(tool.config)])
    assert status.main(["upgrade", "check"]) == status.BROKEN
    assert capsys.readouterr().err == f"nova-lite-status: this user cannot read {tool.config}: run it as root.\n"


def test_wrong_configuration_file_ends_the_check(tool: Tool, capsys: Any) -> None:
    cfg.CONF.reset()
    tool.config.write_text("[DEFAULT]\nreport_interval = often\n")
    assert status.main(["upgrade", "check", "--config-file", str(tool.config)]) == status.BROKEN
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nova-lite-status: ") and "report_interval" in line
