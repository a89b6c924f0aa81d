"""Set-up of a controller by one command. It may be killed at any step, and repeated. Another one removes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.integration.systemd.bare_machine import SET_UP_SECONDS, VENV, BareMachine, read_until

ADDRESS = "192.0.2.10"
SETUP = f"{VENV}/bin/nova-lite-setup"
CONTROLLER = (SETUP, "controller", "--address", ADDRESS)
UNITS = [f"nova-lite-{name}" for name in ("conductor", "scheduler", "api", "novncproxy", "serialproxy")]
#: Steps at which the set-up is killed: with ``NOVA_LITE_LONG=1`` at each, otherwise where a password is stored last.
KILLED_AT = range(2, 12) if os.environ.get("NOVA_LITE_LONG") == "1" else (6, 9)
#: Files and directories of ours outside of the package.
FIND = "find /etc /root /run /var -xdev -name '*nova*lite*' ! -path '/run/nova-lite-setup.lock'"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMachine]:
    made = BareMachine(tmp_path_factory.mktemp("bare") / "tree")
    try:
        made.add_address(ADDRESS)
        yield made
    finally:
        made.stop()


def test_mistakes_are_one_line_that_says_what_is_right(bare: BareMachine) -> None:
    for arguments, said in (
        (("--address", "192.0.2.99"), "this machine does not have the address 192.0.2.99."),
        (("--address", "controller"), "address: controller is not an IP address."),
        (("--database", "oracle://x"), "database: a URL has to be of MariaDB or PostgreSQL."),
        (("--answers", "/nowhere"), "/nowhere: No such file or directory."),
    ):
        printed = bare.run(SETUP, "controller", *arguments, check=False)
        assert said in printed.splitlines()[-1] and "Traceback" not in printed


def test_setup_that_is_killed_at_a_step_is_completed_by_the_next(bare: BareMachine) -> None:
    for step in KILLED_AT:
        process = bare.start(*CONTROLLER)
        said = read_until(process, f"[{step:2}/11]")
        assert f"[{step:2}/11]" in said, said
        process.kill()
        process.wait(30)
    assert "login works, 2 of 2 daemons with a heartbeat are up" in bare.run(*CONTROLLER, seconds=SET_UP_SECONDS)
    scraped = bare.run("cat", "/etc/prometheus/nova-lite/prometheus.yml")
    assert "http://127.0.0.1:9770/targets" in scraped and "127.0.0.1:9780" in scraped
    client = bare.run(f"{VENV}/bin/python", "-m", "openstackclient.shell", "--os-cloud", "nova-lite", "catalog", "list")
    assert f"https://{ADDRESS}:8774/v2.1" in client


@pytest.fixture
def controller(bare: BareMachine) -> BareMachine:
    """Set the machine up, unless a test before this one did."""
    if not (bare.tree / "etc/openstack/clouds.yaml").exists() or bare.property_of(UNITS[-1], "ActiveState") != "active":
        bare.run(*CONTROLLER, seconds=SET_UP_SECONDS)
    return bare


def test_second_run_changes_no_file_and_restarts_nothing(controller: BareMachine) -> None:
    bare = controller

    def state() -> list[str]:
        files = bare.run(
            "sh", "-c", "stat -c '%n %Y %a %U' /etc/nova-lite/*.conf /etc/nova-lite/keys/*.key /etc/openstack/*"
        )
        return [files, *(bare.property_of(unit, "MainPID") for unit in UNITS)]

    before = state()
    assert "all run" in bare.run(*CONTROLLER, seconds=SET_UP_SECONDS)
    assert state() == before
    assert all(int(pid) > 0 for pid in before[1:])


def test_each_secret_is_readable_by_its_daemon_alone(controller: BareMachine) -> None:
    listed = controller.run(
        "sh",
        "-c",
        "stat -c '%n %a %U:%G' /etc/nova-lite/*.conf /etc/nova-lite/tls/*/server-key.pem /etc/openstack/secure.yaml",
    )
    found = {re.sub(r"^/etc/(nova-lite/)?", "", name): rest for name, *rest in map(str.split, listed.splitlines())}
    assert found["conductor.conf"] == ["640", "root:nova-lite-conductor"]
    assert found["api.conf"] == ["640", "root:nova-lite-api"]
    assert found["manage.conf"] == ["640", "root:root"]
    assert found["tls/api/server-key.pem"] == ["600", "nova-lite-api:nova-lite-api"]
    assert found["openstack/secure.yaml"] == ["600", "root:root"]


def test_purge_leaves_nothing(controller: BareMachine) -> None:
    bare = controller
    assert "Run it again with --yes." in bare.run(SETUP, "remove", "--purge")
    assert bare.property_of(UNITS[0], "ActiveState") == "active"
    bare.run(SETUP, "remove", "--purge", "--yes")
    assert bare.run("sh", "-c", FIND).split() == []
    assert "nova-lite" not in bare.run("cat", "/etc/passwd", "/etc/group")
    as_broker = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "rabbitmqctl", "--quiet")
    assert "nova-lite" not in bare.run(*as_broker, "list_vhosts") + bare.run(*as_broker, "list_users")
