"""IPv6 addresses of interfaces, and libvirt's filters of guests that an older version started.

`anti_spoofing` guards all interfaces. Older versions used libvirt's filters: ``clean-traffic``, and `FILTER` for
interfaces with IPv6. A guest keeps them until its next start. A host that is not upgraded yet may send such a guest to
this one.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import libvirt

from nova_lite.base import ip
from nova_lite.objects import VIF, ipv6
from nova_lite.virt.libvirt.connection import Connection

CLEAN_TRAFFIC = "clean-traffic"
#: The names change with the content, because libvirt applies a changed filter to all guests at once.
FILTER, ADDRESSES = "nova-lite-clean-traffic-1", "nova-lite-clean-ipv6-1"

_ROUTER_ADVERTISEMENT, _REDIRECT = 134, 137

_XML = {
    ADDRESSES: f"""
<filter name='{ADDRESSES}' chain='ipv6-own' priority='-610'>
  <uuid>5f3c0cb9-8d26-4a4a-9f5c-3f6a5d1f6a01</uuid>
  <rule action='drop' direction='out' priority='100'>
    <ipv6 protocol='icmpv6' type='{_ROUTER_ADVERTISEMENT}'/>
  </rule>
  <rule action='drop' direction='out' priority='100'><ipv6 protocol='icmpv6' type='{_REDIRECT}'/></rule>
  <rule action='drop' direction='out' priority='100'><ipv6 protocol='udp' srcportstart='547'/></rule>
  <rule action='accept' direction='out' priority='500'><ipv6 srcipaddr='$IPV6'/></rule>
  <rule action='accept' direction='out' priority='500'><ipv6 srcipaddr='::' srcipmask='128' protocol='icmpv6'/></rule>
  <rule action='accept' direction='in' priority='500'><ipv6 dstipaddr='$IPV6'/></rule>
  <rule action='accept' direction='in' priority='500'><ipv6 dstipaddr='ff00::' dstipmask='8'/></rule>
  <rule action='drop' direction='inout' priority='1000'/>
</filter>""",
    FILTER: f"""
<filter name='{FILTER}' chain='root'>
  <uuid>5f3c0cb9-8d26-4a4a-9f5c-3f6a5d1f6a02</uuid>
  <filterref filter='no-mac-spoofing'/>
  <filterref filter='no-ip-spoofing'/>
  <filterref filter='{ADDRESSES}'/>
  <rule action='accept' direction='out' priority='-650'><mac protocolid='ipv4'/></rule>
  <filterref filter='allow-incoming-ipv4'/>
  <filterref filter='no-arp-spoofing'/>
  <rule action='accept' direction='inout' priority='-500'><mac protocolid='arp'/></rule>
  <filterref filter='no-other-l2-traffic'/>
  <filterref filter='qemu-announce-self'/>
</filter>""",
}


def addresses(vif: VIF) -> list[str]:
    """Return all IPv6 addresses of an interface of a built-in network: the global one, and the link-local one."""
    found = [fixed.address for fixed in vif.more if ip.parse(fixed.address).version == 6]
    return [*found, ipv6.address_of(ipv6.LINK_LOCAL, vif.mac_address)] if found else []


def define(connection: Connection) -> None:
    """Define the filters in libvirt. Raises `VirtDriverError`."""
    for name, xml in _XML.items():
        lookup = connection.get().nwfilterLookupByName
        if connection.call_unless((libvirt.VIR_ERR_NO_NWFILTER,), lookup, name) is None:
            connection.connect_call("nwfilterDefineXML", xml)


def without_filters(xml: str) -> str | None:
    """Return a domain's XML without these filters, None if it has none of them."""
    root = ET.fromstring(xml)  # noqa: S314 libvirt's own
    found = False
    for interface in root.iterfind("devices/interface"):
        for reference in interface.findall("filterref"):
            if reference.get("filter") in (CLEAN_TRAFFIC, FILTER):
                interface.remove(reference)
                found = True
    return ET.tostring(root, encoding="unicode") if found else None
