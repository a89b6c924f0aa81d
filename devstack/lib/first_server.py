"""Boot a server through the API, wait for what it prints, and show that.

    first_server.py CLOUD NAME IMAGE_ID FLAVOR_ID [CONSOLE_TEXT]

A server of that name is deleted first, so that each run is a boot. With CONSOLE_TEXT the guest has to print a line
that starts with it and holds the server's own id, name and address.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import openstack

T = TypeVar("T")

SECONDS = 120


def fail(message: str) -> NoReturn:
    sys.exit(f"first_server.py: {message}")


def poll(what: str, probe: Callable[[], T | None]) -> T:
    """``probe`` until it gives something, each half second, for a bounded time."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        result = probe()
        if result is not None:
            return result
        time.sleep(0.5)
    fail(f"gave up waiting for {what} after {SECONDS} s")


def delete_old(compute: Any, name: str) -> None:
    for server in compute.servers(name=f"^{name}$"):
        compute.delete_server(server.id)
    poll(f"the deletion of {name}", lambda: None if list(compute.servers(name=f"^{name}$")) else True)


def wait_active(compute: Any, server_id: str) -> Any:
    def probe() -> Any:
        server = compute.get_server(server_id)
        if server.status == "ERROR":
            fail(f"the server is in ERROR: {(server.fault or {}).get('message', 'no reason given')}")
        return server if server.status == "ACTIVE" else None

    return poll("the server to be ACTIVE", probe)


def wait_console(compute: Any, server: Any, text: str) -> str:
    """Return the guest's console output once it contains the text."""
    addresses = [entry for entries in server.addresses.values() for entry in entries]
    [address] = [entry["addr"] for entry in addresses if entry["version"] == 4]
    expected = f"{text} instance={server.id} hostname={server.name} ip={address}"

    def probe() -> str | None:
        output: str = compute.get_server_console_output(server.id)["output"]
        return output if expected in output else None

    return poll(f"the console to show {expected!r}", probe)


def main(cloud: str, name: str, image_id: str, flavor_id: str, console_text: str = "") -> None:
    compute = openstack.connect(cloud=cloud).compute
    delete_old(compute, name)
    began = time.monotonic()
    server = compute.create_server(name=name, image_id=image_id, flavor_id=flavor_id, networks="auto")
    server = wait_active(compute, server.id)
    print(f"server {server.id} ({name}) was ACTIVE after {time.monotonic() - began:.1f} s, on {server.compute_host}")
    for network, entries in server.addresses.items():
        print(f"addresses: {network} = {', '.join(entry['addr'] for entry in entries)}")
    if console_text:
        output = wait_console(compute, server, console_text)
        print(f"its console, {time.monotonic() - began:.1f} s after the request:")
        print("\n".join(f"    {line}" for line in output.replace("\r", "").strip().splitlines()[-8:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
