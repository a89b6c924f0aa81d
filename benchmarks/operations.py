"""What each operation on a server takes beyond the libvirt calls that it consists of.

On a machine that devstack/stack.sh has made a cloud, as root, with the stack's own Python, while nothing else runs::

    /opt/nova-lite/venv/bin/python benchmarks/operations.py --runs 9 --json result.json

By the API: from the request until a look at the server (one every --poll milliseconds) shows that it is done. Bare: the
same calls to the same libvirtd, for a copy of the same domain on a disk of the same image. Each run does both, in turn.
Rows: ``operation``, ``api_ms``, ``bare_ms`` and ``overhead_ms``, the median of the differences.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import openstack

READY = "nova-lite-guest:"
PATIENCE = 120.0


def until(what: str, check: Callable[[], Any], pause: float) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := check()):
        if time.monotonic() > deadline:
            sys.exit(f"Not within {PATIENCE:.0f} s: {what}")
        time.sleep(pause)
    return found


class ByApi:
    """One server, through the API."""

    def __init__(self, compute: Any, body: dict[str, Any], poll: float) -> None:
        self._compute, self._body, self._poll = compute, body, poll
        self.id = ""

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

    def act(self, body: dict[str, Any], status: str) -> None:
        self._request("POST", f"/servers/{self.id}/action", body)
        self._wait(status)

    def boot(self) -> None:
        self.id = self._request("POST", "/servers", {"server": self._body}).json()["server"]["id"]
        self._wait("ACTIVE")

    def delete(self) -> None:
        self._request("DELETE", f"/servers/{self.id}")
        gone = 404
        until("it is gone", lambda: self._request("GET", f"/servers/{self.id}").status_code == gone, self._poll)

    def console(self) -> str:
        answer = self._request("POST", f"/servers/{self.id}/action", {"os-getConsoleOutput": {}})
        return str(answer.json()["output"])

    def operations(self) -> dict[str, Callable[[], None]]:
        return {
            "boot": self.boot,
            "pause": lambda: self.act({"pause": None}, "PAUSED"),
            "unpause": lambda: self.act({"unpause": None}, "ACTIVE"),
            "suspend": lambda: self.act({"suspend": None}, "SUSPENDED"),
            "resume": lambda: self.act({"resume": None}, "ACTIVE"),
            "stop": lambda: self.act({"os-stop": None}, "SHUTOFF"),
            "start": lambda: self.act({"os-start": None}, "ACTIVE"),
            "reboot, hard": lambda: self.act({"reboot": {"type": "HARD"}}, "ACTIVE"),
            "delete": self.delete,
        }


class Bare:
    """A copy of a server's domain, by libvirt alone."""

    def __init__(self, connection: Any, like: str, directory: Path) -> None:
        self._connection = connection
        self._disks: list[tuple[str, str]] = []
        self._log = directory / "console.log"
        self._xml = self._copy(connection.lookupByUUIDString(like), directory)
        self._domain: Any = None

    def _copy(self, domain: Any, directory: Path) -> str:
        root = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        own = str(uuid.uuid4())
        for path in ("name", "uuid", "sysinfo/system/entry[@name='uuid']"):
            for element in root.iterfind(path):
                element.text = own
        for interface in root.iterfind("devices/interface"):
            for tag in ("mac", "target"):
                for element in interface.findall(tag):
                    interface.remove(element)
        for disk in root.iterfind("devices/disk"):
            source = disk.find("source")
            assert source is not None
            copy = directory / Path(source.get("file", "")).name
            self._disks.append((source.get("file", ""), str(copy)))
            source.set("file", str(copy))
        for log in root.iterfind("devices/*/log"):
            log.set("file", str(self._log))
        # Its owner's metadata would make the compute daemon destroy it.
        for metadata in root.findall("metadata"):
            root.remove(metadata)
        return ET.tostring(root, encoding="unicode")

    def boot(self) -> None:
        for like, path in self._disks:
            info = subprocess.run(
                ["qemu-img", "info", "-U", "--output=json", like], capture_output=True, check=True, text=True
            )
            found = json.loads(info.stdout)
            base = ["-b", found["backing-filename"], "-F", found["backing-filename-format"]]
            size = [str(found["virtual-size"])]
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *base, path, *size], check=True)
        self._domain = self._connection.defineXMLFlags(self._xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        self._domain.create()

    def stop(self) -> None:
        self._domain.shutdown()
        until("it is off", lambda: not self._domain.isActive(), 0.02)

    def reboot(self) -> None:
        self._domain.destroy()
        self._domain.create()

    def delete(self) -> None:
        self._domain.destroy()
        self._domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        for _, path in self._disks:
            os.unlink(path)

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


def timed(side: ByApi | Bare) -> dict[str, float]:
    """Seconds of each operation; its guest is up before the first one that it has to hear."""
    took = {}
    for name, operation in side.operations().items():
        started = time.perf_counter()
        operation()
        took[name] = time.perf_counter() - started
        if name == "boot":
            until("the guest is up", lambda: READY in side.console(), 0.1)
    return took


def one_run(compute: Any, connection: Any, body: dict[str, Any], poll: float) -> tuple[dict[str, float], ...]:
    server = ByApi(compute, body, poll)
    model = ByApi(compute, body, poll)
    model.boot()
    try:
        with tempfile.TemporaryDirectory(prefix="nova-lite-bench-", dir="/var/tmp") as directory:
            os.chmod(directory, 0o755)
            return timed(server), timed(Bare(connection, model.id, Path(directory)))
    finally:
        model.delete()


def this_host(compute: Any) -> str:
    """The compute host that works with this machine's own libvirtd."""
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
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    cloud = openstack.connect(cloud=options.cloud)
    image = next(image.id for image in cloud.image.images(name=options.image))
    body = {
        "name": "benchmark",
        "imageRef": image,
        "flavorRef": cloud.compute.find_flavor(options.flavor).id,
        "networks": "auto",
        "availability_zone": f"nova:{this_host(cloud.compute)}",
    }
    connection = libvirt.open("qemu:///system")
    one_run(cloud.compute, connection, body, options.poll / 1000)  # caches
    runs = [one_run(cloud.compute, connection, body, options.poll / 1000) for _ in range(options.runs)]
    rows = []
    for name in runs[0][0]:
        api, bare = ([run[side][name] * 1000 for run in runs] for side in (0, 1))
        over = [one - other for one, other in zip(api, bare, strict=True)]
        medians = {"api_ms": api, "bare_ms": bare, "overhead_ms": over}
        rows.append({"operation": name} | {key: round(statistics.median(found)) for key, found in medians.items()})
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
