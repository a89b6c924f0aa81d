"""Two tenants with every address in common, on two hosts."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from tests.integration.network.routed_host import A, RoutedHost, router

#: The network of another project, with the addresses of `A`.
SAME = msgspec.structs.replace(
    A, id="d0000000-0000-4000-8000-000000000000", name="same", bridge="brsame", vni=104, project_id="q"
)
FLOATING, OTHER_FLOATING = "192.0.2.50", "192.0.2.51"

_WHO = """
import socket, sys
with socket.create_server(("0.0.0.0", 80)) as server:
    print("waiting", flush=True)
    while True:
        with server.accept()[0] as client:
            client.sendall(sys.argv[1].encode())
"""
_ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 1) as client:
    print(client.recv(200).decode())
"""


def answer(host: RoutedHost, who: str, address: str, port: int = 80) -> str:
    """Return what an address answers to a machine, empty without an answer."""
    command = ["ip", "netns", "exec", host.space(who), sys.executable, "-c", _ASK, address, str(port)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def populate(hosts: tuple[RoutedHost, RoutedHost], *unguarded: str) -> tuple[RoutedHost, RoutedHost]:
    """Make guests of two tenants on two hosts.

    Each host has a guest 10.1.0.10 or 10.1.0.20 of each tenant, which answers with its name. ``unguarded``: guests of
    the first host without port security.
    """
    one, two = hosts
    routers = []
    for network, tenant in ((A, "p"), (SAME, "q")):
        guests = [one.guest_on(network, f"{tenant}1", 10), two.guest_on(network, f"{tenant}2", 20)]
        made = router(network, guests=guests, external=True)
        routers.append(msgspec.structs.replace(made, id=f"router-{tenant}"))
    for name in unguarded:
        settings = {"unguarded": True, "port_security_enabled": False}
        one.guests[name] = msgspec.structs.replace(one.guests[name], **settings)
    one.floating(FLOATING, "p1")
    one.floating(OTHER_FLOATING, "q1")
    for host, number in ((one, 1), (two, 2)):
        host.drive(*routers)
        for tenant in ("p", "q"):
            name = f"{tenant}{number}"
            command = ["ip", "netns", "exec", host.space(name), sys.executable, "-c", _WHO, name]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            host.keep(server)
            assert server.stdout is not None and server.stdout.readline() == "waiting\n"
    return one, two
