"""Guests of a compute host and their networks, which a removal of the host removes.

Each part goes by its exact name. The names come from libvirt, from the host's configuration and from its records. The
postrm of the package nova-lite-compute removes the same parts, because a purge leaves no program of ours there.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

from nova_lite.base import ip
from nova_lite.cmd.setup import machine
from nova_lite.cmd.setup.admission import STATE
from nova_lite.cmd.setup.directories import own_hosts
from nova_lite.virt.libvirt.net import names, removal

#: Directory of the disks of this host's guests. Each guest has its path in libvirt's definition.
INSTANCES = STATE / "instances"
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
        for name in _virsh("net-list", "--all", "--name"):
            if name.startswith(names.PREFIX) and _leads_to_bridge(machine.run(*_VIRSH, "net-dumpxml", name)):
                machine.succeeds(*_VIRSH, "net-destroy", name)  # Fails for a network that is off.
                machine.run(*_VIRSH, "net-undefine", name)
    for line in removal.remove_all():
        print(line)
    for host in sorted(own_hosts()):
        for family, table in names.tables_of_host(host):
            _remove_table(family, table)
    _remove_addresses()


def _leads_to_bridge(xml: str) -> bool:
    """Check whether a network of libvirt has no DHCP server and no address: it leads to a bridge of ours."""
    root = ET.fromstring(xml)  # noqa: S314 libvirt's own
    return root.find("forward[@mode='bridge']") is not None


def _remove_table(family: str, name: str) -> None:
    if machine.succeeds("nft", "list", "table", family, name):
        machine.run("nft", "delete", "table", family, name)


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
