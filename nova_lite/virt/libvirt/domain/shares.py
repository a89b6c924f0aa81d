"""Shares of guests: directories of this host that guests mount by virtiofs.

The operator makes these directories, or mounts them: this daemon may not mount. A guest starts only where its shares
are, because it would write to the host's own disk otherwise.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from nova_lite.base import exceptions
from nova_lite.objects import ShareMapping
from nova_lite.objects.share import is_location
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart

#: Types of mounted file systems by the directory above a share. autofs mounts the share when the guest starts.
_TYPES = {"nfs": ("nfs", "nfs4", "autofs"), "cephfs": ("ceph", "fuse.ceph-fuse", "autofs")}

_FILESYSTEMS = "devices/filesystem[driver]"

#: Memory that virtiofsd reads and writes, too.
_MEMORY = {"source": {"type": "memfd"}, "access": {"mode": "shared"}}


class GuestShares(HostPart, abilities.Shares):
    """Changes the definitions of guests that are off."""

    def attach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain, _ = self._domains.get(instance_uuid)
        definition = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        if _of_tag(definition, mapping.tag) is None:
            add(definition, [mapping], self._conf.libvirt.shares_path)
            xml = ET.tostring(definition, encoding="unicode")
            require(xml, self._host)
            self._domains.define(xml)

    def detach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain, _ = self._domains.get(instance_uuid)
        definition = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        filesystem = _of_tag(definition, mapping.tag)
        if filesystem is not None:
            _remove(definition, filesystem)
            self._domains.define(ET.tostring(definition, encoding="unicode"))


def add(domain: ET.Element, mappings: Iterable[ShareMapping], shares_path: str | None) -> None:
    """Add shares to a definition. Raises `VirtDriverError` without a directory of shares on this host."""
    devices = domain.find("devices")
    assert devices is not None, "a domain has devices"
    for mapping in mappings:
        if shares_path is None or not is_location(mapping.location):
            raise exceptions.VirtDriverError(
                reason=f"share {mapping.location} cannot be used: this host has no [libvirt] shares_path"
            )
        filesystem = ET.SubElement(devices, "filesystem", type="mount", accessmode="passthrough")
        ET.SubElement(filesystem, "driver", type="virtiofs")
        ET.SubElement(filesystem, "source", dir=os.path.join(shares_path, mapping.location))
        ET.SubElement(filesystem, "target", dir=mapping.tag)
        _share_memory(domain)


def _share_memory(domain: ET.Element) -> None:
    backing = domain.find("memoryBacking")
    if backing is None:
        backing = ET.SubElement(domain, "memoryBacking")
    for tag, attributes in _MEMORY.items():
        if backing.find(tag) is None:
            ET.SubElement(backing, tag, attributes)


def _remove(domain: ET.Element, filesystem: ET.Element) -> None:
    """Remove a share, and with the last one what the memory needed for it."""
    devices, backing = domain.find("devices"), domain.find("memoryBacking")
    assert devices is not None, "a domain has devices"
    devices.remove(filesystem)
    if backing is None or domain.find(_FILESYSTEMS) is not None:
        return
    for element in [element for element in backing if element.tag in _MEMORY]:
        backing.remove(element)
    if len(backing) == 0:
        domain.remove(backing)


def _of_tag(domain: ET.Element, tag: str) -> ET.Element | None:
    found = (item for item in domain.iterfind(_FILESYSTEMS) if _value(item, "target") == tag)
    return next(found, None)


def _value(filesystem: ET.Element, tag: str) -> str:
    element = filesystem.find(tag)
    return "" if element is None else element.get("dir", "")


def require(xml: str, host: str) -> None:
    """Raise `VirtDriverError` unless the shares in a definition are directories, or mounted, on this host."""
    sources = [_value(item, "source") for item in ET.fromstring(xml).iterfind(_FILESYSTEMS)]  # noqa: S314 libvirt's own
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
    """Return the types of mounted file systems by their directories. No file system is asked, which might hang."""
    found: dict[str, set[str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            place, _, kind = line.partition(" - ")
            found.setdefault(place.split(" ")[4], set()).add(kind.split(" ")[0])
    return found
