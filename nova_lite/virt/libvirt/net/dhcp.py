"""DHCP, router advertisements and names on a network: one dnsmasq for each network of this host, in its realm.

It runs apart from the compute daemon and outlives it: systemd's manager starts it, where there is one. Its
configuration is a file. What users change meanwhile is in files that it reads again. One more dnsmasq, in the host's
own namespace, answers the others: it asks the name servers of this machine.

A guest whose power is cut does not release its address. dnsmasq would keep its lease until the lease expires. So
``dhcp_release``, of the package dnsmasq-utils, sends the DHCPRELEASE (RFC 2131, 4.4.6) in place of the guest.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import signal
import time
from collections.abc import Callable

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import Network, ipv6
from nova_lite.virt.libvirt.net import links, namespaces
from nova_lite.virt.libvirt.net.firewall import DNS_PORT
from nova_lite.virt.libvirt.net.names import PREFIX, bridge_name, realm_name
from nova_lite.virt.libvirt.net.realms import cidr_of

LOG = logging.getLogger(__name__)

#: Files of the processes. They run as another user, who can read this directory.
DIRECTORY = "/var/lib/libvirt/dnsmasq"
RELEASE = "dhcp_release"
#: Name of the process that asks this machine's name servers.
RESOLVER = f"{PREFIX}resolver"
#: Kinds of files of a process, beside its reservations.
KINDS = ("conf", "options", "servers", "names", "leases", "pid")

#: Users as whom it runs, by preference.
_USERS = ("libvirt-dnsmasq", "dnsmasq", "nobody")
#: Linux's limit of inotify instances of a user, and what is enough for the networks of a host.
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
_ENOUGH = 8192
#: systemd starts a process again that fails, however often.
_RESTART = ("Restart=on-failure", "RestartSec=500ms", "StartLimitIntervalSec=0")
#: Seconds that a process has to end.
_PATIENCE = 5.0


def path_of(name: str, kind: str, directory: str | None = None) -> str:
    """Return the path of a file of the process of this name."""
    return os.path.join(directory or DIRECTORY, f"{name}.{kind}")


def configuration(network: Network, name: str, reservations: str, port_options: str, tags: list[str]) -> str:
    """Return the configuration for a network's process. ``reservations`` and ``port_options``: directories with a file
    for each port. ``tags``: lines that give guests the tags of their options.
    """
    cidr, bridge = cidr_of(network), bridge_name(network)
    lines = [
        *_common(name),
        f"interface={bridge}",
        "except-interface=lo",
        "bind-dynamic",
        f"dhcp-leasefile={path_of(name, 'leases')}",
        *_options6(network),
        f"dhcp-range={cidr.network_address},static,{cidr.netmask}",
        f"dhcp-hostsdir={reservations}",
        f"dhcp-optsfile={path_of(name, 'options')}",
        f"dhcp-optsdir={port_options}",
        *tags,
        f"servers-file={path_of(name, 'servers')}",
        f"addn-hosts={path_of(name, 'names')}",
        "no-resolv",
        f"dhcp-option=option:mtu,{network.mtu}",
        # Authoritative for its guests only: it ignores others, and refuses no request of theirs.
        "dhcp-ignore=tag:!known",
        "dhcp-authoritative",
        "dhcp-no-override",
        f"dhcp-lease-max={min(cidr.num_addresses, 2**16)}",
    ]
    return "\n".join([*lines, ""])


def resolver_configuration() -> str:
    """Return the configuration of the process that asks this machine's name servers."""
    lines = [
        *_common(RESOLVER),
        f"port={DNS_PORT}",
        f"listen-address={links.HOST}",
        "bind-interfaces",
    ]
    return "\n".join([*lines, ""])


def _common(name: str) -> list[str]:
    return [f"pid-file={path_of(name, 'pid')}", f"user={_user()}", "no-hosts", "strict-order"]


def _user() -> str:
    for name in _USERS[:-1]:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return _USERS[-1]


def _options6(network: Network) -> list[str]:
    """Return the options for an IPv6 subnet: who advertises and assigns what."""
    if not ipv6.is_advertised(network):
        return []
    prefix = ip.parse_network6(network.cidr6)
    options = ["enable-ra"]
    if ipv6.is_assigned(network):
        options.append(f"dhcp-range={prefix.network_address},static,{prefix.prefixlen}")
    elif ipv6.is_stateless(network):
        options.append(f"dhcp-range={prefix.network_address},ra-stateless,64")
    else:
        options.append(f"dhcp-range={prefix.network_address},ra-only")
    if ipv6.gateway(network) is None:
        options.append("ra-param=*,0,0")
    return options


def make_room() -> None:
    """Raise the kernel's limit of processes that watch a directory, as each does. By default it is 128."""
    try:
        if int(_read(_INSTANCES) or _ENOUGH) < _ENOUGH:
            with open(_INSTANCES, "w") as file:
                file.write(f"{_ENOUGH}\n")
    except OSError as error:
        LOG.warning("%s cannot be raised to %d, so networks may lack DHCP: %s", _INSTANCES, _ENOUGH, error.strerror)


def run(name: str, text: str, realm_id: str | None) -> None:
    """Run a process with this configuration, in a realm or in the host's own namespace. Raises `VirtDriverError`.

    A process that runs with it already continues.
    """
    path = path_of(name, "conf")
    if is_running(name) and _read(path) == text:
        return
    stop(name)
    files.write_atomically(path, text.encode(), durable=False, mode=0o644, writer=links.WRITER)
    dnsmasq = ("dnsmasq", f"--conf-file={path}")
    if not namespaces.has_manager():
        namespaces.run(*(() if realm_id is None else namespaces.inside(realm_name(realm_id))), *dnsmasq)
        return
    properties = ["Type=forking", f"PIDFile={path_of(name, 'pid')}", *_RESTART]
    if realm_id is not None:
        properties.append(f"NetworkNamespacePath={namespaces.DIRECTORY}/{realm_name(realm_id)}")
    words = [word for item in properties for word in ("--property", item)]
    namespaces.run("systemd-run", "--quiet", "--collect", f"--unit={_unit(name)}", *words, *dnsmasq)


def stop(name: str) -> None:
    """End a process, if it runs. Raises `VirtDriverError`."""
    pid = _pid(name)
    if namespaces.has_manager() and pid is not None:
        namespaces.run("systemctl", "stop", _unit(name))
    pid = _pid(name)
    if pid is None:
        pid = _dying(name)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while pid is not None and _has_files(pid):
        if time.monotonic() > deadline:
            raise exceptions.VirtDriverError(reason=f"dnsmasq of {name} (process {pid}) does not end")
        time.sleep(0.01)


def reload(name: str) -> None:
    """Make a process read its reservations again. It notices new files itself, but not removed ones."""
    pid = _pid(name)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGHUP)


def is_running(name: str) -> bool:
    return _pid(name) is not None


def _pid(name: str) -> int | None:
    """Return the number of a process, None if it does not run."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(_read(path_of(name, "pid")) or "")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if f"--conf-file={path_of(name, 'conf')}".encode() in file.read().split(b"\0"):
                return pid
    return None


def _dying(name: str) -> int | None:
    """Return the number of a process that has crashed, and still has its sockets but no command line; else None."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(_read(path_of(name, "pid")) or "")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if not file.read() and _read(f"/proc/{pid}/comm") == "dnsmasq\n":
                return pid
    return None


def _has_files(pid: int) -> bool:
    """Check whether a process may still have open sockets. It has lost its command line before."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _unit(name: str) -> str:
    return f"{name}.service".replace(PREFIX, f"{PREFIX}dhcp-", 1)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def release(network: Network, realm_id: str, address: str, is_obsolete: Callable[[str], bool]) -> None:
    """Release the leases of ``address`` on a network whose MAC address (in lower case) ``is_obsolete``.

    A failure is only logged, because every lease expires in the end.
    """
    for mac_address, client in find_leases(path_of(f"{PREFIX}{network.id}", "leases"), address):
        if not is_obsolete(mac_address):
            continue
        command = (RELEASE, bridge_name(network), address, mac_address, client)
        try:
            namespaces.run(*namespaces.inside(realm_name(realm_id)), *command)
        except exceptions.VirtDriverError as error:
            LOG.warning("The DHCP lease of %s on %s stays until it expires: %s", address, network.id, error.message)


def find_leases(path: str, address: str) -> list[tuple[str, str]]:
    """Return MAC address and client identifier ("*": none) of the leases of an address, from dnsmasq's file.

    dnsmasq rewrites the whole file, so it may be missing, empty or incomplete for a moment: then there are no leases.
    """
    rows = [line.split() for line in (_read(path) or "").splitlines()]
    return [(row[1].lower(), row[4]) for row in rows if len(row) == 5 and row[2] == address]
