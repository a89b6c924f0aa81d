"""Guests of a compute host and their networks, which a removal of the host removes.

Each part goes by its exact name. The names come from libvirt, from the host's configuration and from its records. The
postrm of the package nova-lite-compute removes the same parts, because a purge leaves no program of ours there.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

from nova_lite.base import exceptions, ip, trees
from nova_lite.cmd.setup import machine
from nova_lite.cmd.setup.admission import STATE
from nova_lite.cmd.setup.directories import own_hosts
from nova_lite.virt.libvirt.net import names

#: Directory of the disks of this host's guests. Each guest has its path in libvirt's definition.
INSTANCES = STATE / "instances"
#: Directories in which libvirt, and the daemon, have files of networks.
DNSMASQ, STATUS = Path("/var/lib/libvirt/dnsmasq"), Path("/run/libvirt/network")
_OF_NETWORK = ("d", "off", "options", "servers", "conf", "addnhosts", "hostsfile")
_OF_BRIDGE = ("status", "macs")
_OF_STATUS = ("", ".pid", ".xml")
_UNDEFINE = ("undefine", "--nvram", "--managed-save", "--snapshots-metadata", "--checkpoints-metadata")
_VIRSH = ("virsh", "--quiet", "--connect", "qemu:///system")


def remove() -> None:
    """End the guests of this host, and remove their networks, packet filters and tunnels. The daemon does not run.

    A network that another program's guest uses stays. This is printed.
    """
    if machine.succeeds("systemctl", "is-active", "--quiet", "libvirtd.socket"):
        for uuid in _virsh("list", "--all", "--uuid"):
            if f"{INSTANCES}/" in machine.run(*_VIRSH, "dumpxml", uuid):
                machine.succeeds(*_VIRSH, "destroy", uuid)  # Fails for a guest that is off.
                machine.run(*_VIRSH, *_UNDEFINE, uuid)
        for uuid in _virsh("net-list", "--all", "--uuid"):
            _remove_network(uuid, ET.fromstring(machine.run(*_VIRSH, "net-dumpxml", uuid)))  # noqa: S314 libvirt's own
    for host in sorted(own_hosts()):
        for family, table in names.tables_of_host(host):
            _remove_table(family, table)
        _remove_chains(names.chain_name(host))
    _remove_addresses()


def _remove_network(uuid: str, root: ET.Element) -> None:
    """Remove a network of libvirt, if its DHCP server has our reservations and no guest is on its bridge.

    The definition goes last, so that an interrupted removal can be repeated.
    """
    name, bridge = root.findtext("name", ""), root.find("bridge")
    reservations = f"dhcp-hostsdir={DNSMASQ / name}.d"
    if bridge is None or reservations not in [option.get("value") for option in root.iter() if option.get("value")]:
        return
    device, tunnel = bridge.get("name", ""), _tunnel(root)
    if users := sorted(_members(device) - {tunnel}):
        print(f"Network {name} stays: its bridge {device} has {', '.join(users)}.")
        return
    _remove_table("inet", names.network_table(name.removeprefix(names.PREFIX)))
    if tunnel and machine.succeeds("ip", "link", "show", "dev", tunnel):
        machine.run("ip", "link", "delete", "dev", tunnel)
    machine.succeeds(*_VIRSH, "net-destroy", uuid)  # Fails for a network that is off.
    for path in (
        *(DNSMASQ / f"{name}.{kind}" for kind in _OF_NETWORK),
        *(DNSMASQ / f"{device}.{kind}" for kind in _OF_BRIDGE),
        *(STATUS / f"{name}{kind}" for kind in _OF_STATUS),
    ):
        trees.discard(path)
    machine.run(*_VIRSH, "net-undefine", uuid)


def _tunnel(root: ET.Element) -> str:
    """Return the name of a network's tunnel, empty if it has none. Its number is in the MAC address of the bridge."""
    mac = root.find("mac")
    first, _, number = ("" if mac is None else mac.get("address", "")).rpartition(f"{names.BRIDGE_MAC}:")
    digits = number.replace(":", "")
    return "" if first or len(digits) != 6 else f"{names.tunnel_name()}{int(digits, 16)}"


def _members(bridge: str) -> set[str]:
    """Return the interfaces of a bridge, none if it does not exist."""
    try:
        lines = machine.run("ip", "-oneline", "link", "show", "master", bridge).splitlines()
    except exceptions.ConfigurationError:
        return set()
    return {line.split()[1].rstrip(":").partition("@")[0] for line in lines}


def _remove_table(family: str, name: str) -> None:
    if machine.succeeds("nft", "list", "table", family, name):
        machine.run("nft", "delete", "table", family, name)


def _remove_chains(chain: str) -> None:
    """Remove the chains of routers, and what leads to them."""
    for program in ("iptables", "ip6tables"):
        for table, parent in names.CHAIN_PARENTS.items():
            command = (program, "--wait", "--table", table)
            if machine.succeeds(*command, "--list-rules", chain):
                machine.succeeds(*command, "--delete", parent, "--jump", chain)  # Fails if nothing leads there.
                machine.run(*command, "--flush", chain)
                machine.run(*command, "--delete-chain", chain)


def _remove_addresses() -> None:
    """Remove floating addresses of guests that were ended."""
    for file in _files():
        found = machine.sections(file)
        if interface := found.get("network", {}).get("public_interface"):
            for host in sorted(own_hosts()):
                for address in _addresses(INSTANCES / f"floating@{host}.json"):
                    machine.succeeds("ip", "address", "delete", f"{address}/32", "dev", interface)


def _addresses(record: Path) -> list[str]:
    try:
        return [text for text in json.loads(record.read_text()) if ip.is_address(text)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        print(f"Floating addresses may stay, as {record} cannot be read: {error}.")
        return []


def _files() -> list[Path]:
    """Return the files with the configuration of compute daemons."""
    fixed = (machine.CONFIGURATION / "nova-lite.conf", machine.CONFIGURATION / "compute.conf")
    return [*(file for file in fixed if file.exists()), *sorted(machine.CONFIGURATION.glob("compute-*.conf"))]


def _virsh(*arguments: str) -> list[str]:
    return machine.run(*_VIRSH, *arguments).split()
