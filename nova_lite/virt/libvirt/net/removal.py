"""Removal of all realms of a machine, with their links, bridges and DHCP servers, and of its load balancers.

No compute daemon runs.

``devstack/packaging/purge.sh`` removes the same, because a purge leaves no program of ours there.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal

from nova_lite.base import exceptions, files, trees
from nova_lite.virt.libvirt.net import dhcp, links, namespaces, realms
from nova_lite.virt.libvirt.net.names import CHAIN, GATEWAY, PREFIX, REALM, tunnel_name, uplink_name


def remove_all() -> list[str]:
    """Remove realms and load balancers. Return a line for each network that another program's guest still uses."""
    if namespaces.has_manager():
        with contextlib.suppress(exceptions.VirtDriverError):  # there are none
            namespaces.run("systemctl", "stop", "nova-lite-load-balancers.slice")
    for name in namespaces.found("nova-lite-lb-"):
        for pid in namespaces.run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        namespaces.remove(name)
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
        realm_id = name.removeprefix(REALM)
        if realm_id not in kept:
            if os.path.exists(f"{realms.NET}/{uplink_name(realm_id)}"):
                namespaces.ip_batch([f"link delete dev {uplink_name(realm_id)}"])
            namespaces.remove(name)
    with contextlib.suppress(exceptions.VirtDriverError):
        namespaces.ip_batch([f"address delete {links.HOST}/32 dev lo"])
    for program in ("iptables", "ip6tables"):
        for words in (("-D", "FORWARD", "-j", CHAIN), ("-F", CHAIN), ("-X", CHAIN)):
            with contextlib.suppress(exceptions.VirtDriverError):  # it is not there, or the program is not
                namespaces.run(program, "--wait", *words)
    if not kept:
        for kind in dhcp.KINDS:
            files.remove(dhcp.path_of(dhcp.RESOLVER, kind))
        for path in glob.glob(os.path.join(dhcp.DIRECTORY, f"{PREFIX}links.*")):
            files.remove(path)
    return said
