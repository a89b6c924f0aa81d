"""Set-up of a controller and of a host by one command each. It may be killed at any step, and repeated. Another removes
it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from nova_lite.base.join_requests import JoinToken
from tests.integration.systemd.bare_machine import SET_UP_SECONDS, VENV, BareMachine, read_until
from tests.integration.systemd.controllers import confirm, set_up_confirmed
from tests.integration.systemd.machine import DEADLINE
from tests.support.waiting import wait_for

ADDRESS = "192.0.2.10"
SETUP = f"{VENV}/bin/nova-lite-setup"
CONTROLLER = (SETUP, "controller", "--address", ADDRESS)
UNITS = [f"nova-lite-{name}" for name in ("conductor", "scheduler", "api", "novncproxy", "serialproxy", "registrar")]
#: Steps at which the set-up is killed: with ``NOVA_LITE_LONG=1`` at each, otherwise where a password is stored last.
IS_LONG = os.environ.get("NOVA_LITE_LONG") == "1"
KILLED_AT = range(2, 12) if IS_LONG else (6, 9)
#: Steps at which the set-up of a host is killed: otherwise while it waits for the registrar.
HOST_KILLED_AT = range(2, 11) if IS_LONG else (6,)
HOST_ADDRESS, FRONT_END_ADDRESS = "192.0.2.11", "192.0.2.12"
CA = "/etc/openstack/nova-lite-ca.pem"
MANAGE = f"{VENV}/bin/nova-lite-manage"
HOST_UNIT = "nova-lite-compute"
#: Runs the set-up with a clock that is an hour slow. The kernel gives the machine's own containers no other clock.
WITH_WRONG_CLOCK = """
import sys, time
right = time.time
time.time = lambda: right() - 3600
from nova_lite.cmd import setup
sys.exit(setup.main(sys.argv[1:]))
"""
#: Files and directories of ours outside of the package.
FIND = "find /etc /root /run /var -xdev -name '*nova*lite*' ! -path '/run/nova-lite-setup.lock'"
#: Prints the names of users and groups. Homes of other users, which this machine has, may name a directory of ours.
NAMES = ("cut", "-d:", "-f1", "/etc/passwd", "/etc/group")

#: Lists servers, each time on a new connection, until there is a file. Prints how many were served, and all failures.
CLIENT = """
import json, os, sys, requests, yaml
address, stop = sys.argv[1:]
with open("/etc/openstack/secure.yaml") as file:
    password = yaml.safe_load(file)["clouds"]["nova-lite"]["auth"]["password"]
ca = "/etc/openstack/nova-lite-ca.pem"
user = {"name": "admin", "domain": {"id": "default"}, "password": password}
auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
auth["scope"] = {"project": {"name": "admin", "domain": {"id": "default"}}}
answer = requests.post(f"https://{address}:5000/v3/auth/tokens", json={"auth": auth}, verify=ca, timeout=60)
headers = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
served, failures = 0, []
print("serves", flush=True)
while not os.path.exists(stop):
    try:
        answer = requests.get(f"https://{address}:8774/v2.1/servers", headers=headers, verify=ca, timeout=60)
        served += 1
        if answer.status_code != 200:
            failures.append([answer.status_code, answer.text])
    except requests.RequestException as error:
        failures.append(repr(error))
print(json.dumps([served, failures]))
"""


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


def test_upgrade_restarts_one_daemon_after_the_other_and_fails_no_request(controller: BareMachine) -> None:
    """Changed files of units stand for an installed version. The second run finds nothing to restart."""
    bare = controller
    bare.write("/root/client.py", CLIENT)
    client = bare.start(f"{VENV}/bin/python", "/root/client.py", ADDRESS, "/root/stop")
    try:
        assert "serves" in read_until(client, "serves")
        bare.run("sh", "-c", "chmod 0644 /etc/systemd/system/nova-lite-*.service")
        printed = bare.run(SETUP, "upgrade", seconds=SET_UP_SECONDS)
    finally:
        bare.write("/root/stop", "")
    served, failures = json.loads(client.communicate(timeout=DEADLINE)[0].splitlines()[-1])
    assert failures == [] and served > 20
    restarted = re.findall(r"Restarting nova-lite-(\w+) \.\.\. serves", printed)
    assert restarted == ["conductor", "scheduler", "registrar", "api", "novncproxy", "serialproxy"]
    assert "no failure" in printed.splitlines()[-1]
    assert "before-upgrade-" in bare.run("ls", "/var/lib/nova-lite/backups")
    again = bare.run(SETUP, "upgrade", "--no-backup", seconds=SET_UP_SECONDS)
    assert again.count("runs the installed version already") == len(restarted)


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


# --- a host


@pytest.fixture(scope="module")
def host(bare: BareMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMachine]:
    made = BareMachine(tmp_path_factory.mktemp("host") / "tree", "h1")
    try:
        bare.connect(made, HOST_ADDRESS)
        yield made
    finally:
        made.stop()


def token_of(controller: BareMachine) -> str:
    return controller.run(MANAGE, "host", "token").strip()


def last_line(host: BareMachine, token: str) -> str:
    """Return the last line of a set-up that fails."""
    printed = host.run(SETUP, "compute", token, check=False)
    assert "Traceback" not in printed
    return printed.splitlines()[-1]


def services(controller: BareMachine) -> dict[str, str]:
    listed = json.loads(controller.run(MANAGE, "service", "list", "--format", "json"))
    return {row["host"]: row["state"] for row in listed if row["binary"] == "nova-compute"}


def test_token_that_cannot_work_is_one_line(controller: BareMachine, host: BareMachine) -> None:
    text = token_of(controller)
    token = JoinToken.parse(text)
    for wrong, said in (
        (text[:-3], "the token is incomplete: copy the whole line"),
        (token._replace(pin=bytes(32)).text(), "is not the cloud that made this token"),
        (token._replace(address="203.0.113.1:8780").text(), "cannot be reached: Network is unreachable"),
        (token._replace(seed=bytes(32)).text(), "Joining the cloud: The token is not valid."),
    ):
        assert said in last_line(host, wrong)
    assert services(controller) == {}


def test_host_with_a_full_disk_or_a_wrong_clock_or_killed_at_a_step_is_up_after_the_next_run(
    controller: BareMachine, host: BareMachine
) -> None:
    token = token_of(controller)
    host.run("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "/etc/nova-lite")
    assert "No space left on device. Correct this" in last_line(host, token)
    host.run("umount", "/etc/nova-lite")
    late = host.run(f"{VENV}/bin/python", "-c", WITH_WRONG_CLOCK, "compute", token, check=False)
    assert "The clock of h1 is 3600 s behind the controller's; 30 s are allowed." in late.splitlines()[-1]
    for step in HOST_KILLED_AT:
        process = host.start(SETUP, "compute", token)
        said = read_until(process, f"[{step:2}/10]")
        assert f"[{step:2}/10]" in said, said
        process.kill()
        process.wait(30)
    assert "the host is up" in host.run(SETUP, "compute", token, seconds=SET_UP_SECONDS)
    assert services(controller) == {"h1": "up"}
    pid = host.property_of(HOST_UNIT, "MainPID")
    assert "all run" in host.run(SETUP, "compute", token, seconds=SET_UP_SECONDS)
    assert host.property_of(HOST_UNIT, "MainPID") == pid


@pytest.fixture
def joined(controller: BareMachine, host: BareMachine) -> BareMachine:
    """Let the host join, unless a test before this one did."""
    if host.property_of(HOST_UNIT, "ActiveState") != "active":
        host.run(SETUP, "compute", token_of(controller), seconds=SET_UP_SECONDS)
    return host


def test_host_has_no_secret_of_another_daemon(controller: BareMachine, joined: BareMachine) -> None:
    found = joined.run("sh", "-c", "cd /etc/nova-lite; ls *.conf; ls /var/lib/nova-lite/keys; ls keys").split()
    assert found == ["compute.conf", "nova-lite.conf", "compute.h1.key", "trusted.json", "trusted.serial"]
    listed = joined.run("stat", "-c", "%a %U", "/etc/nova-lite/compute.conf", "/var/lib/nova-lite/keys/compute.h1.key")
    assert listed.splitlines() == ["640 root", "600 root"]
    written = joined.run("cat", "/etc/nova-lite/compute.conf")
    assert "nova-lite-compute.h1:" in written and "sqlite" not in written


def test_rotated_keys_reach_the_other_machine_and_a_removed_host_is_shut_out(
    controller: BareMachine, joined: BareMachine
) -> None:
    rotated = json.loads(controller.run(MANAGE, "keys", "rotate", "scheduler", "controller", "--format", "json"))
    trusted = ("cat", "/var/lib/nova-lite/keys/trusted.json")
    wait_for("the host trusts the new key", lambda: rotated[-1]["id"] in joined.run(*trusted), DEADLINE, 0.5)
    assert "Using the next key" in joined.run(SETUP, "rotate")
    listed = json.loads(controller.run(MANAGE, "keys", "list", "--format", "json"))
    assert sorted(row["valid_until"] is None for row in listed if row["host"] == "h1") == [False, True]
    assert "Host h1 is removed." in controller.run(MANAGE, "host", "remove", "h1")
    assert services(controller) == {}
    assert '"host": "h1"' not in controller.run("cat", "/etc/nova-lite/keys/trusted.json")
    as_broker = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "rabbitmqctl", "--quiet")
    assert "h1" not in controller.run(*as_broker, "list_users")
    # The broker lists a connection for a moment after it has closed it.
    connections = controller.run(*as_broker, "list_connections").splitlines()
    assert [line for line in connections if "h1" in line and not line.endswith("closed")] == []
    assert services(controller) == {}


def test_purge_of_a_host_leaves_nothing(joined: BareMachine) -> None:
    joined.run(SETUP, "remove", "--purge", "--yes")
    assert joined.run("sh", "-c", FIND).split() == []
    assert "nova-lite" not in joined.run(*NAMES) + joined.run("cat", "/etc/libvirt/qemu.conf")
    assert joined.run("ls", "/etc/pki") == ""
    assert "16514" not in joined.run("ss", "--listening", "--tcp", "--numeric")
    assert joined.run("systemctl", "is-enabled", "libvirtd-tls.socket", check=False).strip() == "disabled"


# --- a front end


@pytest.fixture(scope="module")
def front_end(bare: BareMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMachine]:
    made = BareMachine(tmp_path_factory.mktemp("front_end") / "tree", "f1")
    try:
        bare.connect(made, FRONT_END_ADDRESS)
        yield made
    finally:
        made.stop()


@pytest.mark.skipif(not IS_LONG, reason="NOVA_LITE_LONG=1 sets up a machine of each role")
@pytest.mark.parametrize("role", ["api", "console"])
def test_machine_with_one_role_that_is_killed_at_a_step_serves_after_the_next_run(
    controller: BareMachine, front_end: BareMachine, role: str
) -> None:
    said = set_up_confirmed(controller, front_end, role, 9, range(2, 10))
    assert f"Machine f1 serves as {role}." in said
    served = "8774/" if role == "api" else "6080/vnc_lite.html"
    url = f"https://{FRONT_END_ADDRESS}:{served}"
    seen = controller.run(
        f"{VENV}/bin/python", "-c", f"import requests; r = requests.get({url!r}, verify={CA!r}); print(r)"
    )
    assert "[200]" in seen
    found = front_end.run("sh", "-c", "cd /etc/nova-lite; cat *.conf; ls *.conf keys").split()
    secret = re.search(r"rabbit://nova-lite-\w+:(\w+)@", controller.run("cat", f"/etc/nova-lite/{UNITS[2][10:]}.conf"))
    assert secret is not None and secret[1] not in found
    assert "connection" not in found and not {"conductor.conf", "manage.conf", "conductor.controller.key"} & set(found)
    assert [word for word in found if word.endswith(".key") and role in word] == [f"{role}.f1.key"]
    keys = front_end.run("sh", "-c", "stat -c '%a %U' /etc/nova-lite/keys/*.key /etc/nova-lite/tls/*/*-key.pem")
    assert set(keys.splitlines()) <= {"600 nova-lite-api", "600 nova-lite-console"}


@pytest.mark.skipif(not IS_LONG, reason="NOVA_LITE_LONG=1 sets up a machine of each role")
def test_machine_with_one_role_gets_new_keys_and_is_removed(controller: BareMachine, front_end: BareMachine) -> None:
    old = front_end.run("cat", "/etc/nova-lite/keys/api.f1.key")
    process = front_end.start(SETUP, "rotate")
    for _ in ("api", "console"):
        confirm(controller, process)
    assert process.wait(SET_UP_SECONDS) == 0
    assert front_end.run("cat", "/etc/nova-lite/keys/api.f1.key") != old
    front_end.run(MANAGE, "config", "check")
    for role in ("api", "console"):
        assert "is removed" in controller.run(MANAGE, "frontend", "remove", role, "f1")
    assert "f1" not in controller.run("cat", "/etc/nova-lite/keys/trusted.json")
    front_end.run(SETUP, "remove", "--purge", "--yes")
    assert front_end.run("sh", "-c", FIND).split() == []


def test_controller_is_a_compute_host_as_well(controller: BareMachine) -> None:
    controller.allow_guests()
    said = controller.run(SETUP, "compute", token_of(controller), seconds=SET_UP_SECONDS)
    assert f"Host {controller.name} is up" in said
    listed = json.loads(controller.run(MANAGE, "service", "list", "--format", "json"))
    states = {row["binary"]: row["state"] for row in listed if row["host"] == controller.name}
    assert states["nova-compute"] == states["nova-conductor"] == "up"
    controller.run(MANAGE, "config", "check")


def test_purge_leaves_nothing(controller: BareMachine) -> None:
    bare = controller
    assert "Run it again with --yes." in bare.run(SETUP, "remove", "--purge")
    assert bare.property_of(UNITS[0], "ActiveState") == "active"
    bare.run(SETUP, "remove", "--purge", "--yes")
    assert bare.run("sh", "-c", FIND).split() == []
    assert "nova-lite" not in bare.run(*NAMES)
    as_broker = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "rabbitmqctl", "--quiet")
    assert "nova-lite" not in bare.run(*as_broker, "list_vhosts") + bare.run(*as_broker, "list_users")
