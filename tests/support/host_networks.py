"""Removal of one network from this machine, after a test."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from nova_lite.virt.libvirt.net import dhcp, names, realms, reservations
from nova_lite.virt.libvirt.net.links import Links


def remove_network(connection: Any, name: str) -> None:
    """Remove a network with its bridge, its DHCP server, its files, and its realm if no other network is there.

    ``connection``: libvirt's. ``name``: of libvirt's network.
    """
    for found in connection.listAllNetworks():
        if found.name() == name:
            if found.isActive():
                found.destroy()
            found.undefine()
    network_id, here = name.removeprefix(names.PREFIX), realms.Realms(Links(dhcp.DIRECTORY))
    with here.numbers.lock():
        realm_id = realms.realm_of(network_id)
        for device in (realms.bridge_of(network_id), names.gateway_name(network_id)):
            subprocess.run(["ip", "link", "delete", device], capture_output=True, check=False)
        dhcp.stop(name)
        if realm_id is not None and realm_id not in realms.used():
            here.remove(realm_id)
    for is_served in (True, False):
        shutil.rmtree(reservations.directory_of(name, is_served), ignore_errors=True)
    reservations.remove_files(name)
