"""stack.sh makes files, keys and accounts by the code of ``nova-lite-setup``, and adds its own parts."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
from typing import Any

import pytest

from nova_lite.cmd.setup import broker, controller, machine
from nova_lite.conf import config_files
from nova_lite.rpc.broker import Account
from tests.unit.deployment import scripts

TOP = pathlib.Path(__file__).parents[3]

ANSWERS = """
source devstack/lib/common.sh
cd "$TOP"
for component in packages rabbitmq database config services openstack keystone glance cinder ovn neutron clouds; do
    source devstack/lib/$component.sh
done
ETC=$1 STATE=$1/state SECRETS=$1/secrets ANSWERS=$1/answers.yaml
for name in "${!DEFAULTS[@]}"; do [[ -v $name ]] || printf -v "$name" %s "${DEFAULTS[$name]}"; done
ceph_secret_uuid() { echo 6d0a3b1e-0000-4000-8000-000000000000; }
set_up() { cat >"$ETC/hosts" && cp -r "$2" "$ETC/changes"; }
write_answers
write_config
"""
HOSTS = "compute-1 h-1 127.0.0.1\ncompute-2 h-2 169.254.76.1\n"


class Stack:
    """A machine that stack.sh sets up in a directory."""

    def __init__(self, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(controller, "CONFIGURATION", path)
        monkeypatch.setattr(machine, "_group_id", lambda name: os.getgid())
        self.script: Any = scripts.load("set_up")

    def in_shell(self, **chosen: str) -> str:
        """Let the shell write the answers and its changes. Returns its lines of compute hosts."""
        environment = os.environ | {"USER": "root"} | chosen
        subprocess.run(["bash", "-c", ANSWERS, "test", str(self.path)], cwd=TOP, env=environment, check=True)
        return (self.path / "hosts").read_text()

    def run(self, step: str, *arguments: str, hosts: str = HOSTS) -> None:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(hosts))
        answers = self.path / "answers.yaml"
        given = ["controller", *(["--answers", str(answers)] if answers.exists() else [])]
        wanted = self.script.setup.settings.read(self.script.setup.parser().parse_args(given))
        self.script.STEPS[step](wanted, *arguments)

    def option(self, name: str, section: str, option: str) -> str | None:
        return machine.setting(self.path / f"{name}.conf", section, option)


@pytest.fixture
def stack(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    return Stack(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "chosen",
    [
        {"VIRT_DRIVER": "fake"},
        {"COMPUTES": "2", "DATABASE": "mariadb", "PROJECT_RANGES": ""},
        {"AUTH": "keystone", "VOLUMES": "cinder", "NETWORK": "neutron", "DATABASE": "postgresql"},
    ],
    ids=["fake", "two-hosts", "openstack"],
)
def test_files_of_a_stack_have_known_options_and_one_line_for_each(stack: Stack, chosen: dict[str, str]) -> None:
    hosts = stack.in_shell(**chosen)
    stack.run("configuration", str(stack.path / "changes"), hosts=hosts)
    names = {path.stem for path in stack.path.glob("*.conf")}
    assert names == {controller.COMMON, *controller.FILE_ROLES, *(line.split()[0] for line in hosts.splitlines())}
    known = config_files.known_options()
    for path in stack.path.glob("*.conf"):
        assert list(config_files.unknown(str(path), config_files.read(str(path)), known)) == []
        assert path.stat().st_mode & 0o007 == 0
    with_database = [name for name in sorted(names) if stack.option(name, "database", "connection")]
    assert with_database == ["conductor"]
    assert stack.option("api", "api", "auth_strategy") == chosen.get("AUTH", "standalone")
    assert (stack.option("nova-lite", "serial_console", "enabled") == "true") is ("VIRT_DRIVER" not in chosen)
    assert stack.option("nova-lite", "DEFAULT", "my_ip") is None


def test_second_run_keeps_passwords_and_takes_new_choices(stack: Stack) -> None:
    for port in ("8774", "18774"):
        changes = stack.path / port
        changes.mkdir()
        (changes / "api.conf").write_text(f"[api]\nport = {port}\n")
        stack.run("configuration", str(changes))
        assert stack.option("api", "api", "port") == port
        urls = [stack.option(name, "DEFAULT", "transport_url") for name in ("api", "compute-1", "compute-2")]
        if port == "8774":
            before = urls
    assert urls == before
    first, second, third = (url or "" for url in urls)
    assert first.startswith("rabbit://nova-lite-api:") and first.endswith("@127.0.0.1:5672/nova-lite")
    assert second.startswith("rabbit://nova-lite-compute.h-1:") and third.endswith("@169.254.76.1:5672/nova-lite")


def test_password_of_an_older_stack_stays(stack: Stack) -> None:
    (stack.path / "conductor.conf").write_text(
        "[database]\nconnection = mysql+pymysql://nova_lite:old@127.0.0.1/nova_lite\n"
    )
    (stack.path / "answers.yaml").write_text("database: mariadb\n")
    stack.run("configuration", str(stack.path / "no-changes"))
    assert "nova_lite:old@" in (stack.option("conductor", "database", "connection") or "")


def test_each_daemon_has_an_account_and_those_of_older_stacks_go(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Account] = []
    removed: list[str] = []
    monkeypatch.setattr(broker, "provide_accounts", lambda accounts: made.extend(accounts))
    monkeypatch.setattr(broker, "remove_accounts", removed.extend)
    stack.run("configuration", str(stack.path / "no-changes"))
    stack.run("accounts")
    assert [(account.role, account.user.removeprefix("nova-lite-")) for account in made] == [
        *((role, role) for role in ("conductor", "scheduler", "api", "console", "manage")),
        ("compute", "compute.h-1"),
        ("compute", "compute.h-2"),
    ]
    assert len({account.password for account in made}) == len(made)
    assert removed == ["nova-lite", "nova-lite-compute-1", "nova-lite-compute-2"]
