"""Overhead of each operation on a server, beyond its libvirt calls.

On a machine that devstack/stack.sh has made a cloud, as root, with the stack's own Python, while nothing else runs::

    /opt/nova-lite/venv/bin/python benchmarks/operations.py --runs 9 --json result.json

By the API: from the request until a GET of the server shows the result. The GETs begin when libvirt reports the
guest's new state, then one every --poll milliseconds, because earlier ones would slow the operation down.

Bare: the same calls to the same libvirtd, for a copy of a server's domain, with its interfaces and filters, on
existing disks. Both sides run each operation right after each other and alternate in being first, since filters take
longer with more guests. A booting guest is waited for first.

Rows: ``operation``, ``api_ms``, ``bare_ms`` and ``overhead_ms``, the median of the differences. Where libvirt's
calls vary by more, ``own_ms`` helps: ``api_ms`` less the time that the compute daemon spent in these calls (its
metrics). A stop includes the guest's time. A boot also has ``running_ms``, from the request until the domain runs,
and ``running_own_ms``. A boot and a delete have ``virsh_ms``: the bare calls by virsh (define and start, destroy and
undefine), one command each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import openstack

READY = "nova-lite-guest:"
#: Operations after which the guest boots, which takes a whole core of an emulating machine.
BOOTS = ("boot", "start", "reboot, hard")
PATIENCE = 120.0

#: libvirt's event at the end of each operation; a start by hand comes after a stop.
EVENTS = {
    "boot": libvirt.VIR_DOMAIN_EVENT_STARTED,
    "pause": libvirt.VIR_DOMAIN_EVENT_SUSPENDED,
    "unpause": libvirt.VIR_DOMAIN_EVENT_RESUMED,
    "suspend": libvirt.VIR_DOMAIN_EVENT_STOPPED,
    "resume": libvirt.VIR_DOMAIN_EVENT_STARTED,
    "stop": libvirt.VIR_DOMAIN_EVENT_STOPPED,
    "start": libvirt.VIR_DOMAIN_EVENT_STARTED,
    "reboot, hard": libvirt.VIR_DOMAIN_EVENT_STARTED,
    "delete": libvirt.VIR_DOMAIN_EVENT_UNDEFINED,
}


def until(what: str, check: Callable[[], Any], pause: float) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := check()):
        if time.monotonic() > deadline:
            sys.exit(f"Not within {PATIENCE:.0f} s: {what}")
        time.sleep(pause)
    return found


#: Calls that operations consist of.
CALLS = {
    "defineXMLFlags",
    "undefineFlags",
    "createWithFlags",
    "destroyFlags",
    "shutdownFlags",
    "suspend",
    "resume",
    "managedSave",
}
_SUM = re.compile(r'^nova_lite_hypervisor_call_seconds_sum\{call="(\w+)"\} (\S+)$', re.MULTILINE)


def in_calls(metrics: str) -> float:
    """Return the seconds that the compute daemon with these metrics has spent in `CALLS`."""
    with urllib.request.urlopen(metrics) as answer:
        return sum(float(seconds) for call, seconds in _SUM.findall(answer.read().decode()) if call in CALLS)


class Events:
    """Events of all domains from libvirt, with their times."""

    def __init__(self) -> None:
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=self._listen, daemon=True).start()
        self.connection = libvirt.open("qemu:///system")
        self._heard: list[tuple[str, int, float]] = []
        self._changed = threading.Condition()
        self.connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._hear, None)

    @staticmethod
    def _listen() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    def _hear(self, _connection: Any, domain: Any, event: int, _detail: int, _opaque: Any) -> None:
        with self._changed:
            self._heard.append((domain.UUIDString(), event, time.perf_counter()))
            self._changed.notify_all()

    def wait(self, domain: str, event: int, since: float) -> float:
        """Return the time of the event after ``since`` (`time.perf_counter`), or now at the timeout."""

        def found() -> list[float]:
            return [at for uuid_, what, at in self._heard if (uuid_, what) == (domain, event) and at > since]

        with self._changed:
            self._changed.wait_for(found, PATIENCE)
            return (found() or [time.perf_counter()])[0]


class ByApi:
    """A server that is operated through the API."""

    def __init__(self, compute: Any, body: dict[str, Any], poll: float, events: Events) -> None:
        self._compute, self._body, self._poll, self._events = compute, body, poll, events
        self.id = ""
        #: Times at which libvirt and a GET showed the last operation's result.
        self.happened = self.done = 0.0

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._compute.request(path, method, json=body, microversion="2.96")
        if answer.status_code >= 400 and answer.status_code != 404:
            sys.exit(f"{method} {path}: {answer.text}")
        return answer

    def _wait(self, status: str) -> None:
        def settled() -> bool:
            server = self._request("GET", f"/servers/{self.id}").json()["server"]
            if server["status"] == "ERROR":
                sys.exit(f"{self.id}: {server.get('fault')}")
            return server["status"] == status and not server["OS-EXT-STS:task_state"]

        until(f"{self.id} is {status}", settled, self._poll)
        self.done = time.perf_counter()

    def act(self, name: str, body: dict[str, Any], status: str) -> None:
        asked = time.perf_counter()
        self._request("POST", f"/servers/{self.id}/action", body)
        self.happened = self._events.wait(self.id, EVENTS[name], asked)
        self._wait(status)

    def boot(self) -> None:
        asked = time.perf_counter()
        self.id = self._request("POST", "/servers", {"server": self._body}).json()["server"]["id"]
        self.happened = self._events.wait(self.id, EVENTS["boot"], asked)
        self._wait("ACTIVE")

    def delete(self) -> None:
        asked = time.perf_counter()
        self._request("DELETE", f"/servers/{self.id}")
        self.happened = self._events.wait(self.id, EVENTS["delete"], asked)
        gone = 404
        until("it is gone", lambda: self._request("GET", f"/servers/{self.id}").status_code == gone, self._poll)

    def forget(self) -> None:
        """Request its deletion, if it exists, and do not wait."""
        if self.id:
            self._request("DELETE", f"/servers/{self.id}")

    def console(self) -> str:
        if not self.id:
            return ""
        answer = self._request("POST", f"/servers/{self.id}/action", {"os-getConsoleOutput": {}})
        return str(answer.json()["output"])

    def operations(self) -> dict[str, Callable[[], None]]:
        actions: dict[str, tuple[dict[str, Any], str]] = {
            "pause": ({"pause": None}, "PAUSED"),
            "unpause": ({"unpause": None}, "ACTIVE"),
            "suspend": ({"suspend": None}, "SUSPENDED"),
            "resume": ({"resume": None}, "ACTIVE"),
            "stop": ({"os-stop": None}, "SHUTOFF"),
            "start": ({"os-start": None}, "ACTIVE"),
            "reboot, hard": ({"reboot": {"type": "HARD"}}, "ACTIVE"),
        }
        acts = {name: functools.partial(self.act, name, *action) for name, action in actions.items()}
        return {"boot": self.boot, **acts, "delete": self.delete}


class Bare:
    """A copy of a server's domain, by libvirt alone."""

    def __init__(self, connection: Any, like: str, directory: Path) -> None:
        self._connection = connection
        self._disks: list[tuple[str, str]] = []
        self._log = directory / "console.log"
        self._free_port = 0
        self._uuid = str(uuid.uuid4())
        self._xml = self._copy(connection.lookupByUUIDString(like), directory)
        self._domain: Any = None

    def _copy(self, domain: Any, directory: Path) -> str:
        root = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        for path in ("name", "uuid", "sysinfo/system/entry[@name='uuid']"):
            for element in root.iterfind(path):
                element.text = self._uuid
        for interface in root.iterfind("devices/interface"):
            # Its MAC address stays, or its guest would get no address, and wait for one.
            for element in interface.findall("target"):
                interface.remove(element)
        for disk in root.iterfind("devices/disk"):
            source = disk.find("source")
            assert source is not None
            copy = directory / Path(source.get("file", "")).name
            self._disks.append((source.get("file", ""), str(copy)))
            source.set("file", str(copy))
        for log in root.iterfind("devices/*/log"):
            log.set("file", str(self._log))
        for console in root.iterfind("devices/*/source[@mode='bind']"):
            console.set("service", str(self._port(console.get("host", ""))))
        # Its owner's metadata would make the compute daemon destroy it.
        for metadata in root.findall("metadata"):
            root.remove(metadata)
        return ET.tostring(root, encoding="unicode")

    def _port(self, address: str) -> int:
        """Return a free port for its serial console; the copied server has its own."""
        if not self._free_port:
            with socket.create_server((address, 0)) as free:
                self._free_port = free.getsockname()[1]
        return self._free_port

    def make_disks(self) -> None:
        """Make the disks. That is no libvirt call, so it is not timed."""
        for like, path in self._disks:
            info = subprocess.run(
                ["qemu-img", "info", "-U", "--output=json", like], capture_output=True, check=True, text=True
            )
            found = json.loads(info.stdout)
            if "backing-filename" not in found:  # a config drive
                shutil.copyfile(like, path)
                continue
            base = ["-b", found["backing-filename"], "-F", found["backing-filename-format"]]
            size = [str(found["virtual-size"])]
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *base, path, *size], check=True)

    def _define(self) -> None:
        self._domain = self._connection.defineXMLFlags(self._xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)

    def boot(self) -> None:
        self._define()
        self._domain.create()

    def stop(self) -> None:
        self._domain.shutdown()
        until("it is off", lambda: not self._domain.isActive(), 0.02)

    def reboot(self) -> None:
        """Reboot hard: recreate the domain."""
        self._domain.destroy()
        self._define()
        self._domain.create()

    def delete(self) -> None:
        self._domain.destroy()
        self._domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)

    def clear(self) -> None:
        """Remove the domain after any outcome: its network needs the bridge."""
        for domain in self._connection.listAllDomains():
            if domain.UUIDString() == self._uuid:
                if domain.isActive():
                    domain.destroy()
                domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)

    def virsh(self, directory: Path) -> dict[str, float]:
        """Return the seconds of a boot and a delete by virsh. The domain does not exist before or after."""
        path, name = directory / "domain.xml", ET.fromstring(self._xml).findtext("name") or ""
        path.write_text(self._xml)
        took = {}
        for operation, commands in (
            ("boot", (["define", "--validate", str(path)], ["start", name])),
            ("delete", (["destroy", name], ["undefine", "--managed-save", name])),
        ):
            started = time.perf_counter()
            for command in commands:
                subprocess.run(["virsh", "-q", "-c", "qemu:///system", *command], check=True, stdout=subprocess.DEVNULL)
            took[operation] = time.perf_counter() - started
        return took

    def console(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def operations(self) -> dict[str, Callable[[], None]]:
        return {
            "boot": self.boot,
            "pause": lambda: self._domain.suspend(),
            "unpause": lambda: self._domain.resume(),
            "suspend": lambda: self._domain.managedSave(0),
            "resume": lambda: self._domain.create(),
            "stop": self.stop,
            "start": lambda: self._domain.create(),
            "reboot, hard": self.reboot,
            "delete": self.delete,
        }


def timed(side: ByApi | Bare, name: str) -> float:
    """Return the seconds of the operation, and wait for a boot that it starts."""
    heard = side.console().count(READY)
    started = time.perf_counter()
    side.operations()[name]()
    took = time.perf_counter() - started
    if name in BOOTS:
        until("the guest is up", lambda: side.console().count(READY) > heard, 0.1)
    return took


Run = dict[str, dict[str, float]]


def one_run(server: ByApi, connection: Any, like: str, api_first: bool, metrics: str) -> Run:
    """Return the seconds of each operation by column."""
    with tempfile.TemporaryDirectory(prefix="nova-lite-bench-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        bare = Bare(connection, like, Path(directory))
        try:
            return side_by_side(server, bare, Path(directory), api_first, metrics)
        finally:
            bare.clear()


def side_by_side(server: ByApi, bare: Bare, directory: Path, api_first: bool, metrics: str) -> Run:
    bare.make_disks()
    took: Run = {}
    for name in server.operations():
        row = took[name] = {}
        before = in_calls(metrics)
        for side in (server, bare) if api_first else (bare, server):
            row["api_ms" if side is server else "bare_ms"] = timed(side, name)
        inside = in_calls(metrics) - before
        row |= {"overhead_ms": row["api_ms"] - row["bare_ms"], "own_ms": row["api_ms"] - inside}
        if name == "boot":
            running = row["api_ms"] - (server.done - server.happened)
            row |= {"running_ms": running, "running_own_ms": running - inside}
    for name, seconds in bare.virsh(directory).items():
        took[name]["virsh_ms"] = seconds
    return took


def this_host(compute: Any) -> str:
    """Return the compute host that uses this machine's own libvirtd."""
    found = {service.host for service in compute.services() if service.binary == "nova-compute"}
    names = {socket.gethostname(), f"{socket.gethostname()}-1"} & found
    return names.pop() if names else sys.exit("No compute host of the cloud is this machine.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloud", default="nova-lite")
    parser.add_argument("--image", default="nova-lite-guest")
    parser.add_argument("--flavor", default="m1.nano")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--poll", type=float, default=10, help="milliseconds between two looks at the server")
    parser.add_argument(
        "--networks",
        choices=("auto", "none"),
        default="auto",
        help="none: guests without an interface, whose filters are most of what libvirt takes, and take unsteadily",
    )
    parser.add_argument("--metrics", default="http://127.0.0.1:9772/metrics", help="of the compute daemon")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    cloud = openstack.connect(cloud=options.cloud)
    image = next(image.id for image in cloud.image.images(name=options.image))
    body = {
        "name": "benchmark",
        "imageRef": image,
        "flavorRef": cloud.compute.find_flavor(options.flavor).id,
        "networks": options.networks,
        "availability_zone": f"nova:{this_host(cloud.compute)}",
    }
    events = Events()
    poll = options.poll / 1000
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("Ended before it was done."))
    servers = [ByApi(cloud.compute, body, poll, events)]
    runs = []
    try:
        like = servers[0]
        print("a server that the domains are copied from", file=sys.stderr, flush=True)
        timed(like, "boot")
        for number in range(options.runs + 1):
            what = f"run {number} of {options.runs}" if number else "a run that fills caches"
            print(what, file=sys.stderr, flush=True)
            servers.append(ByApi(cloud.compute, body, poll, events))
            runs.append(one_run(servers[-1], events.connection, like.id, number % 2 == 0, options.metrics))
    finally:
        for server in servers:
            server.forget()
    del runs[0]
    rows = []
    for name, columns in runs[0].items():
        medians = {column: round(statistics.median(run[name][column] for run in runs) * 1000) for column in columns}
        rows.append({"operation": name} | medians)
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
