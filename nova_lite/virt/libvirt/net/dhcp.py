"""Release of DHCP leases on behalf of guests that are gone.

A guest whose power is cut does not release its address. dnsmasq would keep and list its lease until the lease expires.
So ``dhcp_release``, of the package dnsmasq-utils, sends the DHCPRELEASE (RFC 2131, 4.4.6) in place of the guest.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable

from nova_lite.base import exceptions
from nova_lite.virt import images

LOG = logging.getLogger(__name__)

#: Files of libvirt's dnsmasq processes. They run as another user, who can read this directory.
DIRECTORY = "/var/lib/libvirt/dnsmasq"

RELEASE = "dhcp_release"


def release(bridge: str, address: str, is_obsolete: Callable[[str], bool], directory: str = DIRECTORY) -> None:
    """Release the leases of ``address`` on ``bridge`` whose MAC address (in lower case) ``is_obsolete``.

    A failure is only logged, because every lease expires in the end.
    """
    for lease in find_leases(os.path.join(directory, f"{bridge}.status"), address):
        mac_address = lease["mac-address"].lower()
        if not is_obsolete(mac_address):
            continue
        try:
            images.run(RELEASE, bridge, address, mac_address, lease.get("client-id") or "*")
        except exceptions.VirtDriverError as error:
            LOG.warning("The DHCP lease of %s on %s stays until it expires: %s", address, bridge, error.message)


def find_leases(status_path: str, address: str) -> list[dict[str, str]]:
    """Return the leases of an address from libvirt's list for a bridge.

    libvirt rewrites the whole list, so it may be missing, empty or incomplete for a moment: then there are no leases.
    """
    with contextlib.suppress(OSError, ValueError):
        with open(status_path, encoding="utf-8") as file:
            leases = json.load(file)
        return [lease for lease in leases if lease.get("ip-address") == address and lease.get("mac-address")]
    return []
