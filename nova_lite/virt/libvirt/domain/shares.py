"""Shares of guests: directories of this host that guests mount by virtiofs."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from nova_lite.objects import ShareMapping
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.domain import shares_xml


class GuestShares(HostPart, abilities.Shares):
    """Changes the definitions of guests that are off."""

    def attach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain, _ = self._domains.get(instance_uuid)
        definition = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        if shares_xml.has(definition, mapping.tag):
            return
        shares_xml.add(definition, [mapping], self._conf.libvirt.shares_path)
        shares_xml.require(definition, self._host)
        self._domains.define(ET.tostring(definition, encoding="unicode"))

    def detach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain, _ = self._domains.get(instance_uuid)
        definition = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        if shares_xml.has(definition, mapping.tag):
            shares_xml.remove(definition, mapping.tag)
            self._domains.define(ET.tostring(definition, encoding="unicode"))
