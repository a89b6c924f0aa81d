"""libvirt's filter for interfaces with IPv6: its own ``clean-traffic`` lets nothing of it pass.

Out goes what has one of the interface's addresses, also within IPv6 (or none yet, while it looks whether somebody has
its own), but what only routers and DHCPv6 servers say. In comes what is for one of its addresses, or for several hosts.
So a guest that gave itself another address is neither heard nor reached there.
"""

from __future__ import annotations

import ipaddress
import xml.etree.ElementTree as ET

import libvirt

from nova_lite.objects import VIF, ipv6
from nova_lite.virt.libvirt.connection import Connection

#: Named by what is in it: another content gets another name, as libvirt applies a change to all guests at once.
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
    """All IPv6 addresses of an interface of a built-in network: that of its network, and that of its link."""
    found = [each.address for each in vif.more if ipaddress.ip_address(each.address).version == 6]
    return [*found, ipv6.address_of(ipv6.LINK_LOCAL, vif.mac_address)] if found else []


def define(connection: Connection) -> None:
    """Have the filters in libvirt. Raises `VirtDriverError`."""
    for name, xml in _XML.items():
        lookup = connection.get().nwfilterLookupByName
        if connection.call_unless((libvirt.VIR_ERR_NO_NWFILTER,), lookup, name) is None:
            connection.connect_call("nwfilterDefineXML", xml)


def filterref(vif: VIF) -> ET.Element:
    """What an interface is held to."""
    own = addresses(vif)
    element = ET.Element("filterref", filter=FILTER if own else "clean-traffic")
    for name, value in (("IP", vif.address), *(("IPV6", each) for each in own)):
        ET.SubElement(element, "parameter", name=name, value=value)
    return element
