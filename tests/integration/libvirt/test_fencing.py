"""A fence agent and a guard, with real domains of this machine's libvirtd."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.compute import guard
from nova_lite.compute.guard import Guard, QemuGuests
from nova_lite.fence import methods
from nova_lite.fence.agent import Power
from nova_lite.fence.agents import Libvirt
from nova_lite.fence.methods import Method
from tests.support.waiting import wait_for

DOMAIN = """
<domain type='qemu'>
  <name>nova-lite-fence-{uuid}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>16</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><tcg><tb-cache unit='MiB'>32</tb-cache></tcg></features>
</domain>
"""


@pytest.fixture
def domain(connection: Any) -> Iterator[Any]:
    """Run a virtual machine without disks."""
    found = connection.createXML(DOMAIN.format(uuid=uuid.uuid4()))
    yield found
    try:
        found.destroy()
    except libvirt.libvirtError as error:
        assert error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN


def test_agent_switches_a_virtual_machine_off(connection: Any) -> None:
    found = connection.defineXML(DOMAIN.format(uuid=uuid.uuid4()))
    try:
        found.create()
        agent = Libvirt({"uri": "qemu:///system", "domain": found.name()})
        assert agent.power(10) is Power.ON
        assert methods.switch_off("host", [Method("1. libvirt", agent)]) == "1. libvirt"
        assert not found.isActive()
        assert agent.power(10) is Power.OFF
    finally:
        if found.isActive():
            found.destroy()
        found.undefine()


def test_guard_kills_the_process_of_a_guest(tmp_path: Path, domain: Any) -> None:
    guest = domain.UUIDString()
    other = str(uuid.uuid4())
    assert QemuGuests().running([guest, other]) == [guest]
    protecting = Guard(str(tmp_path), QemuGuests())
    message = {"verb": "hold", "ends_at": guard.now(), "guests": [guest], "daemon": [0, 0], "handled": True}
    protecting.handle(message)
    protecting.tick()
    wait_for("end of the guest", lambda: not QemuGuests().running([guest]), 20)
    assert protecting.stopped() == [guest]
