"""Real servers, from the clients down to their guests."""

from __future__ import annotations

import base64
import subprocess

import pytest
from openstack import exceptions

from tests.integration.cloud.conftest import PATIENCE, PREFIX, SETTINGS, StackedCloud, run
from tests.support.waiting import wait_for

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF alice"


@pytest.mark.parametrize("image", ["nova-lite-guest", "nova-lite-guest-disk"])
def test_a_guest_knows_who_it_is(cloud: StackedCloud, image: str) -> None:
    server = cloud.create("guest", image=image)
    server = cloud.wait_status(server.id, "ACTIVE")
    (address,) = server.addresses["private"]
    assert cloud.guest_lines(server.id) == [(server.id, server.name, address["addr"])]


def test_a_guest_gets_its_key_and_runs_its_user_data_by_default(cloud: StackedCloud) -> None:
    """The metadata service provides both, as no user requested a config drive. Further hosts of one machine have no
    such service.
    """
    first = min(host["host"] for host in cloud.hosts())
    key = cloud.compute.create_keypair(name=f"{PREFIX}key", public_key=PUBLIC_KEY)
    asks = (
        "#!/bin/sh\n"
        "printf 'GET /latest/meta-data/public-keys/0/openssh-key HTTP/1.0\\r\\n\\r\\n' |"
        " timeout 30 nc 169.254.169.254 80 | sed '1,/^\\r*$/d'; echo\n"
    )
    try:
        server = cloud.create(
            "told",
            key_name=key.name,
            user_data=base64.b64encode(asks.encode()).decode(),
            availability_zone=f"nova:{first}",
        )
        server = cloud.wait_status(server.id, "ACTIVE")

        def said() -> list[str]:
            output = cloud.compute.get_server_console_output(server.id)["output"].splitlines()
            return output if PUBLIC_KEY in [line.strip() for line in output] else []

        output = wait_for("the guest says its key", said, PATIENCE, 0.5)
        assert "nova-lite-guest-source: metadata-service" in [line.strip() for line in output]
        assert not server.has_config_drive
    finally:
        cloud.compute.delete_keypair(key)


def test_a_whole_life(cloud: StackedCloud) -> None:
    server = cloud.create("life", config_drive=True, metadata={"color": "blue"})
    server = cloud.wait_status(server.id, "ACTIVE")
    assert server.metadata == {"color": "blue"}
    lines = cloud.guest_lines(server.id)

    cloud.compute.stop_server(server.id)
    cloud.wait_status(server.id, "SHUTOFF")
    assert cloud.where(server.id) == {server.compute_host: "shut off"}
    with pytest.raises(exceptions.ConflictException):
        cloud.compute.stop_server(server.id)

    cloud.compute.start_server(server.id)
    cloud.wait_status(server.id, "ACTIVE")
    cloud.compute.reboot_server(server.id, "SOFT")
    cloud.wait_status(server.id, "ACTIVE")
    cloud.compute.reboot_server(server.id, "HARD")
    cloud.wait_status(server.id, "ACTIVE")
    assert set(cloud.guest_lines(server.id)) == set(lines)

    actions = [action.action for action in cloud.compute.server_actions(server.id)]
    assert actions == ["reboot", "reboot", "start", "stop", "create"]


def test_the_command_line_creates_three_at_a_time(cloud: StackedCloud) -> None:
    name = f"{PREFIX}many"
    cloud.cli("server", "create", "--image", "nova-lite-guest", "--flavor", "m1.nano", "--min", "3", "--max", "3", name)
    servers = [cloud.wait_status(server.id, "ACTIVE") for server in cloud.servers()]
    assert sorted(server.name for server in servers) == [f"{name}-{number}" for number in (1, 2, 3)]
    addresses = {entry["addr"] for server in servers for entry in server.addresses["private"]}
    assert len(addresses) == 3
    for server in servers:
        assert cloud.guest_lines(server.id)[0][:2] == (server.id, server.name)


def test_the_command_line_shows_stops_starts_reboots_and_deletes(cloud: StackedCloud) -> None:
    server = cloud.create("cli")
    cloud.wait_status(server.id, "ACTIVE")
    shown = cloud.cli("server", "show", server.name)
    assert (shown["id"], shown["status"]) == (server.id, "ACTIVE")
    cloud.cli_quiet("server", "stop", server.name)
    cloud.wait_status(server.id, "SHUTOFF")
    cloud.cli_quiet("server", "start", server.name)
    cloud.wait_status(server.id, "ACTIVE")
    cloud.cli_quiet("server", "reboot", "--hard", "--wait", server.name)
    cloud.wait_status(server.id, "ACTIVE")
    cloud.guest_lines(server.id)
    assert f"instance={server.id}" in run("openstack", "--os-cloud", "nova-lite", "console", "log", "show", server.name)
    events = cloud.cli("server", "event", "list", server.name)
    assert [event["Action"] for event in events] == ["reboot", "start", "stop", "create"]
    cloud.cli_quiet("server", "delete", "--wait", server.name)
    assert cloud.servers() == []


def test_the_command_line_lists_what_there_is(cloud: StackedCloud) -> None:
    assert {"m1.nano", "m1.tiny", "m1.small"} <= {flavor["Name"] for flavor in cloud.cli("flavor", "list")}
    assert {"nova-lite-guest", "nova-lite-guest-disk"} <= {image["Name"] for image in cloud.cli("image", "list")}
    assert {service["Binary"] for service in cloud.cli("compute", "service", "list")} == {
        "nova-conductor",
        "nova-scheduler",
        "nova-compute",
    }
    assert all(host["State"] == "up" for host in cloud.cli("hypervisor", "list"))
    assert [network["name"] for network in cloud.manage("network", "list") if network["default"]] == ["private"]


def test_a_missing_image_file_is_a_fault_that_says_so(
    cloud: StackedCloud, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if "AUTH=keystone" in SETTINGS.read_text():
        pytest.skip("images are Glance's")
    file = tmp_path_factory.mktemp("image") / "disk.raw"
    file.write_bytes(bytes(1024 * 1024))
    name = f"{PREFIX}lost"
    image_id = run("nova-lite-manage", "image", "import", "--name", name, "--disk-format", "raw", str(file)).strip()
    try:
        subprocess.run(["rm", f"/var/lib/nova-lite/images/{image_id}"], check=True)
        server = cloud.create("lost", image=name)
        wait_for("the server is in ERROR", lambda: cloud.compute.get_server(server.id).status == "ERROR", PATIENCE, 0.5)
        fault = cloud.compute.get_server(server.id).fault
        assert image_id in fault["message"]
    finally:
        run("nova-lite-manage", "image", "delete", image_id)


def test_the_configuration_of_a_stacked_machine_can_work(cloud: StackedCloud) -> None:
    """Each daemon's files are read as that daemon's user, while the daemons run.

    A further libvirt host of this machine has a network of its own, in which alone its address of the broker answers.
    """
    said = subprocess.run(["nova-lite-manage", "config", "check"], capture_output=True, text=True, check=False).stdout
    own = [line for line in said.splitlines() if not line.startswith("compute-2.conf: [DEFAULT] transport_url: ")]
    assert own in ([], ["The configuration can work."]), said


@pytest.mark.parametrize("victim", ["api", "conductor", "scheduler", "compute"])
def test_creates_survive_a_kill(cloud: StackedCloud, victim: str) -> None:
    """Three creates, kill -9 of a daemon in their middle, its restart: all end ACTIVE."""
    assert cloud.compute.post("/servers", json=_three(cloud, victim)).status_code == 202
    _kill(victim)
    cloud.service("start", victim)
    found = cloud.servers()
    assert len(found) == 3
    for server in found:
        cloud.wait_status(server.id, "ACTIVE")
        cloud.guest_lines(server.id)


def _three(cloud: StackedCloud, victim: str) -> dict[str, object]:
    return {
        "server": {
            "name": f"{PREFIX}kill-{victim}",
            "imageRef": cloud.image("nova-lite-guest"),
            "flavorRef": "42",
            "min_count": 3,
            "max_count": 3,
        }
    }


def _kill(daemon: str) -> None:
    """Every process of a daemon of the stack, by its program's path."""
    program = f"/opt/nova-lite/venv/bin/nova-lite-{daemon}"
    pids = run("pgrep", "--full", "--", f"{program} --config-file").split()
    subprocess.run(["kill", "-9", *pids], check=True)
    wait_for(
        f"{daemon} is dead",
        lambda: subprocess.run(["pgrep", "--full", program], capture_output=True).returncode,
        PATIENCE,
        0.5,
    )
