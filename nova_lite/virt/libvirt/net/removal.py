"""Removal of all realms of a machine, with their links, bridges and DHCP servers. No compute daemon runs.

``devstack/packaging/purge.sh`` removes the same, because a purge leaves no program of ours there.
"""

from __future__ import annotations

import contextlib
import glob
import os

from nova_lite.base import exceptions, files, trees
from nova_lite.virt.libvirt.net import dhcp, links, namespaces, realms
from nova_lite.virt.libvirt.net.names import CHAIN, GATEWAY, OUTSIDE, PREFIX, REALM, tunnel_name


def remove_all() -> list[str]:
    """Remove the realms. Return a line for each network that stays, because another program's guest uses it."""
    for path in glob.glob(dhcp.path_of(f"{PREFIX}*", "conf")):
        dhcp.stop(os.path.basename(path).removesuffix(".conf"))
    said = []
    for device in sorted(os.listdir(realms.NET)):
        network_id = realms.network_on(device)
        if network_id is None:
            continue
        ours = {name for name in realms.members(device) if name.startswith((GATEWAY, tunnel_name()))}
        if users := realms.members(device) - ours:
            said.append(f"Network {network_id} stays: its bridge {device} has {', '.join(sorted(users))}.")
            continue
        namespaces.ip_batch(f"link delete dev {name}" for name in (*sorted(ours), device))
        for path in glob.glob(os.path.join(dhcp.DIRECTORY, f"{PREFIX}{network_id}.*")):
            trees.discard(path)
    kept = realms.used()
    for name in namespaces.found(REALM):
        if name.removeprefix(REALM) not in kept:
            with contextlib.suppress(exceptions.VirtDriverError):  # a realm that was made in part has none
                namespaces.ip_batch([f"link delete dev {OUTSIDE}"], name)
            namespaces.remove(name)
    with contextlib.suppress(exceptions.VirtDriverError):
        namespaces.ip_batch([f"address delete {links.HOST}/32 dev lo"])
    for program in ("iptables", "ip6tables"):
        for words in (("-D", "FORWARD", "-j", CHAIN), ("-F", CHAIN), ("-X", CHAIN)):
            with contextlib.suppress(exceptions.VirtDriverError):  # it is not there, or the program is not
                namespaces.run(program, "--wait", *words)
    if not kept:
        for kind in (*dhcp.KINDS,):
            files.remove(dhcp.path_of(dhcp.RESOLVER, kind))
        for path in glob.glob(os.path.join(dhcp.DIRECTORY, f"{PREFIX}links.*")):
            files.remove(path)
    return said
