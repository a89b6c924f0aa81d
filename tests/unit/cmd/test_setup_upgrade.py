"""``nova-lite-setup upgrade``: its steps on a machine whose programs are scripted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd import setup
from nova_lite.cmd.setup import cluster, controller, machine, steps, units, upgrade

CONTROLLER = ("api", "conductor", "novncproxy", "scheduler", "serialproxy")


class ScriptedMachine:
    """systemd with daemons, and programs that succeed. ``commands``: what was run, as lines of words."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commands: list[str] = []
        #: Units with the time of their start; None: stopped.
        self.started: dict[str, float | None] = {}
        self.checks = '{"checks": [{"check": "Schema", "result": 0, "details": null}]}'
        self.fails: Callable[[str], bool] = lambda command: False
        self._pids = iter(range(1, 1000))
        self._pid: dict[str, int] = {}

    def add(self, *daemons: str, age: float = 60.0) -> None:
        for daemon in daemons:
            self.started[f"nova-lite-{daemon}.service"] = time.time() - age
            self._pid[f"nova-lite-{daemon}.service"] = next(self._pids)

    def run(self, *command: str, accepted: object = (0,), **_: object) -> str:
        words = " ".join(word.rpartition("/")[2] if word.startswith(str(self.path)) else word for word in command)
        self.commands.append(words)
        if self.fails(words):
            raise exceptions.ConfigurationError(reason=f"{command[0]} failed: no")
        if command[:2] == ("systemctl", "list-units"):
            return "".join(f"{unit} loaded {self._state(unit)} x\n" for unit in self.started)
        if command[:2] == ("systemctl", "restart"):
            unit = f"{command[-1].removesuffix('.service')}.service"
            self.started[unit] = time.time() + 10
            self._pid[unit] = next(self._pids)
        if command[:2] == ("systemctl", "show"):
            return self._show(command)
        return self.checks if "nova-lite-status" in words else "The schema is 9 now.\n"

    def _state(self, unit: str) -> str:
        return "inactive" if self.started[unit] is None else "active"

    def _show(self, command: tuple[str, ...]) -> str:
        unit = command[-1] if command[-1].endswith(".service") else f"{command[-1]}.service"
        if "--property=MainPID" in command:
            return str(self._pid[unit])
        values = {
            "ActiveState": self._state(unit),
            "SubState": "running",
            "NRestarts": "0",
            "ExecMainStartTimestampMonotonic": f"{self._started(unit)}",
            "FragmentPath": str(self.path / unit),
            "ExecStart": f"{{ path={self.path}/{unit}.program ; argv[]=x --config-file y ; ignore_errors=no }}",
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def _started(self, unit: str) -> int:
        """Return the start on the machine's monotonic clock, in microseconds."""
        started = self.started[unit]
        return 0 if started is None else round((time.monotonic() + started - time.time()) * 1e6)

    def restarted(self) -> list[str]:
        return [words.split()[-1] for words in self.commands if words.startswith("systemctl restart")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedMachine:
    made = ScriptedMachine(tmp_path)
    for name in ("nova-lite-manage", "nova-lite-status", "package.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(machine, "run", made.run)
    monkeypatch.setattr(machine, "install_units", lambda names: [])
    monkeypatch.setattr(controller, "as_conductor", lambda *words: made.run("as-conductor", *words))
    monkeypatch.setattr(upgrade, "PROGRAMS", tmp_path)
    monkeypatch.setattr(units, "PACKAGE", tmp_path / "package.py")
    monkeypatch.setattr(upgrade, "BACKUPS", tmp_path / "backups")
    return made


def read(*arguments: str) -> upgrade.Wanted:
    return upgrade.read(setup.parser().parse_args(["upgrade", *arguments]))


def run(*arguments: str) -> None:
    steps.run(upgrade.steps(read(*arguments)))


def test_unit_written_by_an_interrupted_call_is_restarted_once(
    site: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "succeeds", lambda *command: True)
    monkeypatch.setattr(units, "PACKAGE", site.path / "unchanged")
    site.add("api", "scheduler")
    (site.path / "nova-lite-api.service").touch()
    assert units.start(["nova-lite-api", "nova-lite-scheduler"]) == "1 started"
    assert site.restarted() == ["nova-lite-api"]
    assert units.start(["nova-lite-api", "nova-lite-scheduler"]) == "all run"


def test_daemons_of_a_controller_are_restarted_in_order(site: ScriptedMachine) -> None:
    site.add(*CONTROLLER)
    run()
    expected = ["conductor", "scheduler", "api", "novncproxy", "serialproxy"]
    assert site.restarted() == [f"nova-lite-{name}.service" for name in expected]
    backup = next(words for words in site.commands if "backup create" in words)
    assert site.commands.index(backup) < site.commands.index("as-conductor db sync")


def test_second_run_restarts_nothing(site: ScriptedMachine, capsys: pytest.CaptureFixture[str]) -> None:
    site.add(*CONTROLLER)
    run()
    site.commands.clear()
    run()
    assert site.restarted() == []
    assert capsys.readouterr().out.count("runs the installed version already") == len(CONTROLLER)


def test_compute_host_needs_no_database(site: ScriptedMachine) -> None:
    site.add("compute", "compute@2")
    run()
    assert site.restarted() == ["nova-lite-compute.service", "nova-lite-compute@2.service"]
    assert not [words for words in site.commands if "backup" in words or "db " in words]


def test_daemon_that_an_interrupted_upgrade_left_stopped_is_started(site: ScriptedMachine) -> None:
    site.add("conductor", "scheduler")
    site.started["nova-lite-scheduler.service"] = None
    run()
    assert "nova-lite-scheduler.service" in site.restarted()


def test_rollback_has_the_reverse_order_and_keeps_the_schema(site: ScriptedMachine) -> None:
    site.add(*CONTROLLER)
    run("--rollback")
    assert site.restarted()[0] == "nova-lite-serialproxy.service"
    assert site.restarted()[-1] == "nova-lite-conductor.service"
    assert "nova-lite-manage db check" in site.commands
    assert not [words for words in site.commands if "db sync" in words or "backup" in words]


def test_rollback_to_a_version_that_the_schema_does_not_serve_restarts_nothing(site: ScriptedMachine) -> None:
    site.add(*CONTROLLER)
    site.fails = lambda words: "db check" in words
    with pytest.raises(exceptions.ConfigurationError, match="Checking the schema"):
        run("--rollback")
    assert site.restarted() == []


def test_wheel_is_installed_after_the_backup(site: ScriptedMachine) -> None:
    wheel, listed = site.path / "nova_lite-0.2.0-py3-none-any.whl", site.path / "all.txt"
    wheel.touch()
    listed.touch()
    site.add("conductor")
    run("--package", str(wheel), "--requirements", str(listed))
    kinds = [
        next(key for key in ("backup", "--require-hashes", "--no-deps", "sync", "restart") if key in words)
        for words in site.commands
        if any(key in words for key in ("backup", "pip", "db sync", "systemctl restart"))
    ]
    assert kinds == ["backup", "--require-hashes", "--no-deps", "sync", "restart"]
    assert f"{sys.executable} -m pip install" in " ".join(site.commands)


def test_wheel_without_a_list_brings_the_libraries_of_the_daemons(site: ScriptedMachine) -> None:
    wheel = site.path / "nova_lite-0.2.0-py3-none-any.whl"
    wheel.touch()
    site.add(*CONTROLLER, "registrar")
    run("--package", str(wheel))
    first, second = [words for words in site.commands if "-m pip install" in words]
    assert first.endswith(f"{wheel.name}[api,conductor,console,scheduler]") and "--force" not in first
    assert second.endswith("--force-reinstall --no-deps nova_lite-0.2.0-py3-none-any.whl")


def test_settings_of_broker_and_database_are_written_by_the_installed_version(
    site: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that upgrades knows the settings of its own version. The way back leaves them as they are."""
    here = cluster.Local(
        host="c1", address="192.0.2.11", interface="eth0", virtual_address="192.0.2.10", has_database=True
    )
    monkeypatch.setattr(cluster, "local", lambda: here)
    monkeypatch.setattr(machine, "replace", lambda path, *_, **__: pytest.fail(f"{path} is written by this program"))
    wheel = site.path / "nova_lite-0.2.0-py3-none-any.whl"
    wheel.touch()
    site.add(*CONTROLLER)
    run("--package", str(wheel))
    installed = max(place for place, words in enumerate(site.commands) if "-m pip install" in words)
    assert site.commands.index("nova-lite-setup units") > installed
    site.commands.clear()
    run("--rollback")
    assert "nova-lite-setup units" not in site.commands


def test_daemon_whose_program_was_installed_after_its_start_is_restarted(site: ScriptedMachine) -> None:
    """Daemons of another Debian package have a program of their own."""
    site.add("scheduler", "compute", age=-60)
    run()
    assert site.restarted() == []
    site.add("scheduler", "compute", age=60)
    program = site.path / "nova-lite-compute.service.program"
    program.touch()
    (site.path / "package.py").unlink()
    run()
    assert site.restarted() == ["nova-lite-compute.service"]


def test_debian_package_is_installed_by_apt_without_restarts(site: ScriptedMachine) -> None:
    package = site.path / "nova-lite-compute_0.2.0_amd64.deb"
    package.touch()
    site.add("compute")
    run("--package", str(package))
    (command,) = [words for words in site.commands if "apt-get" in words]
    assert command.startswith("env NOVA_LITE_UPGRADE=1 apt-get install --yes ")
    assert "--allow-downgrades" in command and command.endswith(package.name)


@pytest.mark.parametrize("name", ["none.whl", "--index-url=http://x", "text.txt"])
def test_package_that_is_no_such_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "text.txt").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(exceptions.ConfigurationError, match=r"is not a file of the kind \.whl or \.deb"):
        read(f"--package={name}")


def test_wheel_with_a_name_that_pip_refuses_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "nova_lite.whl").touch()
    with pytest.raises(exceptions.ConfigurationError, match="is not the name of a wheel"):
        read(f"--package={tmp_path}/nova_lite.whl")


def test_backup_by_a_program_that_cannot_read_the_schema_is_left_out(
    site: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("conductor")
    site.fails = lambda words: "db check" in words
    run()
    assert "left out: the version is installed already" in capsys.readouterr().out
    assert not [words for words in site.commands if "backup" in words]


def test_failed_check_is_named(site: ScriptedMachine) -> None:
    site.add("conductor")
    site.checks = '{"checks": [{"check": "Signing keys", "result": 2, "details": "none is valid"}]}'
    with pytest.raises(exceptions.ConfigurationError, match="Signing keys: none is valid"):
        run()


def test_machine_without_daemons_is_refused(site: ScriptedMachine) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="no daemon runs on this machine"):
        run()
