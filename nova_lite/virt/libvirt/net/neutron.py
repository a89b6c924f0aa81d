"""The host side of Neutron's ports: interfaces on the integration bridge of Open vSwitch.

libvirt adds a port to the bridge, and records there the id of Neutron's port. OVN's controller, or Neutron's Open
vSwitch agent, finds it by this id, connects it and filters it. We check what libvirt would fail at without an
explanation, and remove what libvirt has left.
"""

from __future__ import annotations

import logging
import re
import subprocess
import xml.etree.ElementTree as ET

from nova_lite.base import exceptions
from nova_lite.objects import VIF
from nova_lite.objects.pci import HOSTDEV_PHYSICAL, HW_VEB, NORMAL
from nova_lite.virt.libvirt.net import names

LOG = logging.getLogger(__name__)

OVS = "ovs"

#: The datapath of Open vSwitch's own process, for hosts whose kernel has none.
NETDEV = "netdev"

#: The default name of the integration bridge.
INTEGRATION_BRIDGE = "br-int"

_OFFLOADS = ("csum", "gso", "tso4", "tso6", "ecn", "ufo")

_BRIDGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")

#: Seconds to wait for a response of Open vSwitch's database.
TIMEOUT = 10

#: Exit status of ``ovs-vsctl br-exists`` if the bridge does not exist.
_NO_BRIDGE = 2


def plug(vif: VIF) -> None:
    """Check that the host can connect a port. Raises `VirtDriverError`."""
    if vif.vif_type != OVS or vif.vnic_type != NORMAL:
        raise exceptions.VirtDriverError(
            reason=f"port {vif.id} ({vif.vnic_type}) is bound as {vif.vif_type}, but guests can be connected only as "
            f"{OVS} ({NORMAL}), {HW_VEB} or {HOSTDEV_PHYSICAL}"
        )
    if vif.vif_details.get("ovs_hybrid_plug"):
        raise exceptions.VirtDriverError(
            reason=f"port {vif.id} requires a Linux bridge to be filtered on (ovs_hybrid_plug): the agent of this host "
            "needs firewall_driver = openvswitch"
        )
    bridge = bridge_of(vif)
    status, error = _ovs_vsctl("br-exists", bridge)
    if status == _NO_BRIDGE:
        raise exceptions.VirtDriverError(
            reason=f"Open vSwitch of this host has no bridge {bridge}: ovn-controller, or Neutron's Open vSwitch "
            "agent, does not run here"
        )
    if status:
        raise exceptions.VirtDriverError(reason=f"Open vSwitch of this host does not respond: {error}")


def unplug(vif: VIF) -> None:
    """Remove the port from its bridge, if it is still there.

    libvirt does this when a guest ends. After a crash of the host a port is left, and the guest does not start again.
    """
    if vif.vif_type != OVS:
        return
    status, error = _ovs_vsctl("--no-wait", "--if-exists", "del-port", names.tap_name(vif))
    if status:
        LOG.warning("Port %s of Open vSwitch may be left: %s", names.tap_name(vif), error)


def interface(vif: VIF) -> ET.Element:
    """Return the interface's element with its type and source. We do not filter it."""
    element = ET.Element("interface", type="bridge")
    ET.SubElement(element, "source", bridge=bridge_of(vif))
    port = ET.SubElement(element, "virtualport", type="openvswitch")
    ET.SubElement(port, "parameters", interfaceid=vif.id)
    return element


def turn_off_offloads(element: ET.Element, vif: VIF) -> None:
    """Let the guest complete its packets itself if the datapath is Open vSwitch's process.

    The kernel completes checksums and splits segments for guests. That process takes packets as they are, and drops
    those of a guest that relied on this.
    """
    if vif.vif_details.get("datapath_type") != NETDEV or element.find("model[@type='virtio']") is None:
        return
    driver = element.find("driver")
    if driver is None:
        driver = ET.SubElement(element, "driver")
    ET.SubElement(driver, "host", dict.fromkeys(_OFFLOADS, "off"))


def bridge_of(vif: VIF) -> str:
    """Return the bridge that Neutron names. Raises `VirtDriverError` if that is no name of one."""
    name = str(vif.vif_details.get("bridge_name") or INTEGRATION_BRIDGE)
    if not _BRIDGE_NAME.fullmatch(name):
        raise exceptions.VirtDriverError(reason=f"port {vif.id} is bound to {name!r}, which is no name of a bridge")
    return name


def _ovs_vsctl(*arguments: str) -> tuple[int, str]:
    """Return exit status and error message."""
    command = ["ovs-vsctl", f"--timeout={TIMEOUT}", *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return 1, str(error)
    return result.returncode, result.stderr.strip() or f"status {result.returncode}"
