"""DHCP options of ports: a file for each port that has some, which dnsmasq reads.

The reservation of the port has its tag, and each line of the file names the tag.
"""

from __future__ import annotations

import contextlib
import os

from nova_lite.base import exceptions, files
from nova_lite.objects import VIF, dhcp_options
from nova_lite.virt.libvirt.net import dhcp, nft
from nova_lite.virt.libvirt.net.names import network_name


def directory_of(name: str) -> str:
    """Return the directory of the files of the network of this name."""
    return dhcp.path_of(name, "opts")


def tag(vif: VIF) -> str:
    """Return the word of a reservation that gives its guest the options of the port. Raises `VirtDriverError`."""
    return f"set:{_tag(vif)}"


def _tag(vif: VIF) -> str:
    if nft.identifier(vif.id) != vif.id.replace("-", "_"):
        raise exceptions.VirtDriverError(reason=f"VIF id {vif.id!r} is not a plain name")
    return vif.id


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
    """Write the file of a port, or remove it if the port has no options. Return whether anything has changed."""
    path, content = _path(vif), text(vif).encode()
    before = b""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        before = file.read()
    if content == before:
        return False
    if content:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_atomically(path, content, durable=False, mode=0o644, writer=host)
    else:
        files.remove(path)
    return True


def remove(vif: VIF) -> None:
    files.remove(_path(vif))


def _path(vif: VIF) -> str:
    return os.path.join(directory_of(network_name(vif.network)), _tag(vif))
