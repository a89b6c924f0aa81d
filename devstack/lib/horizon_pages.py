"""Horizon on Django's own server, used by headless Chromium as a member and an admin would use it.

A program of consumers.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients import TOP, Cloud
from sessions import Session

sys.path.append(str(TOP))
from tests.support.browser import Chromium, browser

#: Settings beside Horizon's defaults: the URL of the identity API is all that concerns the cloud.
SETTINGS = """\
from openstack_dashboard.settings import *

DEBUG = True
COMPRESS_ENABLED = True
COMPRESS_OFFLINE = False
ALLOWED_HOSTS = ["127.0.0.1"]
SECRET_KEY = "{secret}"
STATIC_ROOT = "{directory}/static"
COMPRESS_ROOT = STATIC_ROOT
# The styles have more entries than the cache has by default, and would push out the sessions.
CACHES = {{
    "default": {{
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {{"MAX_ENTRIES": 100000}},
    }}
}}
OPENSTACK_KEYSTONE_URL = "{url}/identity/v3"
"""

MEMBER_PANELS = (
    "project/api_access",
    "project/instances",
    "project/images",
    "project/key_pairs",
    "project/server_groups",
    "project/volumes",
    "project/snapshots",
    "project/backups",
    "project/network_topology",
    "project/networks",
    "project/routers",
    "project/security_groups",
    "project/floating_ips",
    "identity/application_credentials",
)
ADMIN_PANELS = (
    "admin/hypervisors",
    "admin/aggregates",
    "admin/instances",
    "admin/flavors",
    "admin/images",
    "admin/volumes",
    "admin/volume_types",
    "admin/snapshots",
    "admin/networks",
    "admin/routers",
    "admin/floating_ips",
    "admin/defaults",
    "admin/metadata_defs",
    "admin/info",
    "identity/domains",
    "identity/projects",
    "identity/users",
    "identity/groups",
    "identity/roles",
)
#: Angular's requests and the page itself have ended.
IDLE = (
    "document.readyState === 'complete' && (!window.angular || !angular.element(document.body).injector() ||"
    " !angular.element(document.body).injector().get('$http').pendingRequests.length)"
)
TROUBLE = "[...document.querySelectorAll('.alert-danger, .alert-error')].map(item => item.innerText.trim()).join(' ')"
TEXT = "document.body ? document.body.innerText.slice(0, 1000) : ''"
PANEL = "project/instances/"
SERVER, VOLUME, USER, NETWORK, ROUTER = "web", "data", "carol", "inner", "edge"
#: Seconds that a page may need. Horizon compiles the styles for the first ones.
SECONDS = 600.0
#: Seconds that the drawing of the topology needs to end its motion.
MOTION = 3.0


class Dashboard:
    """Horizon at ``url``, in a browser. Screenshots go into the directory."""

    def __init__(self, page: Chromium, url: str, directory: Path) -> None:
        self.page, self.url, self.directory = page, url, directory
        page.resize(1280, 800)

    def log_in(self, user: str, password: str) -> None:
        self.page.open("about:blank", "document.URL === 'about:blank'")  # a late response would bring the cookies back
        self.page.forget()
        self.page.open(f"{self.url}/auth/login/", "document.querySelector('#id_password') !== null")
        self.fill({"username": user, "password": password})
        self.submit("password")
        self.expect(
            "document.querySelector('.navbar .user-name, #profile_editor_switcher') !== null",
            f"{user} has not logged in",
        )

    def open(self, panel: str) -> None:
        """Open a panel, and wait until its requests have ended. None may have failed."""
        self.page.open(f"{self.url}/{panel}", f"location.pathname.includes({quoted(path_of(panel))}) && {IDLE}")
        title = self.page.run("document.title")
        trouble = self.page.run(TROUBLE)
        if trouble or "rror" in title or "Not Found" in title:
            raise AssertionError(f"The panel {panel} has failed: {title}: {trouble}")

    def expect(self, script: str, otherwise: str, reload: str = "") -> None:
        """Wait until an expression is true. Open the panel ``reload`` again and again meanwhile."""
        deadline = time.monotonic() + SECONDS
        while not self.page.evaluate(f"!!({script})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"{otherwise}. The page has: {self.page.run(TEXT)}")
            time.sleep(0.5)
            if reload:
                self.open(reload)

    def fill(self, values: dict[str, str]) -> None:
        """Write into fields of a form, by their names."""
        for name, value in values.items():
            self.write(f"#id_{name}", value)

    def write(self, selector: str, value: str) -> None:
        self.page.run(
            f"(field => {{field.value = {quoted(value)}; field.dispatchEvent(new Event('input'));"
            f" field.dispatchEvent(new Event('change'))}})(document.querySelector({quoted(selector)}))"
        )

    def choose(self, name: str, text: str) -> None:
        """Choose the option of a form's field that has a text."""
        option = f"[...field.options].findIndex(item => item.text.includes({quoted(text)}))"
        change = f"field.selectedIndex = {option}; field.dispatchEvent(new Event('change'))"
        self.page.run(f"(field => {{{change}}})(document.querySelector('#id_{name}'))")

    def submit(self, name: str) -> None:
        """Send the form that has a field."""
        self.page.run(f"document.querySelector('#id_{name}').form.requestSubmit()")

    def keep(self, name: str) -> None:
        self.page.screenshot(self.directory / f"horizon-{name}.png")

    def launch(self) -> None:
        """Launch a server by the form, and wait until the table shows it as active."""
        self.open(PANEL)
        self.page.run("document.querySelector('#instances__action_launch-ng').click()")
        name = ".ng-wizard input#name"
        self.expect(f"document.querySelector('{name}') !== null && {IDLE}", "The launch form has not appeared")
        self.write(name, SERVER)
        for form, choice in (("Source", "nova-lite-guest"), ("Flavor", "m1.tiny"), ("Network", NETWORK)):
            self.page.run(
                "[...document.querySelectorAll('.ng-wizard .nav a')]"
                f".find(link => link.innerText.trim().startsWith('{form}')).click()"
            )
            section = f"[ng-form=launchInstance{form}Form] .transfer-section"
            row = (
                f"[...document.querySelectorAll('{section} tr')].find(row => row.querySelector('button')"
                f" && row.innerText.trim().split(/\\s+/)[0] === {quoted(choice)})"
            )
            self.expect(row, f"The launch form offers no {form.lower()} {choice}")
            self.page.run(f"{row}.querySelector('button').click()")
        finish = "document.querySelector('.ng-wizard .modal-footer button.finish')"
        self.expect(f"!{finish}.disabled", "The launch form does not accept what was chosen")
        if trouble := self.page.run(TROUBLE):
            raise AssertionError(f"The launch form has failed: {trouble}")
        self.keep("launch")
        self.page.run(f"{finish}.click()")
        self.expect(f"{row_of('instances', SERVER)}?.innerText.includes('Active')", "The server is not active", PANEL)
        self.keep("instances")

    def console(self) -> None:
        """Open the console of the server, and wait until its page is connected."""
        link = f"{row_of('instances', SERVER)}.querySelector('a[href*=instances]').getAttribute('href')"
        self.open(self.page.run(link).lstrip("/") + "?tab=instance_details__console")
        frame = "document.querySelector('iframe#console_embed, iframe')"
        self.expect(frame, "The page of the server has no console")
        deadline = time.monotonic() + SECONDS
        while "Connected to" not in (text := self.page.run_in_frame("vnc", "document.body?.innerText") or ""):
            if time.monotonic() > deadline:
                raise AssertionError(f"The console is not connected. It says: {text}")
            time.sleep(0.5)
        self.keep("console")

    def attach(self) -> None:
        """Attach the volume by the form, and wait until the table shows it as attached."""
        self.open("project/volumes/")
        volume = self.page.run(f"{row_of('volumes', VOLUME)}.id").rpartition("__")[2]
        self.open(f"project/volumes/{volume}/attach/")
        self.choose("instance", SERVER)
        self.submit("instance")
        row = f"{row_of('volumes', VOLUME)}?.innerText"
        attached = f"{row}.includes('In-use') && {row}.includes('on {SERVER}')"
        self.expect(attached, "The volume is not attached to the server", "project/volumes/")
        self.keep("volumes")

    def topology(self) -> None:
        self.open("project/network_topology/")
        for name in (SERVER, NETWORK, ROUTER, "public"):
            drawn = (
                f"[...document.querySelectorAll('svg text')].some(item => item.textContent.includes({quoted(name)}))"
            )
            self.expect(drawn, f"The topology has no {name}")
        time.sleep(MOTION)
        self.keep("topology")

    def make_user(self) -> None:
        """Make a user by the form, and wait until the table has it."""
        self.open("identity/users/create/")
        password = secrets.token_urlsafe(12)
        self.fill({"name": USER, "email": f"{USER}@example.com", "password": password, "confirm_password": password})
        self.choose("project", "demo")
        self.choose("role_id", "member")
        self.submit("name")
        self.expect(row_of("users", USER), f"The table of users has no {USER}", "identity/users/")
        self.keep("users")


def quoted(text: str) -> str:
    return json.dumps(text)


def path_of(panel: str) -> str:
    return panel.partition("?")[0].rstrip("/")


def row_of(table: str, name: str) -> str:
    """Return the expression of a table's row that has a link of this name, or undefined."""
    return (
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        f".find(row => [...row.querySelectorAll('a')].some(link => link.innerText.trim() === {quoted(name)}))"
    )


def use_horizon(cloud: Cloud, directory: Path) -> str:
    """Use the forms of a member and an admin, and open all panels. Save screenshots into the directory."""
    make_content(cloud)
    with server(cloud, directory) as url, browser(directory / "profile", SECONDS) as page:
        dashboard = Dashboard(page, url, directory)
        dashboard.log_in("demo", cloud.password)
        dashboard.launch()
        dashboard.console()
        dashboard.attach()
        dashboard.topology()
        for panel in MEMBER_PANELS:
            dashboard.open(f"{panel}/")
        dashboard.log_in("admin", cloud.password)
        dashboard.make_user()
        for panel in ADMIN_PANELS:
            dashboard.open(f"{panel}/")
    panels = len(MEMBER_PANELS) + len(ADMIN_PANELS)
    return (
        f"server launched, volume attached and user made by forms; console connected; {panels} panels without an error"
    )


def make_content(cloud: Cloud) -> None:
    """Make a network with a router to the outside, and a volume, as a member."""
    account = {"username": "demo", "password": cloud.password, "project_name": "demo"}
    session = Session(f"{cloud.url}/identity/v3", account)

    def send(method: str, url: str, body: Any) -> Any:
        return next(iter(session.request(method, url, json=body).json().values()))

    network = send("POST", f"{session.network}/networks", {"network": {"name": NETWORK}})
    subnet = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.1.0/24", "name": NETWORK}
    subnet = send("POST", f"{session.network}/subnets", {"subnet": subnet})
    public = session.get(f"{session.network}/networks?router:external=true")["networks"][0]["id"]
    router = {"name": ROUTER, "external_gateway_info": {"network_id": public}}
    router = send("POST", f"{session.network}/routers", {"router": router})
    interface = f"{session.network}/routers/{router['id']}/add_router_interface"
    session.request("PUT", interface, json={"subnet_id": subnet["id"]})
    session.request("POST", f"{cloud.url}/volume/v3/volumes", json={"volume": {"name": VOLUME, "size": 1}})


@contextlib.contextmanager
def server(cloud: Cloud, directory: Path) -> Iterator[str]:
    """Run Horizon, and return its URL."""
    settings = SETTINGS.format(secret=secrets.token_hex(16), directory=directory, url=cloud.url)
    (directory / "dashboard_settings.py").write_text(settings)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard_settings", "PYTHONPATH": str(directory)}
    command = [sys.executable, "-W", "ignore", "-m", "django", "runserver", "--noreload", f"127.0.0.1:{port}"]
    with open(directory / "horizon.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"{url}/auth/login/", process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the first page is there. The styles are compiled for it."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=SECONDS)  # noqa: S310 our own
            return
        except urllib.error.HTTPError as error:
            raise AssertionError(f"Horizon's first page has failed: {error}") from error
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "Horizon did not start (horizon.log)"
            time.sleep(0.5)
