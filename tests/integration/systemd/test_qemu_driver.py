"""A unit with the drop-in of the page runs guests of qemu without libvirt, which outlive a restart of the unit."""

from __future__ import annotations

import shutil
import uuid

import pytest

from tests.integration.systemd.machine import DEADLINE, SOURCE, Machine
from tests.support import pages
from tests.support.waiting import wait_for_none

UNIT = "nova-lite-compute.service"
PAGE = "howto/qemu-driver.md"
USER = "nova-lite-qemu"
PROGRAM = f"/opt/nova-lite/venv/bin/python -W ignore {SOURCE}/tests/integration/systemd/qemu_host.py"


def test_guest_of_a_unit_outlives_its_restart(machine: Machine) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("qemu is not installed")
    instance = str(uuid.uuid4())
    ((add_user, *_),) = pages.blocks(PAGE, "Set it up")
    machine.run(*add_user.split())
    page = (pages.PAGES / PAGE).read_text()
    drop_in = page.partition("/nova-lite-compute.service.d/qemu.conf\n")[2].partition("```")[0]
    settings = [line.strip() for line in drop_in.splitlines() if "=" in line]
    program = ("Type=exec", "Restart=no", "WatchdogSec=0", "ExecStart=", f"ExecStart={PROGRAM} {instance}")
    machine.change_unit(UNIT, *settings, *program)
    scope = f"nova-lite-guest-{instance}-*.scope"
    machine.run("systemctl", "start", UNIT)
    try:
        _wait_for_line(machine, "guest: started")
        assert machine.property_of(scope, "ActiveState") == "active"
        pid, *_ = machine.run("pgrep", "--full", f"uuid {instance}").split()
        assert machine.run("stat", "--format=%U", f"/proc/{pid}").strip() == USER
        machine.run("systemctl", "restart", UNIT)
        _wait_for_line(machine, "guest: RUNNING")
        assert machine.run("pgrep", "--full", f"uuid {instance}").split() == [pid]
    finally:
        machine.run("systemctl", "stop", UNIT, scope, check=False)


def _wait_for_line(machine: Machine, expected: str) -> None:
    def otherwise() -> list[str]:
        lines = machine.run("journalctl", "--output=cat", "--unit", UNIT).splitlines()
        return [] if expected in lines else lines[-20:]

    wait_for_none(f"the unit says {expected}", otherwise, DEADLINE, 0.2)
