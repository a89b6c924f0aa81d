"""XML of shares, and their places on this host.

The operator makes the directories, or mounts them: this daemon may not mount. A guest starts only where its shares
are, because it would write to the host's own disk otherwise.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from nova_lite.base import exceptions
from nova_lite.objects import ShareMapping
from nova_lite.objects.share import is_location

#: Types of mounted file systems by the directory above a share. autofs mounts the share when the guest starts.
_TYPES = {"nfs": ("nfs", "nfs4", "autofs"), "cephfs": ("ceph", "fuse.ceph-fuse", "autofs")}

_FILESYSTEMS = "devices/filesystem"

#: Memory that virtiofsd reads and writes, too.
_MEMORY = {"source": {"type": "memfd"}, "access": {"mode": "shared"}}


def add(domain: ET.Element, mappings: Iterable[ShareMapping], shares_path: str | None) -> None:
    """Add shares to a definition. Raises `VirtDriverError` without a directory of shares on this host."""
    for mapping in mappings:
        if shares_path is None or not is_location(mapping.location):
            raise exceptions.VirtDriverError(
                reason=f"share {mapping.location} cannot be used: this host has no [libvirt] shares_path"
            )
        filesystem = ET.SubElement(_child(domain, "devices"), "filesystem", type="mount", accessmode="passthrough")
        ET.SubElement(filesystem, "driver", type="virtiofs")
        ET.SubElement(filesystem, "source", dir=os.path.join(shares_path, mapping.location))
        ET.SubElement(filesystem, "target", dir=mapping.tag)
        backing = _child(domain, "memoryBacking")
        for tag, attributes in _MEMORY.items():
            _child(backing, tag).attrib.update(attributes)


def _child(parent: ET.Element, tag: str) -> ET.Element:
    """Return the child of this tag, which is made if it is missing."""
    child = parent.find(tag)
    return ET.SubElement(parent, tag) if child is None else child


def has(domain: ET.Element, tag: str) -> bool:
    return any(_directory(item, "target") == tag for item in domain.iterfind(_FILESYSTEMS))


def remove(domain: ET.Element, tag: str) -> None:
    """Remove a share, and with the last one what the memory needed for it."""
    devices, backing = _child(domain, "devices"), _child(domain, "memoryBacking")
    for filesystem in domain.findall(_FILESYSTEMS):
        if _directory(filesystem, "target") == tag:
            devices.remove(filesystem)
    if domain.find(_FILESYSTEMS) is None:
        for element in [element for element in backing if element.tag in _MEMORY]:
            backing.remove(element)
    if len(backing) == 0:
        domain.remove(backing)


def _directory(filesystem: ET.Element, tag: str) -> str:
    element = filesystem.find(tag)
    return "" if element is None else element.get("dir", "")


def require(domain: ET.Element, host: str) -> None:
    """Raise `VirtDriverError` unless the shares in a definition are directories, or mounted, on this host."""
    sources = [_directory(item, "source") for item in domain.iterfind(_FILESYSTEMS)]
    mounted = _mounted() if sources else {}
    for path in sources:
        types = _TYPES.get(os.path.basename(os.path.dirname(path)))
        if types is None and not os.path.isdir(path):
            raise exceptions.VirtDriverError(reason=f"host {host} has no directory {path} for a share of the server")
        if types is not None and not mounted.get(path, set()) & {*types}:
            raise exceptions.VirtDriverError(
                reason=f"host {host} has not mounted a share of the server: {path} has to be of type {types[0]}"
            )


def _mounted() -> dict[str, set[str]]:
    """Return the types of mounted file systems by their directories. The file systems, which may hang, are not read."""
    found: dict[str, set[str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            place, _, kind = line.partition(" - ")
            found.setdefault(place.split(" ")[4], set()).add(kind.split(" ")[0])
    return found
