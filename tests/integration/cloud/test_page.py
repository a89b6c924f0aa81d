"""The web page on the cloud of this machine, with real guests: a newcomer's first hour and an operator's, in Chromium.

``devstack/page.sh --real`` stacks the cloud and runs it. With ``NOVA_LITE_SCREENSHOTS`` it saves pictures of the steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

from tests.integration import guest_image, ssh_guest
from tests.integration.cloud.conftest import PREFIX, SETTINGS, StackedCloud
from tests.support.browser import CANVAS, browser
from tests.support.page import Page
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(not os.environ.get("NOVA_LITE_LONG"), reason="devstack/page.sh --real runs it"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]

PASSWORD = "correct horse battery"
#: Flavors by their names: memory in MB and disk in GB. No host has room for the last one.
FLAVORS = {"small": (192, 1), "medium": (256, 2), "vast": (256, 100_000)}
#: Script that the newcomer writes into the form: it draws on the guest's screen.
USER_DATA = r"""#!/bin/sh
printf '\033[2J\033[H\n  Hello from \033[1;32m%s\033[0m\n\033[44m   \033[0m\n' "$(hostname)" >/dev/tty1
"""
PATIENCE = 180.0


class Newcomer:
    """A user of a new project, with a key and an SSH client, before the page."""

    def __init__(self, page: Page, sdk: Any, directory: Path) -> None:
        self.page = page
        self.sdk = sdk
        self.directory = directory
        self.server = ""

    def shot(self, name: str) -> None:
        if target := os.environ.get("NOVA_LITE_SCREENSHOTS"):
            width = self.page.browser.run("innerWidth")
            Path(target).mkdir(parents=True, exist_ok=True)
            self.page.browser.screenshot(Path(target) / f"real-{width}-{name}.png")

    def act(self, button: str, **fields: str) -> None:
        """Press a button, or an item of the menu of further ones; fill in the dialog, and send it."""
        self.page.browser.wait(f"!!pressable({json.dumps(button)}) || !!pressable('More')")
        if not self.page.offers(button):
            self.page.press("More")
        self.page.press(button)
        for label, value in fields.items():
            self.page.write(label.replace("_", " "), value)
        self.page.browser.wait("[...seen().querySelectorAll('select[required]')].every((item) => item.value)")
        self.page.submit()
        self.page.browser.wait("!document.querySelector('dialog[open]')", 60)

    def open(self, tab: str = "timeline", server: str = "") -> None:
        self.page.go(f"servers/{server or self.server}/{tab}")

    def create(self, name: str, flavor: str) -> str:
        self.page.write("Name", name)
        self.page.browser.run(
            "[...document.querySelectorAll('.cards label')].find((item) => item.innerText.startsWith("
            f"{json.dumps(flavor)})).click(); true"
        )
        self.page.press("Create the server")
        self.page.browser.wait("/servers\\/[0-9a-f-]{36}$/.test(location.hash)", 60)
        return str(self.page.browser.run("location.hash.split('/')[2]"))

    def log_in(self, command: str, then: str) -> str:
        """Run the page's command in a shell, as a user does who has chosen the key in their settings."""
        settings = f"IdentityFile {self.directory}/key\nStrictHostKeyChecking accept-new\nConnectTimeout 10\n"
        (self.directory / "settings").write_text(f"{settings}UserKnownHostsFile {self.directory}/known\n")
        client = self.directory / "ssh"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.directory}/settings "$@"\n')
        client.chmod(0o755)
        path = {**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"}

        def said() -> str:
            done = subprocess.run(
                ["bash"], input=f"{command} {then}\n", env=path, capture_output=True, text=True, timeout=60, check=False
            )
            return done.stdout if done.returncode == 0 else ""

        return str(wait_for(f"{command} logs in", said, PATIENCE, 0.5))


@pytest.fixture(scope="module")
def image(stacked: StackedCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the name of a public image whose guest has an SSH server."""
    directory = tmp_path_factory.mktemp("guest")
    disk = ssh_guest.build(guest_image.build(directory), directory)
    stacked.sweep()
    made = stacked.images.create_image(
        name="page-ssh",  # what has the prefix is swept before each test
        filename=str(disk),
        disk_format="qcow2",
        container_format="bare",
        visibility="public",
        os_admin_user="debian",
    )
    for name, (memory, gigabytes) in FLAVORS.items():
        if not stacked.compute.find_flavor(PREFIX + name):
            stacked.compute.create_flavor(name=PREFIX + name, ram=memory, vcpus=1, disk=gigabytes)
    yield "page-ssh"
    for name in FLAVORS:
        stacked.compute.delete_flavor(stacked.compute.find_flavor(PREFIX + name))
    stacked.images.delete_image(made)


@pytest.fixture
def newcomer(cloud: StackedCloud, image: str, tmp_path: Path) -> Iterator[Newcomer]:
    """Provide a user whose project has nothing yet. Afterwards everything of the project is deleted."""
    admin = openstack.connect(cloud="nova-lite")
    (port,) = re.findall(r"^PAGE_PORT=(\d+)$", SETTINGS.read_text(), re.MULTILINE)
    name = f"{PREFIX}newcomer"
    for kind in ("user", "project"):
        if left := getattr(admin.identity, f"find_{kind}")(name):
            getattr(admin.identity, f"delete_{kind}")(left)
    project = admin.identity.create_project(name=name)
    user = admin.identity.create_user(name=name, password=PASSWORD)
    admin.identity.assign_project_role_to_user(project, user, admin.identity.find_role("member"))
    auth = {**admin.config.config["auth"], "username": name, "password": PASSWORD, "project_name": name}
    sdk = openstack.connect(load_yaml_config=False, load_envvars=False, auth=auth, region_name=admin.config.region_name)
    try:
        with browser(tmp_path / "profile") as chromium:
            chromium.watch()
            yield Newcomer(Page(chromium, f"http://127.0.0.1:{port}/"), sdk, tmp_path)
    finally:
        empty(sdk)
        admin.identity.delete_user(user)
        admin.identity.delete_project(project)


def empty(sdk: Any) -> None:
    """Delete everything that the project has."""
    for server in sdk.compute.servers():
        sdk.compute.delete_server(server)
    wait_for("the project's servers are gone", lambda: not list(sdk.compute.servers()), 300, 0.5)
    for volume in sdk.block_storage.volumes():
        sdk.block_storage.delete_volume(volume)
    for address in sdk.network.ips():
        sdk.network.delete_ip(address)
    for router in sdk.network.routers():
        for port in sdk.network.ports(device_id=router.id):
            if "interface" in port.device_owner:
                sdk.network.remove_interface_from_router(router, port_id=port.id)
        sdk.network.delete_router(router)
    for network in sdk.network.networks(project_id=sdk.current_project_id):
        sdk.network.delete_network(network)
    for key in sdk.compute.keypairs():
        sdk.compute.delete_keypair(key)


@contextlib.contextmanager
def only_first_host(cloud: StackedCloud) -> Iterator[None]:
    """Let new servers go to the first host: this machine has the floating addresses of guests there."""
    _, *others = cloud.entered
    services = [service for service in cloud.compute.services(binary="nova-compute") if service.host in others]
    for service in services:
        cloud.compute.disable_service(service)
    try:
        yield
    finally:
        for service in services:
            cloud.compute.enable_service(service)


@pytest.mark.parametrize("width", [1280, 390])
def test_page_with_real_guests_serves_a_newcomer_and_an_operator(
    cloud: StackedCloud, newcomer: Newcomer, image: str, width: int
) -> None:
    page = newcomer.page
    page.browser.resize(width, 900 if width > 1000 else 844)
    with only_first_host(cloud):
        first_server(newcomer, image)
        failed_create(newcomer)
    console(newcomer)
    volume(newcomer)
    resize(newcomer)
    assert page.complaints() == []
    if len(cloud.entered) > 1:
        drain(cloud, newcomer)
    assert page.complaints() == []


def first_server(newcomer: Newcomer, image: str) -> None:
    """Log in for the first time; make a key, a network, a router, and a server; log in to its guest from outside."""
    page = newcomer.page
    page.open()
    page.browser.wait("!!control('User')")
    newcomer.shot("01-log-in")
    page.enter(f"{PREFIX}newcomer", PASSWORD)
    page.sees("There are no servers in this project yet.")
    newcomer.shot("02-empty")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(newcomer.directory / "key")], check=True)
    page.go("keys")
    newcomer.act("Add a key", Name="mine", Public_key=(newcomer.directory / "key.pub").read_text())
    page.go("networks")
    newcomer.act("Create a network", Name="inside", Address_range="10.65.7.0/24")
    page.go("routers")
    page.press("Create a router")
    page.write("Name", "way-out")
    page.write("External gateway", "public")
    page.browser.wait("!!seen().querySelector('.many input')")
    page.browser.run("[...seen().querySelectorAll('.many label')].find((i) => /inside/.test(i.innerText)).click(); 1")
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.go("networks")
    page.browser.wait("/way-out/.test(document.querySelector('.topology')?.textContent)")
    newcomer.shot("03-topology")
    page.go("security-groups")
    page.press("default")
    newcomer.act("Add a rule", What="SSH")
    page.sees("Lets in SSH (TCP 22) from everywhere")
    page.go("servers/new")
    page.write("Boot source", image)
    page.write("Network", "inside")
    page.write("Key", "mine")
    page.browser.run("document.querySelector('.split summary').click(); true")
    page.write("User data", USER_DATA)
    newcomer.shot("04-create")
    newcomer.server = newcomer.create("web", f"{PREFIX}small")
    newcomer.shot("05-building")
    page.sees("The guest runs.", PATIENCE)
    newcomer.open("network")
    newcomer.act("Associate a floating address", Floating_address="a new one of public")
    page.sees("ssh debian@172.24.4.", 60)
    newcomer.shot("06-network")
    command = re.findall(r"^ssh \S+$", page.text(), re.MULTILINE)[0]
    assert newcomer.log_in(command, "hostname") == "web\n"
    newcomer.open()
    newcomer.shot("07-timeline")


def failed_create(newcomer: Newcomer) -> None:
    """Ask for more than any host has, read why there is none, and change the request."""
    page = newcomer.page
    page.go("servers/new")
    page.browser.wait("!!control('Network')")
    failed = newcomer.create("data", f"{PREFIX}vast")
    page.sees("No valid host was found.", 60)
    page.sees("Choose a smaller flavor")
    page.browser.wait("!!document.querySelector('.timeline .bad .reason')")
    newcomer.shot("08-failed")
    page.press("Create it again, with changes")
    page.browser.wait("control('Name')?.value === 'data'")
    repaired = newcomer.create("data", f"{PREFIX}small")
    page.sees("The guest runs.", PATIENCE)
    newcomer.open(server=failed)
    newcomer.act("Delete")
    page.sees("This server is deleted.", 60)
    page.complaints()  # the API no longer finds it
    newcomer.open(server=repaired)
    newcomer.shot("09-repaired")


def console(newcomer: Newcomer) -> None:
    """Type a sum into the guest's shell, and see its screen."""
    page = newcomer.page
    newcomer.open("console")
    page.press("Open the serial port")
    page.sees("Connected", 60)
    rows = "document.querySelector('.xterm-rows').textContent"
    page.browser.press("Enter", "\r")
    page.browser.wait(f"/[#$]\\s/.test({rows})", 60)
    for char in "echo sum $((6 * 7))":
        page.browser.press(char, char)
    page.browser.press("Enter", "\r")
    page.browser.wait(f"{rows}.includes('sum 42')", 60)
    newcomer.shot("10-serial")
    page.press("Close the console")
    page.press("Open the screen")
    page.sees("Connected", 60)
    page.browser.wait(f"(({CANVAS})?.[2] ?? 0) >= 3", 60)
    newcomer.shot("11-screen")
    page.press("Close the console")


def volume(newcomer: Newcomer) -> None:
    """Make a volume, attach it to one server, and move it to the other."""
    page = newcomer.page
    page.go("volumes")
    newcomer.act("Create a volume", Name="moving", Size_in_GB="1")
    (made,) = newcomer.sdk.block_storage.volumes()
    web, data = (newcomer.sdk.compute.find_server(name).id for name in ("web", "data"))
    for holder, name in ((web, "web"), (data, "data")):
        page.go(f"volumes/{made.id}")
        page.sees("Available", 60)
        newcomer.act("Attach to a server", Server=name)
        page.sees("In-use", 60)
        assert [item.volume_id for item in newcomer.sdk.compute.volume_attachments(holder)] == [made.id]
        newcomer.open("disks", holder)
        page.sees("moving")
        newcomer.shot(f"12-disks-{name}")
        page.press("Actions")
        newcomer.act("Detach")
        page.sees("No volumes are attached.", 60)


def resize(newcomer: Newcomer) -> None:
    page = newcomer.page
    newcomer.open()
    newcomer.act("Resize", New_flavor=f"{PREFIX}medium")
    page.sees("The resize is done.", PATIENCE)
    newcomer.shot("13-resized")
    newcomer.act("Confirm the resize")
    page.sees("The guest runs.", PATIENCE)
    page.sees(f"{PREFIX}medium")


def drain(cloud: StackedCloud, newcomer: Newcomer) -> None:
    """Log out; as an operator, look at the plan, and move everything away from the host of the server."""
    page = newcomer.page
    password = openstack.connect(cloud="nova-lite").config.config["auth"]["password"]
    before = cloud.compute.get_server(newcomer.server).compute_host
    page.browser.forget()
    page.open("hosts")
    page.enter("admin", password)
    page.sees("hosts up")
    page.complaints()  # requests before the log-in
    newcomer.shot("14-hosts")
    page.go(f"hosts/{before}")
    newcomer.shot("15-host")
    try:
        page.press("Drain")
        page.sees("This would happen now.")
        newcomer.shot("16-plan")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')", 60)
        page.sees("No servers are on this host.", PATIENCE)
        newcomer.shot("17-drained")
        assert cloud.compute.get_server(newcomer.server).compute_host != before
        page.go("actions?only=moves")
        page.sees("Completed")
        newcomer.shot("18-moves")
    finally:
        (service,) = cloud.compute.services(binary="nova-compute", host=before)
        cloud.compute.enable_service(service)
    page.go("hosts")
    newcomer.shot("19-after")
