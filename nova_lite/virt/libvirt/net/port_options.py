"""DHCP options of ports: a file for each port that has some, which dnsmasq reads.

Each line of the file names the tag of the port. dnsmasq gives a guest the tag by its MAC address, as its configuration
says. A reservation must not give it: dnsmasq 2.90 frees the tags of reservations when it reads them again, although
answers have linked them to memory that is not theirs. Then it crashes.
"""

from __future__ import annotations

import contextlib
import os
import re

from nova_lite.base import exceptions, files
from nova_lite.objects import VIF, dhcp_options
from nova_lite.virt.libvirt.net import dhcp, nft
from nova_lite.virt.libvirt.net.names import network_name

#: Tag of a port: its MAC address and its id.
_TAG = re.compile(r"[0-9a-f]{12}-[A-Za-z0-9_-]{1,120}")


def directory_of(name: str) -> str:
    """Return the directory of the files of the network of this name."""
    return dhcp.path_of(name, "opts")


def tags(name: str) -> list[str]:
    """Return the lines of dnsmasq's configuration that give guests the tags of their ports."""
    with contextlib.suppress(FileNotFoundError):
        names = sorted(filter(_TAG.fullmatch, os.listdir(directory_of(name))))
        return [f"dhcp-mac=set:{tag},{':'.join(re.findall('..', tag[:12]))}" for tag in names]
    return []


def _tag(vif: VIF) -> str:
    """Return the tag of a port, which is the name of its file. Raises `VirtDriverError`."""
    tag = f"{vif.mac_address.lower().replace(':', '')}-{vif.id}"
    if not _TAG.fullmatch(tag):
        raise exceptions.VirtDriverError(reason=f"VIF {vif.id!r} with {vif.mac_address!r} has no plain names")
    return tag


def text(vif: VIF) -> str:
    """Return the options in dnsmasq's format. An invalid one is left out, with a line in the log."""
    found = nft.usable("DHCP option", vif.dhcp_options or [], _lines, lambda item: f"{vif.id} {item}")
    return "".join(f"tag:{_tag(vif)},{line}\n" for lines in found for line in lines)


def _lines(item: dict[str, object]) -> list[str]:
    name, value, version = (item.get(key) for key in ("opt_name", "opt_value", "ip_version"))
    if not isinstance(name, str) or not isinstance(value, str) or not isinstance(version, int):
        raise ValueError("it is incomplete")
    return dhcp_options.words(name, value, version)


def write(vif: VIF, host: str) -> bool:
    """Write the file of a port, if it has or had options. Return whether anything has changed.

    A file stays until `remove`. So dnsmasq starts again for the first options of a port only, not for each change.
    """
    path, content = _path(vif), text(vif).encode()
    before = b""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        before = file.read()
    if content == before:
        return False
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    files.write_atomically(path, content, durable=False, mode=0o644, writer=host)
    return True


def remove(vif: VIF) -> None:
    files.remove(_path(vif))


def _path(vif: VIF) -> str:
    return os.path.join(directory_of(network_name(vif.network)), _tag(vif))
