"""The how-to pages executed as they stand there: a controller, two hosts, a guest on each, a live migration, and SSH.

Three things differ from a real cloud. The package is this checkout's virtual environment, since a container has no
network for ``apt`` and ``pip``. The image is the test guest with an SSH server. Its user ``debian`` is root. With
``NOVA_LITE_LONG=1`` alone, because guests are emulated.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import guest_image, ssh_guest
from tests.integration.systemd.bare_machine import COMMANDS_SECONDS, BareMachine
from tests.support import pages
from tests.support.waiting import polls, wait_for_none

pytestmark = pytest.mark.skipif(os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG=1 boots a cloud")

INSTALL, JOIN, PASSWORDS = "howto/install.md", "howto/join-a-host.md", "howto/change-passwords.md"
AS_BROKER = "setpriv --reuid=rabbitmq --regid=rabbitmq --clear-groups env HOME=/var/lib/rabbitmq rabbitmqctl --quiet"
CONTROLLER = "192.0.2.10"
HOSTS = {"h1": "192.0.2.11", "h2": "192.0.2.12"}


class Cloud:
    """The machines, and the number of commands that each needed. The first one installs the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.controller = BareMachine(path / "controller")
        self.machines = [self.controller]
        self.controller.add_address(CONTROLLER)
        self.commands = {"controller": 1, "host": 1}

    def add_host(self, name: str, address: str) -> BareMachine:
        (self.path / f"of-{name}").mkdir()
        host = BareMachine(self.path / f"of-{name}" / name, name)
        self.machines.append(host)
        host.allow_guests()
        self.controller.connect(host, address)
        return host

    def stop(self) -> None:
        for machine in self.machines:
            machine.stop()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("howto")
    made = Cloud(path)
    try:
        yield made
    finally:
        made.stop()


def host_of(cloud: Cloud, server: str) -> str:
    command = f"openstack --os-cloud nova-lite server show -f value -c OS-EXT-SRV-ATTR:host {server}"
    return cloud.controller.execute([command]).split()[-1]


def log_in(cloud: Cloud, command: str) -> str:
    """Log in by the page's command, again until the guest has booted. Returns what the guest prints."""
    line = f"cd /root; HOME=/root timeout 60 {command}"
    for _ in polls(COMMANDS_SECONDS, 2):
        said = cloud.controller.run("bash", "-c", line, check=False, seconds=COMMANDS_SECONDS)
        if "web1" in said:
            return said
    raise AssertionError(said)


def test_controller_is_made_by_the_page(cloud: Cloud) -> None:
    set_up, look = pages.blocks(INSTALL, "A controller with one command")
    assert len(set_up) == 1 and CONTROLLER in set_up[0]
    cloud.commands["controller"] += len(set_up)
    cloud.controller.execute(set_up)
    assert "compute" in cloud.controller.execute(look)


@pytest.mark.parametrize("name", HOSTS)
def test_host_joins_by_the_page(cloud: Cloud, name: str) -> None:
    ((on_the_controller, on_the_host),) = pages.blocks(JOIN, "With two commands")
    host = cloud.add_host(name, HOSTS[name])
    token = cloud.controller.execute([on_the_controller]).strip()
    assert f"Host {name} is up" in host.execute([on_the_host.replace("TOKEN", token)])
    cloud.commands["host"] = 2
    assert not list((host.tree / "root/.ssh").glob("*")), "Nobody logs in to a host by SSH."


def test_commands_are_few(cloud: Cloud) -> None:
    cloud.commands["controller"] += 1  # the token
    assert cloud.commands == {"controller": 3, "host": 2}


def accounts(machine: BareMachine, file: str) -> dict[str, str]:
    """Return the passwords of accounts at the broker that a file of the configuration names."""
    text = machine.run("cat", f"/etc/nova-lite/{file}.conf")
    return dict(re.findall(r"^transport_url = rabbit://([^:]*):([^@]*)@", text, re.MULTILINE))


def accepts(cloud: Cloud, user: str, password: str) -> bool:
    said = cloud.controller.run(
        "sh", "-c", f"{AS_BROKER} authenticate_user {user} {password} && echo accepted", check=False
    )
    return "accepted" in said


def test_passwords_change_by_the_page_and_daemons_log_in_with_the_new_ones(cloud: Cloud) -> None:
    host = cloud.machines[-1]

    def found() -> dict[str, str]:
        names = ("conductor", "scheduler", "api", "novncproxy", "registrar")
        of_the_controller = [accounts(cloud.controller, name) for name in names]
        return {user: text for part in (*of_the_controller, accounts(host, "compute")) for user, text in part.items()}

    before = found()
    assert len(before) == 6 and all(accepts(cloud, *account) for account in before.items())
    for commands in pages.blocks(PASSWORDS, "On the controller"):
        cloud.controller.execute(commands)
    (commands,) = pages.blocks(PASSWORDS, "On a compute host")
    host.execute(commands)
    after = found()
    assert set(after) == set(before) and not set(after.values()) & set(before.values())
    assert all(accepts(cloud, *account) for account in after.items())
    assert not any(accepts(cloud, *account) for account in before.items())
    services = "openstack --os-cloud nova-lite compute service list -f value -c Host -c State"

    def missing() -> set[str]:
        return {f"{name} up" for name in HOSTS} - set(cloud.controller.execute([services]).splitlines())

    wait_for_none("all hosts are up", missing, COMMANDS_SECONDS, 1)


def test_guests_run_on_both_hosts_and_one_moves_while_its_user_logs_in(cloud: Cloud) -> None:
    disk = ssh_guest.build(guest_image.build(cloud.path), cloud.path)
    shutil.copy(disk, cloud.controller.tree / "root/debian.qcow2")
    (catalogue,) = pages.blocks(INSTALL, "9. Add the first host, a flavor, a network and an image")
    cloud.controller.execute(catalogue)
    (*start, log_in_first), (*move, log_in_again) = pages.blocks(JOIN, "First servers")
    cloud.controller.execute(start)
    before = host_of(cloud, "web1")
    assert {before, host_of(cloud, "web2")} == set(HOSTS)
    log_in(cloud, log_in_first)
    cloud.controller.execute(move)
    assert host_of(cloud, "web1") == ({*HOSTS} - {before}).pop()
    log_in(cloud, log_in_again)


def test_purge_of_a_host_leaves_nothing(cloud: Cloud) -> None:
    """Servers move away first, as the page says."""
    openstack = "openstack --os-cloud nova-lite server"
    cloud.controller.execute([f"{openstack} delete --wait web1 web2"])
    (remove,) = pages.blocks(JOIN, "Remove a host")
    on_the_controller, on_the_machine = (line.replace("HOST", "h2") for line in remove)
    cloud.controller.execute([on_the_controller])
    host = cloud.machines[-1]
    host.execute([on_the_machine])
    ours = "find /etc /root /run /var -xdev -name '*nova*lite*' ! -path '/run/nova-lite-setup.lock'"
    left = host.run(
        "sh", "-c", f"{ours}; ls /etc/pki; nft list tables | grep nova_lite; ip -brief link | grep ^nl; true"
    )
    assert left == ""
