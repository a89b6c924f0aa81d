"""The web page in a headless browser against a whole cloud: journeys of a user and of an operator.

The browser is Chromium, or what ``NOVA_LITE_BROWSER`` names (``devstack/page.sh --firefox``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openstack
import pytest
from cryptography.hazmat.primitives import serialization

from nova_lite.api.identity import one_time_codes
from nova_lite.image.sources import catalogue
from tests.functional.proxy import Proxy
from tests.support.api_client import ROOT
from tests.support.browser import CTRL, browser
from tests.support.firefox import firefox
from tests.support.page import Page
from tests.support.waiting import wait_for

PASSWORD = "correct horse"
#: A user of each further role, and a user whose project is empty.
SEED = """
projects:
- {name: fresh}
users:
- {name: reader, project: demo, roles: [reader]}
- {name: manager, project: demo, roles: [manager]}
- {name: fresh, project: fresh}
"""
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBZkgYMJVdyBZKqH1IWNkEZkg7RvqrXtlgP9BzhZLdCt me@example.org"
#: A qcow2 file of version 3 without a cluster of data. Its disk has 1 GiB.
EMPTY_QCOW2 = (
    struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 3, 0, 0, 16, 1 << 30, 0, 2, 1 << 16, 2 << 16, 1, 0, 0)
    + struct.pack(">QQQII", 0, 0, 0, 4, 104)
    + bytes(200_000)
)
#: A name that is a script where a page makes HTML of names.
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"{{7*7}}'


@pytest.fixture(scope="session", autouse=True)
def broker() -> None:
    """Replace the fixture of this directory: no broker is needed."""


#: Options with a misspelt one, load balancers, and a host of images. ``mirror``: that host.
OPTIONS = """
[DEFAULT]
report_intervall = 10
wings = load_balancer
[api]
enabled_apis = osapi_compute, identity, image, network, volume, placement, metadata, page, load_balancer
[image]
import_hosts = {mirror}
"""


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the file ``disk.raw`` and an image of Debian, and yield host and port."""
    directory = tmp_path_factory.mktemp("mirror")
    (directory / "disk.raw").write_bytes(b"disk" * 1000)
    debian = directory / catalogue.find("debian/13").file("x86_64")
    debian.parent.mkdir(parents=True)
    debian.write_bytes(EMPTY_QCOW2)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def cloud(mirror: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    seed = tmp_path_factory.mktemp("seed") / "seed.yaml"
    seed.write_text(SEED)
    options = seed.with_name("options.conf")
    options.write_text(OPTIONS.format(mirror=mirror))
    command = [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.dev", "dev", "--port", "0", "--json", "--faults"]
    process = subprocess.Popen(
        [*command, "--hosts", "2", "--password", PASSWORD, "--seed", str(seed), "--config-file", str(options)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the cloud has not started"
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def page(cloud: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    name = os.environ.get("NOVA_LITE_BROWSER", "chromium")
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (devstack/test.sh installs chromium)")
    with {"chromium": browser, "firefox-esr": firefox}[name](tmp_path_factory.mktemp("profile")) as driven:
        driven.resize(1280, 900)
        driven.watch()
        yield Page(driven, f"{cloud['url']}/page/")


def client(cloud: dict[str, Any], name: str = "nova-lite-dev-demo") -> Any:
    return openstack.connect(load_yaml_config=False, load_envvars=False, **cloud["clouds"][name])


def test_user_creates_a_server_and_stops_it(page: Page) -> None:
    page.open("servers/new")
    page.enter("demo", "wrong")
    page.sees("Wrong user, password or domain.")
    page.complaints()
    page.enter("demo", PASSWORD)
    page.browser.wait("!!control('Name')")
    page.write("Name", "web")
    page.sees("openstack server create --image nova-lite-guest --flavor m1.tiny --network auto web")
    page.press("Create the server")
    page.sees("The guest runs.")
    page.sees("Build the guest on its host")
    page.press("Stop")
    page.sees("openstack server stop")
    page.press("Stop")
    page.sees("The guest is off.")
    page.browser.run("history.back(); true")
    page.browser.wait("location.hash === '#/servers/new'")
    assert page.complaints() == []


#: Expression: what the finder would do now.
_CHOSEN = "(document.querySelector('#hits [aria-selected=true]')?.innerText ?? '')"


class Hand:
    """A user's hand on the page, which counts what it does."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        self.fields = 0

    def press(self, text: str) -> None:
        self.page.press(text)
        self.clicks += 1

    def tick(self, label: str) -> None:
        self.page.browser.wait(f"!!control({json.dumps(label)})")
        self.page.browser.run(f"control({json.dumps(label)}).click(); true")
        self.clicks += 1

    def write(self, label: str, value: str) -> None:
        self.page.write(label, value)
        self.fields += 1

    def enter(self, text: str) -> None:
        """Press Enter on a button that has the focus, or on what the finder has chosen. It counts as a click."""
        self.page.browser.wait(
            f"[{_CHOSEN}, document.activeElement.innerText].some((item) => item.startsWith({json.dumps(text)}))"
        )
        self.page.browser.press("Enter", "\r")
        self.clicks += 1

    def done(self, task: str, column: int = -1) -> None:
        """Compare what was done with the table of tasks in the documentation."""
        table = (ROOT / "docs/howto/web-page.md").read_text()
        (row,) = [line.split(" | ") for line in table.splitlines() if line.startswith(f"| {task} |")]
        assert row[column].removesuffix(" |") == f"{self.clicks} and {self.fields}", task


#: Keeps what the page offers as files, and what it sends.
_OVERHEARD = """{
  window.saved = [];
  window.sent = [];
  const [offer, send] = [URL.createObjectURL, window.fetch];
  URL.createObjectURL = (blob) => {
    blob.text().then((text) => saved.push(text));
    return offer.call(URL, blob);
  };
  window.fetch = (url, init) => {
    sent.push(`${url} ${init.body ?? ''} ${JSON.stringify(init.headers)}`);
    return send(url, init);
  };
}; true"""


def test_first_server_gets_a_new_key_and_ssh_in_one_form(cloud: dict[str, Any], page: Page) -> None:
    """The private key is a file of the user's, and is in no request."""
    page.user = ""
    page.log_in("fresh", PASSWORD)
    page.go("servers")
    page.browser.run(_OVERHEARD)
    hand = Hand(page)
    hand.press("Create a server")
    hand.write("Name", "first")
    hand.press("Linux with SSH")
    page.sees("openstack keypair create --private-key fresh.key fresh")
    page.sees("--key-name fresh --security-group default --security-group ssh first")
    hand.press("Create the server")
    hand.done("First server, with a new key and SSH")
    page.sees("The guest runs.")
    page.sees("The new private key is in no other place than this tab and the file.")
    page.press("Save fresh.key")
    page.browser.wait("saved.length === 2")
    first, second = page.browser.run("saved")
    assert first == second
    key = serialization.load_ssh_private_key(first.encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    requests = "".join(page.browser.run("sent"))
    assert public in requests
    for line in first.splitlines()[1:-1]:
        assert line not in requests
    with client(cloud, "nova-lite-dev") as sdk:
        (server,) = sdk.compute.servers(all_projects=True, name="^first$")
        assert server.key_name == "fresh"
        assert [group["name"] for group in server.security_groups] == ["default", "ssh"]
        (group,) = sdk.network.security_groups(project_id=server.project_id, name="ssh")
        rules = [rule for rule in group.security_group_rules if rule["direction"] == "ingress"]
        assert {(rule["port_range_min"], rule["protocol"], rule["ethertype"]) for rule in rules} == {
            (22, "tcp", "IPv4"),
            (22, "tcp", "IPv6"),
        }
    page.press("Close the notice")
    assert "PRIVATE KEY" not in page.browser.run(STORED)
    assert page.complaints() == []


def test_web_server_of_a_preset_gets_a_floating_address_and_finds_the_groups(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("fresh", PASSWORD)
    page.go("servers")
    hand = Hand(page)
    hand.press("Create a server")
    hand.write("Name", "shop")
    hand.press("Web server")
    hand.tick("Floating address, which the outside reaches")
    page.sees("openstack floating ip create public")
    page.browser.wait("control('User data').value.includes('- nginx')")
    page.write("User data", "#cloud-config\npakages:\n- nginx")
    page.press("Line 2")
    page.sees("cloud-init has no key pakages; did you mean packages?")
    area = "document.activeElement"
    assert page.browser.run(f"{area}.value?.slice({area}.selectionStart, {area}.selectionEnd)") == "pakages:"
    page.write("User data", "#cloud-config\npackages:\n- nginx")
    page.browser.wait("!pressable('Line 2')")
    hand.press("Create the server")
    hand.done("Web server with a floating address")
    page.sees("The guest runs.")
    with client(cloud, "nova-lite-dev") as sdk:
        (server,) = sdk.compute.servers(all_projects=True, name="^shop$")

        def is_associated() -> bool:
            (port,) = sdk.network.ports(device_id=server.id)
            return any(item.port_id == port.id for item in sdk.network.ips(project_id=server.project_id))

        wait_for("the floating address", is_associated, 60)
        assert [group["name"] for group in server.security_groups] == ["default", "ssh", "web"]
        assert len(list(sdk.network.security_groups(project_id=server.project_id, name="ssh"))) == 1
    assert page.complaints() == []


def test_failed_build_is_explained(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("fault.fail")
        made = sdk.compute.create_server(name="broken", image_id=image.id, flavor_id=flavor.id, networks="auto")
    page.log_in("demo", PASSWORD)
    page.go(f"servers/{made.id}")
    page.sees("Why")
    page.sees("build fails on host")
    page.sees("failed after")
    assert page.browser.run("document.querySelectorAll('.timeline .bad').length") >= 2
    assert page.complaints() == []


def test_lack_of_room_is_shown_as_a_funnel_of_filters(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud, "nova-lite-dev") as sdk:
        image = sdk.image.find_image("nova-lite-guest")
        flavor = sdk.compute.create_flavor(name="wide", ram=1024, vcpus=1, disk=100000)
        made = sdk.compute.create_server(name="wide", image_id=image.id, flavor_id=flavor.id, networks="auto")
    page.log_in("admin", PASSWORD)
    page.go(f"servers/{made.id}")
    page.sees("No valid host was found. Of 2 hosts")
    page.sees("DiskFilter")
    page.sees("host2 (100000 GB requested")
    assert (
        page.browser.run("[...document.querySelectorAll('.funnel > li > b')].map((item) => item.innerText)")[-1] == "0"
    )
    assert page.complaints() == []


#: Replaces the history of use, which takes minutes to come into being, by one in which the CPU was half used.
#: `KNOWN`: number of values that it has.
_HISTORY = """
window.fetched = window.fetched ?? window.fetch;
window.fetch = async (url, init) => {
  if (!String(url).includes('os-usage-history')) return window.fetched(url, init);
  const reply = await window.fetched(url, init);
  const body = await reply.json();
  const {series} = body.usage_history;
  for (const name of Object.keys(series)) series[name] = series[name].map(
    (_, at) => at >= KNOWN ? null : name === 'cpu' ? 0.5 : 1048576
  );
  return new Response(JSON.stringify(body), {status: reply.status});
};
true
"""


def test_member_sees_what_a_server_has_used_and_what_was_done_meanwhile(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="drawn", image_id=image.id, flavor_id=flavor.id, networks="none")
        sdk.compute.wait_for_server(made)
    page.log_in("demo", PASSWORD)
    page.browser.run(_HISTORY.replace("KNOWN", "1000"))
    page.go("servers")
    page.browser.wait("document.querySelector('.spark')?.innerText.trim() === '50 %'")
    assert page.browser.run("document.querySelector('.spark svg').ariaLabel") == "CPU in the last hour"
    page.go(f"servers/{made.id}/diagnostics")
    page.sees("in use 50 %")
    page.sees("Received 1 MB/s")
    assert page.browser.run("document.querySelectorAll('.graph .stroke').length") == 6
    summary = page.browser.run("document.querySelector('.graph svg').ariaLabel")
    assert summary == "CPU. in use: latest 50 %, mean 50 %, highest 50 %"
    assert "Create" in page.browser.run("document.querySelector('.marks').innerText")
    assert page.browser.run("document.querySelectorAll('.graph .mark').length") == 4, "the create is on each axis"
    page.press("Values as a table")
    page.sees("Disk: Written")
    page.press("Week")
    page.browser.wait("location.hash.endsWith('span=week')")
    page.browser.wait("document.querySelectorAll('.graphs tbody tr').length === 168")
    assert page.complaints() == []


def test_graphs_of_two_values_say_that_more_are_collected(page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("quotas")
    page.browser.run(_HISTORY.replace("KNOWN", "2"))
    page.go("hosts/host1")
    page.sees("Values are being collected. The line begins with the third one.")
    page.sees("in use 0.5")
    assert page.browser.run("document.querySelectorAll('.graph svg').length") == 0
    page.open()


#: Makes the page receive hosts whose CPUs are nearly, or all, given to guests.
_FULL_HOSTS = """{
  const real = window.fetch;
  window.fetch = async (url, init) => {
    const reply = await real(url, init);
    if (!String(url).includes('os-hypervisors/detail')) return reply;
    const body = await reply.json();
    for (const row of body.hypervisors) row.vcpus_used = row.vcpus * {host1: 0.85, host2: 1}[row.service.host];
    return new Response(JSON.stringify(body), {status: reply.status});
  };
}; true"""


def test_map_of_the_cloud_warns_of_a_nearly_full_host_and_of_a_full_one(page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("quotas")
    page.browser.run(_FULL_HOSTS)
    page.go("hosts")
    fields = page.browser.run(
        "[...document.querySelectorAll('.map li a')].map((item) => `${item.className}: ${item.innerText}`)"
    )
    assert [" ".join(text.split()) for text in fields] == ["field warn: host1 85 %", "field bad: host2 100 %"]
    page.open()


def test_menu_counts_the_alerts_of_an_operator(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("alerts")
    page.browser.wait("!!document.querySelector('.alerts .warning a')")
    counted = "document.querySelectorAll('.alerts li:is(.critical, .warning):has(.what)').length"
    page.browser.wait(f"Number(document.querySelector('.side .badge')?.innerText) === {counted}")
    page.log_in("demo", PASSWORD)
    assert page.browser.run("document.querySelectorAll('.side .badge').length") == 0


def test_thing_of_a_file_has_a_tag_in_place_of_its_mark(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        group = sdk.network.create_security_group(name="filed", description="web ports [nova-lite-apply:shop/web]")
        page.log_in("demo", PASSWORD)
        for place in ("security-groups", f"security-groups/{group.id}"):
            page.go(place)
            page.sees("web ports")
            tag = "document.querySelector('main .tag')"
            assert page.browser.run(f"[{tag}.innerText, {tag}.title]") == ["managed", "nova-lite apply: shop/web"]
            assert "[nova-lite-apply" not in page.text()
        volume = sdk.block_storage.create_volume(name="filed", size=1, description="old [nova-lite-apply:shop/disk]")
        page.go(f"volumes/{volume.id}")
        page.press("More")
        page.press("Rename")
        page.sees("shop/disk. A later apply sets its values back")
        assert page.browser.run("[control('Description').value, seen().querySelector('.tag').title]") == [
            "old",
            "nova-lite apply: shop/disk",
        ]
        page.write("Description", "new")
        page.sees("--description 'new [nova-lite-apply:shop/disk]'")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        found = sdk.block_storage.get_volume(volume.id).description
        sdk.block_storage.delete_volume(volume)
        assert found == "new [nova-lite-apply:shop/disk]"
        sdk.network.delete_security_group(group)
    assert page.complaints() == []


def test_form_warns_of_a_server_that_nobody_can_log_in_to(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("servers/new")
    page.write("Key", "None")
    page.sees("Nobody can log in to this server.")
    page.write("User data", "#!/bin/sh\npasswd")
    page.browser.wait("!seen().innerText.includes('Nobody can log in to this server.')")
    page.write("User data", "")
    page.press("Make a key")
    page.sees("openstack keypair create --private-key demo.key demo")
    page.press("Start again")
    assert page.complaints() == []


def test_overview_shows_a_user_the_project_and_an_operator_the_cloud(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("fault.fail")
        sdk.compute.create_server(name="needy", image_id=image.id, flavor_id=flavor.id, networks="none")
    page.log_in("demo", PASSWORD)
    page.go("overview")
    page.sees("Server needy")
    page.sees("Last actions")
    assert page.browser.run("document.querySelectorAll('.rings circle.used').length") >= 1
    assert not page.offers("Hosts")
    page.browser.run(
        "[...document.querySelectorAll('.states a')].find((item) => item.innerText === 'Error').click(); true"
    )
    page.browser.wait("location.hash === '#/servers?status=ERROR'")
    page.sees("needy")
    page.log_in("admin", PASSWORD)
    page.go("overview")
    page.sees("Running moves")
    page.sees("All daemons have the version")
    page.sees("2 / 2 hosts up")
    assert page.complaints() == []


def test_page_of_a_server_begins_with_what_a_user_copies(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        sdk.compute.create_keypair(name="copied", public_key=PUBLIC_KEY)
        values = {"image_id": image.id, "flavor_id": flavor.id, "networks": "auto", "key_name": "copied"}
        made = sdk.compute.create_server(name="copied", **values)
        address = next(iter(sdk.compute.wait_for_server(made).addresses.values()))[0]["addr"]
        page.log_in("demo", PASSWORD)
        page.go(f"servers/{made.id}")
        page.browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }; true")
        page.press(f"Copy {address}")
        page.browser.wait(f"window.copied === '{address}'")
        page.press(f"Copy ssh root@{address}")
        page.browser.wait(f"window.copied === 'ssh root@{address}'")
        page.sees("Copied")
        page.browser.run("document.querySelector('.access a').click(); true")
        page.sees("Open the screen")
        assert page.complaints() == []
        page.open("servers")
        sdk.compute.delete_server(made)
        sdk.compute.delete_keypair("copied")
    page.complaints()


def test_stop_lock_and_rename_of_a_server_are_undone_in_its_notice(cloud: dict[str, Any], page: Page) -> None:
    sdk = client(cloud)
    server = sdk.create_server("undone", image="nova-lite-guest", flavor="m1.nano", wait=True)
    found = lambda: sdk.compute.get_server(server.id)  # noqa: E731
    page.log_in("demo", PASSWORD)
    page.go(f"servers/{server.id}")
    assert page.browser.run("document.fonts.ready.then((all) => [...all].map((one) => one.family + one.status))") == [
        "Geistloaded"
    ]
    for action in ("Rename", "Lock"):
        page.press("More")
        page.press(action)
        if action == "Rename":
            page.write("Name", "other")
        page.submit()
        page.sees(f"{'Renamed' if action == 'Rename' else 'Locked'}: undone")
        wait_for("the change", lambda: found().name == "other" or found().is_locked, 30)
        page.press("Undo")
        page.browser.wait("!document.querySelector('.toast')")
        assert (found().name, found().is_locked) == ("undone", False)
    page.press("Stop")
    page.submit()
    page.sees("Stopping: undone")
    page.press("Undo")
    page.browser.wait("!document.querySelector('.toast')", 60)
    wait_for("the start", lambda: found().status == "ACTIVE" and not found().task_state, 30)
    assert {"stop", "start"} <= {action.action for action in sdk.compute.server_actions(server.id)}
    assert page.complaints() == []
    sdk.delete_server(server.id, wait=True)


def test_names_never_become_html(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        values = {"image_id": image.id, "flavor_id": flavor.id, "networks": "auto", "metadata": {"key": HOSTILE[:255]}}
        made = sdk.compute.create_server(name=HOSTILE, description=HOSTILE, **values)
        sdk.network.create_network(name=HOSTILE)
        sdk.network.create_security_group(name=HOSTILE, description=HOSTILE)
        sdk.image.create_image(name=HOSTILE, disk_format="raw", container_format="bare")
        sdk.block_storage.create_volume(size=1, name=HOSTILE)
    page.log_in("demo", PASSWORD)
    places = [f"servers/{made.id}/{tab}" for tab in ("timeline", "network", "metadata", "console")]
    for place in ("servers", *places, "networks", "security-groups", "images", "volumes"):
        page.go(place)
        page.sees("<img src=x")
    page.browser.press("/", "/")
    page.browser.wait("document.activeElement.matches('dialog [role=combobox]')")
    page.write("Find any name or id", "onerror")
    page.sees("<img src=x")
    page.browser.press("Escape")
    assert page.browser.run("window.hacked === undefined")
    assert page.complaints() == []


def test_expired_session_loses_no_form(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("security-groups")
    page.press("Create a security group")
    page.write("Name", "kept")
    page.write("Description", "what the user has written")
    page.browser.forget()
    page.submit()
    page.sees("The session has expired. Nothing that you have entered is lost.")
    page.write("Password", PASSWORD)
    page.press("Log in")
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.sees("what the user has written")
    page.complaints()


def test_image_is_uploaded(cloud: dict[str, Any], page: Page, tmp_path: Path) -> None:
    """The file has two pieces, and the connection is lost before the first one has arrived."""
    disk = tmp_path / "disk.raw"
    disk.write_bytes(b"disk" * 2_500_000)
    page.log_in("demo", PASSWORD)
    page.go("images")
    page.press("Upload an image")
    page.write("Name", "uploaded")
    page.write("Format", "raw")
    page.browser.choose_file("control('File')", disk)
    page.sees("openstack image create --container-format bare --disk-format raw --file disk.raw uploaded")
    page.browser.block("*/stage")
    try:
        page.submit()
        page.sees("The connection is lost. The upload goes on when it is back.")
    finally:
        page.browser.block()
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.sees("10 MB")
    with client(cloud) as sdk:
        image = sdk.image.find_image("uploaded")
        assert (image.status, image.size) == ("active", 10_000_000)
        assert image.hash_value == hashlib.sha256(disk.read_bytes()).hexdigest()
    page.complaints()


def test_system_is_installed_from_an_iso_and_boots_from_its_volume(
    cloud: dict[str, Any], page: Page, tmp_path: Path
) -> None:
    path = tmp_path / "debian.iso"
    path.write_bytes(b"disk" * 1000)
    demo = client(cloud)
    image = demo.create_image("debian.iso", filename=str(path), disk_format="iso", container_format="bare", wait=True)
    page.log_in("demo", PASSWORD)
    page.go("servers/new")
    page.write("Name", "installed")
    page.write("Boot source", "debian.iso")
    page.write("Size of the volume in GB", "3")
    page.sees("--block-device source_type=blank,destination_type=volume,boot_index=1,volume_size=3,")
    page.press("Create the server")
    page.sees("This server installs a system from its ISO.")
    server = demo.get_server("installed")
    assert server.image.id == image.id
    (volume,) = (one for one in demo.list_volumes() if one.attachments and one.attachments[0]["server_id"] == server.id)
    assert (volume.size, volume.is_bootable) == (3, False)
    page.press("Open the console")
    page.browser.wait(f"location.hash === '#/servers/{server.id}/console'")
    page.sees("The guest runs.")
    page.press("Finish the installation")
    page.sees(f"openstack volume set --bootable {volume.id}")
    assert page.complaints() == []
    page.submit()
    page.browser.wait("location.hash === '#/servers/new'")
    page.browser.wait(f"control('Boot source')?.value === 'volume:{volume.id}'")
    page.complaints()  # the view of the server has requested it once more
    assert page.browser.run("control('Name').value") == "installed"
    page.press("Create the server")
    page.sees("The guest runs.")
    server = demo.get_server("installed")
    assert demo.get_volume(volume.id).attachments[0]["server_id"] == server.id
    page.sees("boots from a volume")
    assert page.complaints() == []
    page.leave_servers()
    demo.delete_server(server.id, wait=True)
    demo.delete_volume(volume.id, wait=True)
    demo.delete_image(image.id, wait=True)


def test_image_is_loaded_by_url_and_a_host_that_is_not_listed_is_named(
    cloud: dict[str, Any], page: Page, mirror: str
) -> None:
    page.log_in("demo", PASSWORD)
    page.go("images")
    page.press("Load an image by URL")
    page.write("Name", "by-url")
    page.write("Format", "raw")
    page.write("URL", "https://elsewhere.example.org/disk.raw")
    page.submit()
    page.sees("Images are not imported from elsewhere.example.org:443. Ask the operator to add it to import_hosts.")
    page.write("URL", f"http://{mirror}/disk.raw")
    page.sees(f"openstack image import --method web-download --uri http://{mirror}/disk.raw by-url")
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    with client(cloud) as sdk:
        (image,) = sdk.image.images(name="by-url")
        wait_for("the image", lambda: sdk.image.get_image(image.id).status == "active", 30)
        assert sdk.image.get_image(image.id).size == 4000
    page.complaints()


def test_cloud_image_is_chosen_from_a_list_and_loaded_by_a_mirror(
    cloud: dict[str, Any], page: Page, mirror: str
) -> None:
    page.log_in("demo", PASSWORD)
    page.go("images")
    page.press("Load a cloud image")
    page.write("Image", "debian 13, x86_64")
    page.submit()
    page.sees("Images are not imported from cloud.debian.org:443. Ask the operator to add it to import_hosts.")
    page.write("Mirror", f"http://{mirror}/")
    path = catalogue.find("debian/13").file("x86_64")
    page.sees(f"openstack image import --method web-download --uri http://{mirror}/{path} debian-13")
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    with client(cloud) as sdk:
        (image,) = sdk.image.images(name="debian-13")
        wait_for("the image", lambda: sdk.image.get_image(image.id).status == "active", 30)
        found = sdk.image.get_image(image.id)
        assert (found.size, found.disk_format, found.os_distro) == (len(EMPTY_QCOW2), "qcow2", "debian")
        assert found.os_admin_user == "debian"
        sdk.image.delete_image(image)
    page.complaints()


def rows_of(page: Page, label: str) -> list[str]:
    """Return the words of the rows of a table."""
    table = f"document.querySelector('[aria-label={json.dumps(label)}]')"
    return list(page.browser.run(f"[...({table}?.querySelectorAll('tbody tr') ?? [])].map((row) => row.innerText)"))


def test_user_makes_a_load_balancer_on_one_screen(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="member", image_id=image.id, flavor_id=flavor.id, networks="auto")
        address = next(iter(sdk.compute.wait_for_server(made).addresses.values()))[0]["addr"]
        page.log_in("demo", PASSWORD)
        page.go("load-balancers")
        page.press("Create a load balancer")
        page.write("Name", "shop")
        page.write("Network", "private")
        page.write("Health monitor", "HTTP")
        page.write("Path of the page", "/health")
        page.browser.wait(f"!!control('{address} (member)')")
        page.browser.run(f"control('{address} (member)').click(); true")
        page.sees(f"openstack loadbalancer member create --address {address} --protocol-port 80 --wait shop")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.press("shop")
        page.sees("HTTP /health, 5 s")
        page.sees(f"{address}:80")
        page.sees("HTTP 80")
        (balancer,) = sdk.load_balancer.load_balancers(name="shop")
        wait_for(
            "the load balancer",
            lambda: sdk.load_balancer.get_load_balancer(balancer.id).provisioning_status == "ACTIVE",
            60,
        )
        page.press("Delete")
        page.sees(f"openstack loadbalancer delete --cascade {balancer.id}")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.go("load-balancers")
        wait_for("the deletion", lambda: not list(sdk.load_balancer.load_balancers(name="shop")), 60)
        sdk.compute.delete_server(made)
    page.complaints()


def test_user_forwards_a_port_of_a_floating_address(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        outside = sdk.network.find_network("public").id
        network = sdk.network.create_network(name="inner")
        subnet = sdk.network.create_subnet(network_id=network.id, cidr="10.64.9.0/24", ip_version=4)
        router = sdk.network.create_router(name="inner", external_gateway_info={"network_id": outside})
        sdk.network.add_interface_to_router(router, subnet_id=subnet.id)
        values = {"image_id": image.id, "flavor_id": flavor.id, "networks": [{"uuid": network.id}]}
        made = sdk.compute.create_server(name="behind", **values)
        address = next(iter(sdk.compute.wait_for_server(made).addresses.values()))[0]["addr"]
        floating = sdk.network.create_ip(floating_network_id=outside)
        page.log_in("demo", PASSWORD)
        page.go(f"floating-addresses/{floating.id}")
        page.sees("No port of this address leads to a server.")
        page.press("Forward a port")
        page.write("Address of a server", f"{address} (behind)")
        page.write("Port outside", "2222")
        page.write("Port of the server", "22")
        page.sees("--internal-protocol-port 22 --external-protocol-port 2222 --protocol tcp")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees(f"behind {address}, 22")
        (made_forwarding,) = sdk.network.port_forwardings(floating.id)
        assert (made_forwarding.external_port, made_forwarding.internal_port) == (2222, 22)
        page.press("Actions")
        page.press("Remove")
        page.submit()
        page.sees("No port of this address leads to a server.")
        page.go("floating-addresses")
        sdk.network.delete_ip(floating)
        sdk.compute.delete_server(made)
    assert page.complaints() == []


def test_user_sees_which_rule_stops_a_packet_between_two_servers(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        group = sdk.network.create_security_group(name="closed")
        together = sdk.compute.create_server_group(name="together", policy="affinity")
        values = {"image_id": image.id, "flavor_id": flavor.id, "networks": "auto"}
        values["scheduler_hints"] = {"group": together.id}
        sender = sdk.compute.create_server(name="sender", **values)
        receiver = sdk.compute.create_server(name="receiver", security_groups=[{"name": "closed"}], **values)
        servers = [sdk.compute.wait_for_server(server) for server in (sender, receiver)]
        addresses = [next(iter(server.addresses.values()))[0]["addr"] for server in servers]
        page.log_in("demo", PASSWORD)
        page.go("networks")
        page.press("Can A reach B?")
        page.write("From", f"sender ({addresses[0]})")
        page.write("To", f"receiver {addresses[1]}")
        page.write("Protocol", "TCP")
        page.write("Port", "443")
        page.press("Follow the packet")
        page.sees("It does not arrive.")
        page.sees("(groups: closed)")
        page.press("Security group closed")
        page.browser.wait(f"location.hash === '#/security-groups/{group.id}'")
        sdk.network.create_security_group_rule(
            security_group_id=group.id, direction="ingress", protocol="tcp", port_range_min=443, port_range_max=443
        )
        page.go("networks")
        page.press("Can A reach B?")
        page.write("From", f"sender ({addresses[0]})")
        page.write("To", f"receiver {addresses[1]}")
        page.write("Protocol", "TCP")
        page.write("Port", "443")
        page.press("Follow the packet")
        page.sees("It arrives.")
        page.write("To", "another address")
        page.write("Address", "nowhere")
        page.press("Follow the packet")
        page.browser.wait("!!document.querySelector('.reach .failure')")
        page.go("servers")
        for server in servers:
            sdk.compute.delete_server(server)
    page.complaints()


#: Expressions: scale of the drawing of the networks, boxes with their places in its view, and the window's point in the
#: middle of the view.
_SCALE = "parseInt(document.querySelector('.topology output').textContent)"
_BOXES = """(() => {
  const frame = document.querySelector('.topology .frame').getBoundingClientRect();
  return [...document.querySelectorAll('.topology .sheet :is(a, button)')].map((item) => {
    const box = item.getBoundingClientRect();
    const isInside = box.left >= frame.left && box.right <= frame.right
      && box.top >= frame.top && box.bottom <= frame.bottom;
    const isRead = parseFloat(getComputedStyle(item).fontSize) >= 12 && box.height >= 12;
    return [item.textContent, Math.round(box.left - frame.left), Math.round(box.top - frame.top), isInside, isRead];
  });
})()"""
_MIDDLE = """(() => {
  const frame = document.querySelector('.topology .frame');
  scrollTo(0, frame.offsetTop - 100);
  const box = frame.getBoundingClientRect();
  return [Math.round(box.x + box.width / 2), Math.round(box.y + box.height / 2)];
})()"""


def place_of(page: Page, text: str) -> tuple[int, int]:
    """Return where the drawing has the box with a text."""
    return next((left, top) for name, left, top, *_ in page.browser.run(_BOXES) if name == text)


def test_drawing_of_many_networks_is_readable_at_each_scale_and_kept_in_the_address(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.open_drawing()
    boxes = page.browser.run(_BOXES)
    assert all(is_inside and is_read for *_, is_inside, is_read in boxes)
    assert sum(name == "10 servers" for name, *_ in boxes) == 20
    fitted = page.browser.run(_SCALE)
    x, y = page.browser.run(_MIDDLE)
    page.browser.wheel((x, y), -240, CTRL)
    page.browser.wait(f"{_SCALE} > {fitted}")
    for _ in range(8):  # the scale depends on the window
        boxes = page.browser.run(_BOXES)
        if any(name.startswith("server-of-") for name, *_ in boxes):
            break
        page.press("Zoom in")
    assert sum(name.startswith("server-of-") for name, *_ in boxes) == 200
    assert all(is_read for *_, is_read in boxes)
    left, top = place_of(page, "network-10")
    page.browser.drag([(x, y), (x + 2, y + 2), (x + 40, y - 30)])
    page.browser.wait(f"({_BOXES}).some(([name, left]) => name === 'network-10' && left === {left + 40})")
    assert place_of(page, "network-10") == (left + 40, top - 30)
    page.browser.wait("/drawing=/.test(location.hash)")
    assert page.browser.run("location.hash").startswith("#/networks?"), "a drag follows no link"
    scale, place = page.browser.run(_SCALE), place_of(page, "network-10")
    page.go("quotas")
    page.browser.run("history.back(); true")
    page.browser.wait("!!document.querySelector('.topology output')")
    assert page.browser.run(_SCALE) == scale
    assert place_of(page, "network-10") == pytest.approx(place, abs=1)
    page.press("Fit")
    page.browser.wait(f"{_SCALE} === {fitted} && !/drawing=/.test(location.hash)")
    x, y = page.browser.run(_MIDDLE)
    page.browser.drag([(x - 20, y), (x - 60, y), (x - 100, y)], [(x + 20, y), (x + 60, y), (x + 100, y)])
    page.browser.wait(f"{_SCALE} > {fitted * 2}")
    page.leave_servers()


def test_drawing_of_networks_is_read_with_the_keyboard_alone(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.open_drawing()
    page.browser.run("pressable('Fit').focus(); true")
    page.browser.press("Tab")
    page.browser.wait("document.activeElement.ariaLabel === 'Drawing of the networks'")
    fitted = page.browser.run(_SCALE)
    for _ in range(6):
        page.browser.press("+", "+")
    page.browser.wait(f"{_SCALE} > {fitted * 3}")
    left, _ = place_of(page, "network-10")
    page.browser.press("ArrowRight")
    page.browser.wait(f"({_BOXES}).some(([name, left]) => name === 'network-10' && left === {left - 60})")
    page.browser.run("pressable('server-of-network-19-9').focus(); true")
    page.browser.wait(f"({_BOXES}).some(([name, , , isInside]) => name === 'server-of-network-19-9' && isInside)")
    page.browser.press("-", "-")
    page.browser.press("0", "0")
    page.browser.wait(f"{_SCALE} === {fitted}")
    page.browser.run("pressable('network-3').focus(); true")
    page.browser.press("Enter", "\r")
    page.browser.wait("location.hash === '#/networks/network-3'")
    page.leave_servers()


def test_volume_is_renamed_and_given_to_another_project(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        made = sdk.block_storage.create_volume(size=1, name="given")
        sdk.block_storage.wait_for_status(made, "available", wait=60)
        page.log_in("demo", PASSWORD)
        page.go(f"volumes/{made.id}")
        page.press("More")
        page.press("Rename")
        page.write("Name", "handed over")
        page.sees(f"openstack volume set --name 'handed over' {made.id}")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees("handed over")
        page.press("More")
        page.press("Give to another project")
        page.submit()
        page.sees("The key is shown only now.")
        number, key = page.browser.run("[...seen().querySelectorAll('code, .secret')].map((item) => item.innerText)")
        page.press("Close")
        page.sees("Awaiting-transfer")
    page.log_in("admin", PASSWORD)
    page.go("volumes")
    page.press("Accept a volume")
    page.write("ID of the offer", number)
    page.write("Key", key)
    page.sees(f"openstack volume transfer request accept --auth-key {key} {number}")
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.sees("handed over")
    with client(cloud, "nova-lite-dev") as sdk:
        sdk.block_storage.delete_volume(made.id)
    page.go("overview")
    page.complaints()


def test_operator_sets_extra_specs_access_volume_types_and_qos(cloud: dict[str, Any], page: Page) -> None:
    demo = project_id(cloud, "demo")
    with client(cloud, "nova-lite-dev") as sdk:
        flavor = sdk.compute.create_flavor(name="special", ram=512, vcpus=1, disk=1, is_public=False)
        page.log_in("admin", PASSWORD)
        page.go(f"flavors/{flavor.id}")
        page.press("Set an extra spec")
        page.write("Name", "hw:cpu_policy")
        page.write("Value", "shared")
        page.sees(f"openstack flavor set --property hw:cpu_policy=shared {flavor.id}")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees("hw:cpu_policy")
        page.press("Let a project use it")
        page.write("Project", "demo")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        assert [item["tenant_id"] for item in sdk.compute.get_flavor_access(flavor)] == [demo]
        page.go("volume-types")
        page.press("Create a volume type")
        page.write("Name", "fast")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.press("fast")
        page.press("Set a property")
        page.write("Name", "media")
        page.write("Value", "flash")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees("flash")
        page.go("qos-policies")
        page.press("Create a QoS policy")
        page.write("Name", "slow")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.press("slow")
        page.press("Add a rule")
        page.write("Mbit/s", "10")
        page.sees("openstack network qos rule create --type bandwidth-limit --max-kbps 10000 --egress")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees("From the guest at most 10 Mbit/s")
        page.go("overview")
        sdk.compute.delete_flavor(flavor)
        sdk.network.delete_qos_policy(sdk.network.find_qos_policy("slow"))
    assert page.complaints() == []


def test_usage_of_projects_is_shown_and_saved_as_a_file(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="metered", image_id=image.id, flavor_id=flavor.id, networks="none")
        sdk.compute.wait_for_server(made)
        page.log_in("demo", PASSWORD)
        page.go("usage")
        page.sees("metered")
        assert "All projects" not in page.text()
        page.press("Prices")
        page.write("Price of a vCPU hour", "much")
        page.submit()
        assert page.browser.run("seen().querySelector('input:invalid')?.value") == "much"
        page.write("Price of a vCPU hour", "1000,5")
        page.write("Price of a GiB of memory, for an hour", "2000")
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.open("usage")
        page.sees("Cost")
        page.leave_servers()
        sdk.compute.delete_server(made)
    page.log_in("admin", PASSWORD)
    page.go("usage?period=days")
    page.sees("All projects")
    page.browser.run(_OVERHEARD)
    page.press("Save as CSV")
    page.browser.wait("saved.length === 1")
    assert page.browser.run("saved[0].split('\\n')[0].trim()").endswith(
        'Project,ID,Server hours,CPU hours,"Memory, GB hours","Disk, GB hours",Cost'
    )
    page.browser.run("localStorage.removeItem('nova_lite.prices'); true")
    assert page.complaints() == []


def test_user_changes_the_own_password(page: Page) -> None:
    page.user = ""
    page.log_in("reader", PASSWORD)
    page.browser.run("document.querySelector('.drop summary').click(); true")
    page.press("Change the password")
    page.write("Present password", "wrong")
    page.write("New password", "another one")
    page.submit()
    page.browser.wait("!!seen().querySelector('form .failure')")
    page.write("Present password", PASSWORD)
    page.submit()
    page.sees("The session has expired. Nothing that you have entered is lost.")
    page.write("Password", "another one")
    page.press("Log in")
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.browser.run("document.querySelector('.drop summary').click(); true")
    page.press("Change the password")
    page.write("Present password", "another one")
    page.write("New password", PASSWORD)
    page.submit()
    page.sees("The session has expired.")
    page.user = ""
    page.complaints()


def test_user_adds_a_second_factor_with_a_code_of_its_key_and_removes_it(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("manager", PASSWORD)
    page.browser.run("document.querySelector('.drop summary').click(); true")
    page.press("Second factor")
    page.browser.wait("!!seen().querySelector('.qr path')")
    key = page.browser.run("seen().querySelector('.secret').innerText").replace(" ", "").strip()
    page.write("Code of the app", "000000")
    page.submit()
    page.sees("This is not the present code.")
    with client(cloud, "nova-lite-dev-manager") as sdk:
        assert sdk.identity.get("/credentials?type=totp").json()["credentials"] == []
        page.write("Code of the app", one_time_codes.code(one_time_codes.key_of(key), int(time.time() // 30)))
        page.submit()
        page.sees("The key is stored.")
        page.press("Close")
        assert [item["blob"] for item in sdk.identity.get("/credentials?type=totp").json()["credentials"]] == [key]
        page.browser.run("document.querySelector('.drop summary').click(); true")
        page.press("Second factor")
        page.press("Remove the second factor")
        page.browser.wait("!document.querySelector('dialog[open]')")
        assert sdk.identity.get("/credentials?type=totp").json()["credentials"] == []
    assert page.complaints() == []


def test_user_takes_a_picture_of_the_screen(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="pictured", image_id=image.id, flavor_id=flavor.id, networks="none")
        sdk.compute.wait_for_server(made)
        page.log_in("demo", PASSWORD)
        page.go(f"servers/{made.id}")
        page.press("Picture of the screen")
        page.browser.wait("document.querySelector('.thumbnail img')?.naturalWidth > 100")
        assert page.browser.run("document.querySelector('.thumbnail img').src").startswith("data:image/png")
        assert page.browser.run("document.querySelectorAll('.hidden-screen canvas').length") == 0
        page.leave_servers()
        sdk.compute.delete_server(made)
    assert page.complaints() == []


def test_upload_goes_on_after_the_page_was_left(cloud: dict[str, Any], page: Page, tmp_path: Path) -> None:
    disk = tmp_path / "rest.raw"
    disk.write_bytes(b"rest" * 1000)
    with client(cloud) as sdk:
        made = sdk.image.create_image(name="rest", disk_format="raw", container_format="bare")
        headers = {"Content-Type": "application/octet-stream", "Content-Range": "bytes 0-999/4000"}
        sent = sdk.image.put(f"/images/{made.id}/stage", data=disk.read_bytes()[:1000], headers=headers)
        assert sent.status_code == 204
        page.log_in("demo", PASSWORD)
        page.go(f"images/{made.id}")
        page.press("Go on with the upload")
        page.browser.choose_file("control('File')", disk)
        page.submit()
        page.browser.wait("!document.querySelector('dialog[open]')")
        page.sees("Active")
        assert sdk.image.get_image(made.id).hash_value == hashlib.sha256(disk.read_bytes()).hexdigest()
    page.complaints()


def test_backup_policy_is_made_and_shows_what_it_protects(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("backup-policies")
    page.press("Create a backup policy")
    page.write("Name", "nightly")
    page.write("Hour (UTC)", "4")
    page.sees('"hour":4')
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.press("nightly")
    page.sees("Each day, 04:30 UTC")
    page.sees("Protection")
    page.go("backup-policies")
    page.press("Actions")
    page.press("Disable")
    page.press("Disable")
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.sees("Disabled")
    assert page.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_console_of_each_kind_opens_in_the_page(cloud: dict[str, Any], page: Page, width: int) -> None:
    """The programs of both consoles keep to the content security policy: a breach would be a complaint."""
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="seen", image_id=image.id, flavor_id=flavor.id, networks="auto")
        sdk.compute.wait_for_server(made)
    page.log_in("demo", PASSWORD)
    page.browser.resize(width, 900)
    try:
        page.open(f"servers/{made.id}/console")
        page.settle()
        loaded = page.browser.run("performance.getEntriesByType('resource').map((item) => item.name).join(' ')")
        assert not re.search("screen|terminal", loaded)
        page.press("Open the screen")
        page.sees("Connected")
        # The fake guest's screen has one colour, whose bytes it sends in the order that noVNC asks for.
        context = "document.querySelector('.console canvas').getContext('2d')"
        page.browser.wait(f"[...{context}.getImageData(9, 9, 1, 1).data].join() === '120,60,20,255'")
        page.press("Close the console")
        page.press("Open the serial port")
        page.sees("Connected")
        rows = "document.querySelector('.xterm-rows')"
        page.browser.wait(f"{rows}.textContent.includes('login:')")
        for char in "root":
            page.browser.press(char, char)
        page.browser.wait(f"{rows}.textContent.includes('login: root')")
        assert page.browser.run(f"getComputedStyle({rows}).color") == "rgb(255, 255, 255)"
        page.browser.press("F6", modifiers=CTRL)
        page.browser.wait("document.activeElement.textContent === 'Close the console'")
        page.press("Close the console")
        page.browser.wait("document.adoptedStyleSheets.length === 0")
        page.leave_servers()
    finally:
        page.browser.resize(1280, 900)
        with client(cloud) as sdk:
            sdk.compute.delete_server(made.id)
    assert page.complaints() == []


LIVE = "document.querySelector('.live')?.dataset.live === '{}'"


def test_changes_arrive_by_the_stream_and_by_polling_without_it(cloud: dict[str, Any], page: Page) -> None:
    """A stream that is cut and cannot begin again leaves the view current."""
    page.log_in("demo", PASSWORD)
    with Proxy(urllib.parse.urlsplit(cloud["url"]).port or 0) as way, client(cloud) as sdk:
        there = Page(page.browser, f"http://127.0.0.1:{way.port}/page/")
        there.open("servers")
        there.browser.wait(LIVE.format("true"))
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="told", image_id=image.id, flavor_id=flavor.id, networks="auto")
        there.sees("told")
        sdk.compute.wait_for_server(made)
        there.browser.wait("[...document.querySelectorAll('tr')].some((row) => /told[^]*Active/.test(row.innerText))")
        page.browser.block("*/page/events")
        try:
            way.cut()
            way.restore()
            there.browser.wait(LIVE.format("false"))
            sdk.compute.update_server(made, name="polled")
            there.sees("polled")
        finally:
            page.browser.block()
        there.open("servers")
        there.browser.wait(LIVE.format("true"))
        sdk.compute.delete_server(made)
        there.browser.wait("!document.querySelector('main').innerText.includes('polled')")
        page.open("servers")
    page.complaints()


def test_lost_network_is_named_and_loses_no_form(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("demo", PASSWORD)
    with Proxy(urllib.parse.urlsplit(cloud["url"]).port or 0) as way, client(cloud) as sdk:
        there = Page(page.browser, f"http://127.0.0.1:{way.port}/page/")
        there.open("keys")
        there.press("Add a key")
        there.write("Name", "offline")
        there.write("Public key", PUBLIC_KEY)
        way.cut()
        there.submit()
        there.sees("Nothing that you have entered is lost: try again.")
        there.browser.wait("document.body.innerText.includes('The connection to the cloud is lost.')")
        assert sdk.compute.find_keypair("offline") is None
        way.restore()
        there.submit()
        there.browser.wait("!document.querySelector('dialog[open]')")
        there.browser.wait("!document.body.innerText.includes('The connection to the cloud is lost.')")
        there.sees("offline")
        sdk.compute.delete_keypair("offline")
        page.open("images")
    page.complaints()


def test_hanging_daemon_is_named_and_the_page_goes_on_after_it(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("demo", PASSWORD)
    with Proxy(urllib.parse.urlsplit(cloud["url"]).port or 0) as way:
        there = Page(page.browser, f"http://127.0.0.1:{way.port}/page/")
        there.open("keys")
        there.settle()
        way.mute()
        there.browser.run("location.hash = '#/images'; true")
        there.browser.wait("/No answer for 5 seconds from the API: .*image/.test(document.body.innerText)")
        way.unmute()
        there.browser.wait("!document.body.innerText.includes('No answer for 5 seconds')")
        there.sees("nova-lite-guest")
        page.open("images")
    page.complaints()


def test_change_of_a_network_arrives_by_the_stream(cloud: dict[str, Any], page: Page) -> None:
    """The test ends before an idle view would ask."""
    page.log_in("demo", PASSWORD)
    page.open("networks")
    page.browser.wait(LIVE.format("true"))
    page.settle()
    with client(cloud) as sdk:
        made = sdk.network.create_network(name="announced")
        page.sees("announced", 20)
        sdk.network.delete_network(made)
        page.browser.wait("!document.querySelector('main').innerText.includes('announced')", seconds=20)
    assert page.complaints() == []


def test_fast_changes_of_a_form_are_all_kept(page: Page) -> None:
    """Two changes come before the page draws again."""
    page.log_in("demo", PASSWORD)
    page.go("images")
    page.press("Upload an image")
    page.browser.wait("!!control('Name')")
    page.browser.run("write('Name', 'both'); write('Smallest disk in GB', '7'); write('Format', 'raw'); true")
    page.sees("--disk-format raw --file FILE both")
    assert page.browser.run("seen().querySelector('[name=disk]').value") == "7"
    page.press("Cancel")


def test_refusal_of_the_api_is_shown_where_it_occurred(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("networks")
    page.press("Create a network")
    page.write("Name", "wrong")
    page.write("Address range", "10.64.0.0/99")
    page.submit()
    page.browser.wait("!!seen().querySelector('form .failure')")
    assert "10.64.0.0/99" in page.text()
    assert page.browser.run("control('Name').value") == "wrong"
    page.press("Cancel")
    page.complaints()


@pytest.mark.parametrize("user", ["demo", "reader", "manager", "admin"])
def test_menu_leads_to_nothing_that_the_apis_refuse(page: Page, user: str) -> None:
    page.log_in(user, PASSWORD)
    places = page.places()
    assert ("hosts" in places) is (user == "admin")
    page.complaints()
    creates = ["servers/new"] if user != "reader" else []
    for place in [*places, *creates]:
        page.go(place)
        found = page.complaints()
        assert found == [], f"{place}: {found}"


def test_view_of_operators_is_not_there_for_users(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    for place in ("hosts", "audit", "users", "actions", "nothing"):
        page.go(place)
        page.sees("this project's roles do not show it")


def test_operator_disables_a_host_and_enables_it(page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("hosts/host1")
    page.press("Disable")
    page.write("Reason", "new memory")
    page.sees("openstack compute service set --disable --disable-reason 'new memory' host1 nova-compute")
    page.press("Disable")
    page.browser.wait("!document.querySelector('dialog[open]')")
    page.sees("new memory")
    page.go("alerts")
    page.sees("host1: gets no new servers")
    page.sees("All daemons have the version")
    page.sees("options.conf: [DEFAULT] has no option report_intervall; did you mean report_interval?")
    page.go("hosts/host1")
    page.press("Enable")
    page.press("Enable")
    page.browser.wait("!document.querySelector('dialog[open]')")
    assert page.complaints() == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_operator_sees_the_plan_before_a_host_gives_its_servers_away(
    cloud: dict[str, Any], page: Page, is_lost: bool
) -> None:
    with client(cloud) as sdk, client(cloud, "nova-lite-dev") as admin:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="planned", image_id=image.id, flavor_id=flavor.id, networks="auto")
        sdk.compute.wait_for_server(made)
        host = admin.compute.get_server(made.id).compute_host
        (other,) = {"host1", "host2"} - {host}
        (service,) = admin.compute.services(binary="nova-compute", host=host)
        page.log_in("admin", PASSWORD)
        admin.compute.update_service_forced_down(service, host, "nova-compute", is_lost)
        page.go(f"hosts/{host}")
        page.press("Evacuate" if is_lost else "Drain")
        page.sees("This would happen now.")
        plan = "[...document.querySelectorAll('.plan tr')].find((row) => /planned/.test(row.innerText)).innerText"
        shown = page.browser.run(plan)
        assert ("with a new disk of its image" if is_lost else "while it runs") in shown
        assert other in shown
        if is_lost:
            page.press("Cancel")
            page.press("More")
            page.press("Remove from the cloud")
            page.sees("Evacuate it.")
            page.sees(f"nova-lite-manage host retire {host} --with-instances")
            page.press("Cancel")
            admin.compute.update_service_forced_down(service, host, "nova-compute", False)
            assert admin.compute.get_server(made.id).compute_host == host
        else:
            page.submit()
            page.browser.wait("!document.querySelector('dialog[open]') || /stay where/.test(seen().innerText)")
            wait_for("the move", lambda: admin.compute.get_server(made.id).compute_host == other, 60)
            page.open(f"hosts/{host}")
            page.press("End the maintenance")
            page.sees("planned")
            page.submit()
            wait_for("the way back", lambda: admin.compute.get_server(made.id).compute_host == host, 60)
            page.open(f"hosts/{host}")
            page.sees("Disable")
        sdk.compute.delete_server(made)
    page.complaints()


def test_api_explorer_offers_and_sends_what_the_roles_allow(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("api")
    page.write("Search in this list", "os-hypervisors")
    page.sees("Nothing fits this search.")
    page.press("Show all")
    page.write("Search in this list", "keypairs")
    page.press("POST /os-keypairs")
    page.browser.wait("control('Body')?.value.includes('public_key')")
    page.press("Send the request")
    page.sees("400")
    page.sees("Invalid input")
    page.complaints()
    page.open("api/get_servers_id")
    page.write("id", "no/where")
    page.press("Send the request")
    page.sees("404")
    page.sees("/servers/no%2Fwhere")
    page.write("id", "..")
    page.press("Send the request")
    page.sees("A browser takes . and .. for other paths.")
    page.complaints()


def test_keyboard_alone_finds_a_view(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.browser.press("/", "/")
    page.browser.wait("document.activeElement.matches('dialog [role=combobox]')")
    for char in "quot":
        page.browser.press(char, char)
    page.browser.press("Enter")
    page.browser.wait("location.hash === '#/quotas'")
    page.sees("What the project uses, and may use.")


def test_keyboard_alone_stops_a_server(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="keyed", image_id=image.id, flavor_id=flavor.id, networks="auto")
        sdk.compute.wait_for_server(made)
        page.log_in("demo", PASSWORD)
        page.browser.press("/", "/")
        page.browser.wait("document.activeElement.matches('dialog [role=combobox]')")
        for char in "keyed":
            page.browser.press(char, char)
        page.sees("keyed")
        page.browser.press("Enter")
        page.browser.wait(f"location.hash === '#/servers/{made.id}'")
        page.sees("The guest runs.")
        tab_to(page, "Stop")
        page.browser.press("Enter", "\r")
        page.browser.wait("!!document.querySelector('dialog[open]')")
        tab_to(page, "Stop")
        page.browser.press("Enter", "\r")
        page.sees("The guest is off.")
        assert page.complaints() == []  # The page asks for a deleted server, too.
        sdk.compute.delete_server(made)


def find(page: Page, text: str) -> None:
    """Open the finder, and write into it, as a user without a mouse does."""
    page.browser.press("/", "/")
    page.browser.wait("document.activeElement.matches('dialog [role=combobox]')")
    for char in text:
        page.browser.press(char, char)


def test_keyboard_alone_stops_a_server_that_is_named_and_finds_it_again(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        made = sdk.compute.create_server(name="palette-1", image_id=image.id, flavor_id=flavor.id, networks="none")
        sdk.compute.wait_for_server(made)
        page.log_in("demo", PASSWORD)
        task = "Stop a server, from another view"
        page.go("quotas")
        hand = Hand(page)
        for text in ("Servers", "palette-1", "Stop"):
            hand.press(text)
        page.sees(f"openstack server stop {made.id}")
        hand.press("Stop")
        page.sees("The guest is off.")
        hand.done(task, column=1)
        sdk.compute.start_server(made.id)
        page.sees("The guest runs.")
        page.go("quotas")
        hand = Hand(page)
        find(page, "stop palette-1")
        hand.fields += 1
        hand.enter("Stop palette-1")
        page.sees(f"openstack server stop {made.id}")
        hand.enter("Stop")
        page.browser.wait("!document.querySelector('dialog[open]')")
        hand.done(task)
        wait_for("the stop", lambda: sdk.compute.get_server(made.id).status == "SHUTOFF", 30)
        find(page, "")
        page.browser.wait(f"{_CHOSEN}.startsWith('palette-1')")
        page.browser.press("Enter", "\r")
        page.browser.wait(f"location.hash === '#/servers/{made.id}'")
        page.sees("The guest is off.")
        page.leave_servers()
        sdk.compute.delete_server(made)
    assert page.complaints() == []


def test_keyboard_alone_begins_a_network_and_switches_the_project(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("admin", PASSWORD)
    find(page, "create a network")
    page.browser.wait(f"{_CHOSEN}.startsWith('Create a network')")
    page.browser.press("Enter", "\r")
    page.browser.wait("document.activeElement === control('Name')")
    page.browser.press("Escape")
    page.browser.wait("!document.querySelector('dialog[open]')")
    find(page, "switch to project demo")
    page.browser.wait(f"{_CHOSEN}.startsWith('Switch to project demo')")
    page.browser.press("Enter", "\r")
    page.browser.wait(f"location.search.includes('{project_id(cloud, 'demo')}')")
    page.settle()
    shows_project(page, "demo")
    page.user = ""
    page.complaints()


def focused(page: Page, text: str) -> None:
    """Wait until the focus is on a button with this text."""
    page.browser.wait(f"wordsOf(document.activeElement) === {json.dumps(text)}")


def test_dialog_begins_on_its_first_field_keeps_what_is_entered_and_leads_back(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("security-groups")
    page.browser.run("pressable('Create a security group').focus(); true")
    page.browser.press("Enter", "\r")
    page.browser.wait("document.activeElement === control('Name')")
    page.browser.press("k", "k")
    for _ in range(2):
        page.browser.press("Escape")
        page.sees("What you have entered would be lost.")
        page.browser.press("Escape")
        page.browser.wait("!seen().innerText.includes('would be lost')")
        assert page.browser.run("control('Name').value") == "k"
    page.browser.press("Escape")
    page.press("Discard it")
    page.browser.wait("!document.querySelector('dialog[open]')")
    focused(page, "Create a security group")
    page.browser.run("pressable('Actions').focus(); true")
    page.browser.press("Enter", "\r")
    focused(page, "Add a rule")
    page.browser.press("Enter", "\r")
    page.browser.wait("document.activeElement === control('Direction')")
    page.browser.press("Escape")
    page.browser.wait("!document.querySelector('dialog[open]')")
    focused(page, "Actions")
    page.complaints()


@pytest.fixture
def many(cloud: dict[str, Any]) -> Iterator[Any]:
    """Keys for more than a table draws at once, until they are deleted."""
    with client(cloud) as sdk:
        for number in range(52):
            sdk.compute.create_keypair(name=f"many-{number}", public_key=PUBLIC_KEY)
        yield lambda: [key.name for key in sdk.compute.keypairs() if key.name.startswith("many")]
        for name in [key.name for key in sdk.compute.keypairs() if key.name.startswith("many")]:
            sdk.compute.delete_keypair(name)


def test_rows_outside_of_the_search_are_named_and_many_need_their_number(many: Any, page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.open("keys?q=many&sort=name")
    page.settle()
    page.browser.run("control('Choose the rows in sight').click(); true")
    page.sees("chosen")
    in_sight = page.browser.run("document.querySelectorAll('tr.chosen').length")
    assert 10 < in_sight < 25, "the view has 900 pixels"
    page.press("Choose all (52)")
    page.sees("52 chosen")
    page.write("Search in this list", "many-51")
    page.sees("52 chosen, 51 not in this search")
    page.press("Delete")
    page.sees("many-0, many-1,")
    page.sees("52 chosen, 51 not in this search")
    assert page.text().count("openstack keypair delete many-") == 52
    page.write("Enter the number of chosen rows: 52", "51")
    page.submit()
    assert page.browser.run("!!document.querySelector('dialog :invalid')")
    assert len(many()) == 52
    page.write("Enter the number of chosen rows: 52", "52")
    page.submit()
    page.browser.wait("!document.querySelector('dialog[open]')")
    assert many() == []
    page.complaints()


def test_address_is_followed_and_the_way_back_leads_to_the_same_place(many: Any, page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.open("keys?q=many&sort=name")
    page.settle()
    page.go("keys?q=many-1&sort=-name")
    page.browser.wait("document.querySelector('tbody .name').innerText === 'many-19'")
    assert page.browser.run("control('Search in this list').value") == "many-1"
    page.browser.run("history.back(); true")
    page.browser.wait("document.querySelector('tbody .name').innerText === 'many-0'")
    page.browser.run("scrollTo(0, 700); true")
    page.browser.wait("scrollY === 700")
    head, menu = "document.querySelector('th').getBoundingClientRect()", "document.querySelector('.side')"
    assert page.browser.run(f"[{head}.top, {menu}.getBoundingClientRect().top].join()") == "52,52"
    page.browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    page.press("many-30")
    page.sees("Fingerprint")
    page.browser.wait("scrollY === 0")
    page.browser.run("history.back(); true")
    page.browser.wait("!!pressable('many-30') && scrollY === 700")
    page.complaints()


#: Expression: the names of the rows that are drawn.
_DRAWN = "[...document.querySelectorAll('tbody:not(.room) .name')].map((item) => item.innerText)"


def test_long_table_draws_the_rows_near_the_view_and_chooses_a_range(many: Any, page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.open("keys?q=many&sort=name")
    page.settle()
    total = page.browser.run("document.querySelector('.scroll').getBoundingClientRect().height")
    drawn = page.browser.run(_DRAWN)
    assert drawn == [f"many-{number}" for number in range(40)]
    page.browser.run("scrollTo(0, document.body.scrollHeight); true")
    page.browser.wait(f"{_DRAWN}.at(-1) === 'many-51' && !{_DRAWN}.includes('many-0')")
    assert page.browser.run("document.querySelector('tbody:not(.room) tr:last-child').ariaRowIndex") == "53"
    assert abs(page.browser.run("document.querySelector('.scroll').getBoundingClientRect().height") - total) < 4
    click = "document.querySelector('[aria-label=\"Choose many-{}\"]').dispatchEvent(new MouseEvent('click', {}))"
    held = "{bubbles: true, cancelable: true, shiftKey: true}"
    page.browser.run(click.format(50, "{bubbles: true, cancelable: true}") + "; true")
    page.browser.run(click.format(47, held) + "; true")
    page.sees("4 chosen")
    page.complaints()


def test_servers_are_filtered_by_chips_in_chosen_columns_and_saved_as_a_file(cloud: dict[str, Any], page: Page) -> None:
    with client(cloud) as sdk:
        image, flavor = sdk.image.find_image("nova-lite-guest"), sdk.compute.find_flavor("m1.nano")
        values = {"image_id": image.id, "flavor_id": flavor.id, "networks": "none"}
        made = [sdk.compute.create_server(name=f"=chip-{number}", **values) for number in range(2)]
        for server in made:
            sdk.compute.wait_for_server(server)
        sdk.compute.add_tag_to_server(made[0], "blue")
        page.log_in("demo", PASSWORD)
        page.open("servers?flavor=m1.nano")
        page.browser.run(_OVERHEARD)
        page.sees("=chip-1")
        assert page.offers("Remove this filter: Flavor: m1.nano")
        page.write("Filter", "blue (1)")
        page.browser.wait(f"{_DRAWN}.join() === '=chip-0'")
        assert page.browser.run("location.hash") == "#/servers?flavor=m1.nano&tag=blue"
        page.press("Columns")
        page.browser.run("control('Tags').click(); control('Addresses').click(); true")
        page.browser.press("Escape")
        page.press("Save as CSV")
        page.browser.wait("saved.length === 1")
        lines = page.browser.run("saved[0]").splitlines()
        assert [line.split(",")[:3] for line in lines] == [
            ["Name", "Status", "Flavor"],
            ["'=chip-0", "ACTIVE", "m1.nano"],
        ]
        assert lines[0].endswith("Created,Tags")
        assert lines[1].endswith(",blue")
        page.press("Remove this filter: Tag: blue")
        page.sees("=chip-1")
        page.open("servers")
        page.browser.wait("[...document.querySelectorAll('th')].some((head) => head.innerText.startsWith('Tags'))")
        page.press("Columns")
        page.browser.run("control('Tags').click(); control('Addresses').click(); true")
        for server in made:
            sdk.compute.delete_server(server)
    page.complaints()


def tab_to(page: Page, text: str) -> None:
    """Press Tab until the focus is on a button with this text, as a user without a mouse does."""
    for _ in range(60):
        if page.browser.run(f"document.activeElement.innerText?.trim() === {json.dumps(text)}"):
            return
        page.browser.press("Tab")
    raise AssertionError(f"no Tab leads to {text}")


def test_language_is_changed_without_a_reload(page: Page) -> None:
    page.log_in("demo", PASSWORD)
    page.go("quotas")
    page.browser.run("document.querySelector('.drop summary').click(); true")
    page.write("Language", "中文")
    page.sees("项目已用和可用的资源")
    assert page.browser.run("document.documentElement.lang") == "zh"
    page.browser.run("document.querySelector('.drop summary').click(); true")
    page.write("语言", "English")
    page.sees("What the project uses, and may use.")


def test_phone_shows_no_sideways_scrolling(page: Page, tmp_path: Path) -> None:
    page.log_in("admin", PASSWORD)
    page.browser.resize(360, 740)
    try:
        for place in ("servers", "servers/new", "hosts", "networks", "quotas"):
            page.go(place)
            assert page.browser.run("document.documentElement.scrollWidth <= innerWidth"), place
        page.go("hosts")
        assert page.browser.run("document.querySelector('td .below').innerText").startswith("Memory ")
        page.go("images")
        assert re.match(r"\d+ [KM]B · ", page.browser.run("document.querySelector('td .below').innerText"))
        assert page.browser.run("document.querySelector('.table .scroll').scrollWidth") <= 360
    finally:
        page.browser.resize(1280, 900)
    page.browser.screenshot(tmp_path / "page.png")
    page.complaints()


# --- sessions: one browser, several projects, tabs and users


def project_id(cloud: dict[str, Any], name: str) -> str:
    with client(cloud, "nova-lite-dev") as sdk:
        return str(sdk.identity.find_project(name).id)


def shows_project(page: Page, name: str) -> None:
    page.browser.wait(f"control('Project')?.selectedOptions[0]?.text === {json.dumps(name)}")


def servers_named(cloud: dict[str, Any], name: str) -> list[str]:
    """Return the projects of all servers with this name."""
    with client(cloud, "nova-lite-dev") as sdk:
        return [server.project_id for server in sdk.compute.servers(all_projects=True, name=f"^{name}$")]


def test_server_is_created_in_the_project_on_the_screen(cloud: dict[str, Any], page: Page) -> None:
    """Another tab has moved the browser's session to another project in between."""
    page.log_in("admin", PASSWORD)
    page.go("servers/new")
    shows_project(page, "admin")
    page.write("Name", "here")
    with page.browser.second_tab():
        page.open("servers")
        page.write("Project", "demo")
        page.browser.wait(f"location.search.includes('{project_id(cloud, 'demo')}')")
        page.settle()
        shows_project(page, "demo")
    page.sees("This browser's session is now in the project demo. This tab shows the project admin.")
    assert servers_named(cloud, "here") == []
    page.press("Switch back to admin")
    page.browser.wait("!document.querySelector('dialog[open]')")
    assert page.browser.run("control('Name').value") == "here"
    page.press("Create the server")
    page.sees("The guest runs.")
    assert servers_named(cloud, "here") == [project_id(cloud, "admin")]
    page.complaints()


def test_request_of_a_tab_whose_project_is_left_is_refused_and_repeated_after_the_way_back(
    cloud: dict[str, Any], page: Page
) -> None:
    """The tab has heard nothing of the other one, as in a browser that has frozen it."""
    page.log_in("admin", PASSWORD)
    page.go("servers/new")
    page.write("Name", "silent")
    demo = project_id(cloud, "demo")
    body = json.dumps({"auth": {"identity": {"methods": ["token"]}, "scope": {"project": {"id": demo}}}})
    with page.browser.second_tab():
        page.open("servers")
        page.settle()
        moved = json.dumps({"method": "POST", "headers": page.headers(), "body": body})
        assert page.browser.run(f"fetch('session', {moved}).then((response) => response.status)") == 201
    page.press("Create the server")
    page.sees("This browser's session is now in the project demo.")
    assert servers_named(cloud, "silent") == []
    page.press("Switch back to admin")
    page.sees("The guest runs.")
    assert servers_named(cloud, "silent") == [project_id(cloud, "admin")]
    assert any("409" in str(item) for item in page.complaints())


def test_tab_goes_on_in_the_project_of_the_session(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("networks")
    with page.browser.second_tab():
        page.open("servers")
        page.write("Project", "demo")
        page.browser.wait(f"location.search.includes('{project_id(cloud, 'demo')}')")
        shows_project(page, "demo")
    page.press("Go on in demo")
    page.browser.wait(f"location.search.includes('{project_id(cloud, 'demo')}')")
    page.settle()
    shows_project(page, "demo")
    page.user = ""
    page.complaints()


def test_address_names_the_project_that_is_shown(cloud: dict[str, Any], page: Page) -> None:
    page.user = ""
    page.log_in("admin", PASSWORD)
    page.browser.wait(f"location.search === '?project={project_id(cloud, 'admin')}'")
    page.open("networks", project_id(cloud, "demo"))
    page.settle()
    shows_project(page, "demo")
    assert page.browser.run("location.hash") == "#/networks"
    page.log_in("demo", PASSWORD)
    page.open("networks", project_id(cloud, "admin"))
    page.sees("You have no role in the project of this address, or there is none.")
    page.press("Go on in demo")
    page.settle()
    shows_project(page, "demo")
    page.complaints()


#: Link to a host, as an operator's page has. Faults of a user's own servers may name the host.
LINKS_A_HOST = "!!document.querySelector('[href*=\"hosts/host\"]')"


def test_first_tab_shows_nothing_of_its_user_after_the_log_in_of_another(page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("hosts")
    page.sees("host1")
    assert page.browser.run(LINKS_A_HOST)
    with page.browser.second_tab():
        page.user = ""
        page.log_in("demo", PASSWORD)
    page.sees("This browser's session is now that of demo.")
    assert not page.browser.run(LINKS_A_HOST)
    assert not page.offers("Switch back to admin")
    page.press("Go on as demo")
    # The document of the first user is there until the page is loaded again.
    page.browser.wait(f"document.querySelector('.drop summary')?.innerText === 'demo' && !{LINKS_A_HOST}")
    page.settle()
    assert not page.browser.run(LINKS_A_HOST), page.browser.run("document.body.innerHTML")
    page.complaints()


#: All that the browser keeps of this site.
STORED = "JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])"


@pytest.mark.parametrize("way", ["log-out", "expiry"])
def test_next_user_of_the_browser_sees_no_draft(page: Page, way: str) -> None:
    page.user = ""
    page.log_in("admin", PASSWORD)
    page.go("servers/new")
    page.write("Name", "drafted")
    page.browser.run("document.querySelector('.split summary').click(); true")
    page.write("Metadata", "password=hunter2")
    page.write("User data", "#!hunter2")
    page.open("servers/new")
    page.settle()
    assert page.browser.run("control('Name').value") == "drafted"
    if way == "log-out":
        page.browser.run("document.querySelector('.drop summary').click(); true")
        page.press("Log out")
    else:
        page.browser.forget()
        page.open("servers/new")
    page.browser.wait("!!control('User')")
    assert page.browser.run("control('User').value") == ""
    for trace in ("drafted", "hunter2", "admin"):
        assert trace not in page.browser.run(STORED)
    page.enter("demo", PASSWORD)
    page.browser.wait("!!document.querySelector('.shell')")
    page.go("servers/new")
    assert page.browser.run("control('Name').value") == ""
    page.browser.run("document.querySelector('.split summary').click(); true")
    assert page.browser.run("control('Metadata').value + control('User data').value") == ""
    page.user = ""
    page.complaints()


def test_draft_is_of_its_project(cloud: dict[str, Any], page: Page) -> None:
    page.log_in("admin", PASSWORD)
    page.go("servers/new")
    page.write("Name", "of-admin")
    page.write("Project", "demo")
    page.browser.wait(f"location.search.includes('{project_id(cloud, 'demo')}')")
    page.settle()
    page.go("servers/new")
    assert page.browser.run("control('Name').value") == ""
    page.write("Project", "admin")
    page.browser.wait(f"location.search.includes('{project_id(cloud, 'admin')}')")
    page.settle()
    page.go("servers/new")
    assert page.browser.run("control('Name').value") == "of-admin"
    page.press("Start again")
    page.complaints()


def test_log_out_ends_all_tabs_and_the_way_back_shows_nothing(page: Page) -> None:
    page.user = ""
    page.log_in("admin", PASSWORD)
    page.go("hosts")
    page.sees("host1")
    with page.browser.second_tab():
        page.open("servers/new")
        page.write("Name", "elsewhere")
        page.browser.run("document.querySelector('.drop summary').click(); true")
        page.press("Log out")
        page.browser.wait("!!control('User')")
    page.browser.wait("!!control('User')")
    page.browser.run("setTimeout(() => history.back()); true")
    page.browser.wait("location.search.startsWith('?project=') && !!control('User')")
    assert not page.browser.run("/host1|elsewhere/.test(document.body.innerText)")
    assert "elsewhere" not in page.browser.run(STORED)
    page.user = ""
    page.complaints()
