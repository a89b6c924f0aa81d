"""HAProxy and keepalived of a controller: one address for the APIs, and one port each for broker and database.

HAProxy passes connections on without reading them, so TLS ends at the daemons. The virtual address is at one controller
at a time; keepalived moves it. Daemons of a controller reach broker and database through their own HAProxy.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from nova_lite.base import exceptions, ip
from nova_lite.cmd.setup import galera, machine
from nova_lite.objects import Controller, FrontEnd
from nova_lite.rpc.controllers import CHECK_PORT, DATABASE_PORT
from nova_lite.rpc.keys import API, CONSOLE

PACKAGES = ("haproxy", "keepalived")
#: Port on loopback at which daemons of this machine reach a broker.
BROKER_PORT = 5670
_BROKER_PORT = 5671
_DATABASE_PORT = 3306

#: Ports of the APIs at the virtual address. One process serves all of them, so the first is checked for all.
_CHECKED = ("compute", 8774)
_APIS = {"identity": 5000, "image": 9292, "volume": 8776, "network": 9696, "join": 8780, "page": 8788}
_CONSOLES = {"novnc": 6080, "serial": 6083}

_HAPROXY = Path("/etc/haproxy/nova-lite.cfg")
_KEEPALIVED = Path("/etc/keepalived/keepalived.conf")
_SOCKET = machine.UNITS / galera.CHECK_SOCKET
_CHECK = machine.UNITS / "nova-lite-database-check@.service"
FILES = (_HAPROXY, _KEEPALIVED, _SOCKET, _CHECK)
#: Our settings for the units of the packages. Debian starts keepalived once only, and HAProxy five times. A keepalived
#: that starts before the machine has its address never takes part.
UNITS = {
    "haproxy.service": f"{machine.WAITS_FOR_ADDRESS}[Service]\nEnvironment=CONFIG={_HAPROXY}\nLimitNOFILE=65536\n"
    "RestartSec=2\n",
    "keepalived.service": f"{machine.WAITS_FOR_ADDRESS}[Service]\nRestart=always\nRestartSec=2\n"
    "ExecStartPre=/bin/sh -c 'ip -brief address show to {address} | grep -q .'\n",
}
#: Seconds that HAProxy may take to find a server.
_SERVED_SECONDS = 60
_HEADER = "# Written by nova-lite-setup, which replaces it.\n"


def set_up(address: str, has_database: bool) -> None:
    """Make HAProxy read our file, and let the database's node report its state. May be repeated."""
    if _KEEPALIVED.exists() and not _KEEPALIVED.read_text().startswith(_HEADER):
        raise exceptions.ConfigurationError(reason=f"{_KEEPALIVED} is of another program: move it away.")
    for unit, text in UNITS.items():
        machine.write_unit_settings(unit, text.format(address=address))
    if not has_database:
        return
    machine.replace(galera.REPORT, galera.REPORT_TEXT)
    changed = [machine.replace(_SOCKET, _socket(address)), machine.replace(_CHECK, _check())]
    if any(changed):
        machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", _SOCKET.name)
    machine.run("systemctl", "restart" if changed[0] else "start", _SOCKET.name)


def apply(
    address: str,
    interface: str,
    virtual_address: str,
    listed: Sequence[Controller],
    front_ends: Sequence[FrontEnd],
    *,
    has_database: bool,
    proxy_protocol: bool,
) -> list[str]:
    """Write the controllers into both files. Running programs read them again. Returns the changed programs."""
    changed = []
    wanted = haproxy(
        address, virtual_address, listed, front_ends, has_database=has_database, proxy_protocol=proxy_protocol
    )
    if machine.replace(_HAPROXY, wanted):
        changed.append("haproxy")
    if machine.replace(_KEEPALIVED, keepalived(address, interface, virtual_address, listed)):
        changed.append("keepalived")
    for name in changed:
        if machine.succeeds("systemctl", "is-active", "--quiet", name):
            machine.run("systemctl", "reload", name)
    return changed


def start() -> None:
    # An installed package has started HAProxy with its own file.
    machine.run("systemctl", "enable", "haproxy", "keepalived")
    machine.run("systemctl", "restart", "haproxy")
    machine.run("systemctl", "restart", "keepalived")


def wait_until_served(port: int) -> None:
    """Wait until HAProxy passes connections to a port of loopback on. Raises `ConfigurationError`."""
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                if sock.recv(1):
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise exceptions.ConfigurationError(reason=f"nothing answers behind HAProxy's port {port}.")
        time.sleep(0.5)


def remove() -> None:
    """Stop both, and remove our files."""
    if not machine.unit_settings("haproxy.service").exists():
        return
    machine.remove_unit_settings(*UNITS, galera.UNIT)  # The database's would start the socket again.
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "disable", "--now", "haproxy", "keepalived")
    if _SOCKET.exists():
        machine.run("systemctl", "disable", "--now", _SOCKET.name)
    for path in FILES:
        path.unlink(missing_ok=True)
    machine.run("systemctl", "daemon-reload")


# --- HAProxy


def haproxy(
    address: str,
    virtual_address: str,
    listed: Sequence[Controller],
    front_ends: Sequence[FrontEnd] = (),
    *,
    has_database: bool,
    proxy_protocol: bool,
) -> str:
    """Return HAProxy's file. Machines with one role serve beside the controllers."""
    apis: list[Controller | FrontEnd] = [*listed, *(machine for machine in front_ends if machine.role == API)]
    proxies: list[Controller | FrontEnd] = [*listed, *(machine for machine in front_ends if machine.role == CONSOLE)]
    lines = [
        "global",
        "    log /dev/log local0 notice",
        "    user haproxy",
        "    group haproxy",
        "    maxconn 8000",
        "defaults",
        "    mode tcp",
        "    log global",
        "    option redispatch 1",
        "    retries 3",
        "    timeout connect 1s",
        "    timeout check 2s",
        "    timeout client 1h",
        "    timeout server 1h",
        "    timeout client-fin 30s",
        "    timeout tunnel 12h",
        "    default-server inter 2s fastinter 500ms fall 2 rise 2 on-marked-down shutdown-sessions",
        # The kernel of a busy machine acknowledges data, and a lost machine does not.
        "    default-server tcp-ut 1500ms",
    ]
    # An API believes the header of a controller's address alone.
    source = f"[{address}]" if ":" in address else address
    proxied = f" source {source} send-proxy-v2" if proxy_protocol else ""
    checked = f"{proxied} check-send-proxy" if proxy_protocol else ""
    name, port = _CHECKED
    lines += _listen(name, virtual_address, port)
    # A connection alone says little: the kernel accepts it for a process that stands still.
    # An API that is about to stop answers 404 if its balancer has said that it has others (nova_lite.api.http.drain).
    drains = "    http-check disable-on-404"
    lines += ["    balance leastconn", "    option httpchk GET /", drains, "    http-check send-state"]
    lines += [f"    server {m.host} {_at(m.address, port)} check check-ssl verify none{checked}" for m in apis]
    for other, port in _APIS.items():
        lines += _listen(other, virtual_address, port)
        lines += ["    balance leastconn", drains]
        lines += [f"    server {m.host} {_at(m.address, port)} track {name}/{m.host}{proxied}" for m in apis]
    for other, port in _CONSOLES.items():
        lines += _listen(other, virtual_address, port)
        lines += ["    balance source"]
        lines += [f"    server {m.host} {_at(m.address, port)} check" for m in proxies]
    ordered = sorted(listed, key=lambda member: member.address != address)
    lines += _listen("broker-of-hosts", virtual_address, _BROKER_PORT)
    lines += ["    balance leastconn", *_brokers(listed, "check check-ssl verify none")]
    lines += _listen("broker", "127.0.0.1", BROKER_PORT)
    # Daemons take the broker of their machine while that can be used.
    lines += ["    balance first", *_brokers(ordered, "track broker-of-hosts/{host}")]
    if has_database:
        lines += _listen("database", "127.0.0.1", DATABASE_PORT)
        lines += [
            "    option tcp-check",
            f"    tcp-check connect port {CHECK_PORT}",
            "    tcp-check expect rstring ^up",
        ]
        # All controllers write to the first node that can be used. A node that stood still reports itself as usable
        # until it finds out that the others have left it out.
        for place, member in enumerate(listed):
            role = "backup" if place else "on-marked-up shutdown-backup-sessions"
            at = _at(member.address, _DATABASE_PORT)
            lines.append(f"    server {member.host} {at} check rise 10 {_OBSERVED} {role}")
    return _HEADER + "\n".join([*lines, ""])


#: A backup gets no connection before the health checks have found the first server down, unless its own errors do.
_OBSERVED = "observe layer4 error-limit 1 on-error mark-down"


def _listen(name: str, address: str, port: int) -> list[str]:
    # A controller without the virtual address listens at it as well, and has it at once when it moves.
    return [f"listen {name}", f"    bind {_at(address, port)}{'' if address == '127.0.0.1' else ' transparent'}"]


def _brokers(listed: Sequence[Controller], check: str) -> list[str]:
    return [f"    server {m.host} {_at(m.address, _BROKER_PORT)} {check.format(host=m.host)}" for m in listed]


def _at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# --- keepalived


def keepalived(address: str, interface: str, virtual_address: str, listed: Sequence[Controller]) -> str:
    place = next((number for number, member in enumerate(listed) if member.address == address), len(listed))
    others = [f"        {member.address}" for member in listed if member.address != address]
    lines = [
        "global_defs {",
        "    vrrp_version 3",  # Version 2 counts whole seconds.
        "    script_user root",
        "    enable_script_security",
        "}",
        "vrrp_script haproxy {",
        # systemd may be too busy to answer.
        '    script "/usr/bin/pgrep -x haproxy"',
        "    interval 2",
        "    timeout 4",
        "    fall 2",
        "    rise 2",
        "}",
        "vrrp_instance nova-lite {",
        "    state BACKUP",
        "    nopreempt",
        f"    interface {interface}",
        f"    virtual_router_id {router_id(virtual_address)}",
        f"    priority {200 - 10 * place}",
        "    advert_int 0.4",
        f"    unicast_src_ip {address}",
        *(["    unicast_peer {", *others, "    }"] if others else []),
        "    virtual_ipaddress {",
        f"        {virtual_address}",
        "    }",
        "    track_script {",
        "        haproxy",
        "    }",
        "}",
        "",
    ]
    return _HEADER + "\n".join(lines)


def router_id(virtual_address: str) -> int:
    """Return the number of the virtual router, from 1 to 255."""
    return int(ip.parse(virtual_address)) % 255 + 1


def interface_of(address: str) -> str:
    """Return the name of the interface that has an address. Raises `ConfigurationError`."""
    for link in json.loads(machine.run("ip", "-json", "address", "show")):
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    raise exceptions.ConfigurationError(reason=f"no interface of this machine has the address {address}.")


# --- the database's state


def _socket(address: str) -> str:
    lines = [
        "[Unit]",
        "Description=nova_lite: whether the database's node of this controller can be used",
        "StartLimitIntervalSec=0",
        "[Socket]",
        f"ListenStream={_at(address, CHECK_PORT)}",
        # The address may come later than the socket when the machine starts.
        "FreeBind=yes",
        "Accept=yes",
        "MaxConnections=32",
        # systemd would close the socket permanently after many connections in a short time.
        "TriggerLimitIntervalSec=0",
        "[Install]",
        "WantedBy=sockets.target",
        "",
    ]
    return _HEADER + "\n".join(lines)


def _check() -> str:
    """Return a unit that writes the state of the node to who connects, and reads nothing from them."""
    lines = [
        "[Unit]",
        "Description=nova_lite: state of the database's node",
        "CollectMode=inactive-or-failed",
        "[Service]",
        "User=mysql",
        f"ExecStart=-/bin/sh {galera.REPORT}",
        "StandardInput=null",
        "StandardOutput=socket",
        "StandardError=null",
        "RuntimeMaxSec=5",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "LogLevelMax=warning",
        "",
    ]
    return _HEADER + "\n".join(lines)
