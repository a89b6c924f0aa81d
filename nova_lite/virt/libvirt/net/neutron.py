"""The host side of Neutron's ports, as Neutron's agent on this host expects it, by the type of the binding.

The agent connects the bridge and filters the traffic. It removes what it has created.
"""

from __future__ import annotations

import logging
import os
import subprocess
import xml.etree.ElementTree as ET

from nova_lite.base import exceptions
from nova_lite.objects import VIF

LOG = logging.getLogger(__name__)

BRIDGE, OVS = "bridge", "ovs"

#: The default bridge of the Open vSwitch agent.
INTEGRATION_BRIDGE = "br-int"


def plug(vif: VIF) -> None:
    """Create the bridge of a port, if its type needs one. Raises `VirtDriverError` for an unsupported type."""
    if vif.vif_type == BRIDGE:
        _make_bridge(vif.network.bridge, vif.network.mtu)
    elif vif.vif_type != OVS:
        raise exceptions.VirtDriverError(
            reason=f"port {vif.id} is bound as {vif.vif_type}, but guests can be connected only as {BRIDGE} or {OVS}"
        )


def interface(vif: VIF) -> ET.Element:
    """Return the interface's element with its type and source. We do not filter it."""
    element = ET.Element("interface", type="bridge")
    if vif.vif_type == OVS:
        ET.SubElement(element, "source", bridge=str(vif.vif_details.get("bridge_name") or INTEGRATION_BRIDGE))
        port = ET.SubElement(element, "virtualport", type="openvswitch")
        ET.SubElement(port, "parameters", interfaceid=vif.id)
    else:
        ET.SubElement(element, "source", bridge=vif.network.bridge)
    return element


def _make_bridge(name: str, mtu: int) -> None:
    """Create the bridge as the agent would. The first of both creates it."""
    if os.path.exists(f"/sys/class/net/{name}/bridge"):
        return
    error = _ip("link", "add", "name", name, "mtu", str(mtu), "type", "bridge", "forward_delay", "0")
    if error and not os.path.exists(f"/sys/class/net/{name}/bridge"):
        raise exceptions.VirtDriverError(reason=f"bridge {name} could not be created: {error}")
    error = _ip("link", "set", name, "up")
    if error:
        raise exceptions.VirtDriverError(reason=f"bridge {name} could not be set up: {error}")
    LOG.info("Bridge %s is created", name)


def _ip(*arguments: str) -> str:
    """Run ``ip``. Return the error message, empty on success."""
    try:
        result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return result.stderr.strip() or f"status {result.returncode}" if result.returncode else ""
