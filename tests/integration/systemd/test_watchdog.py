"""A daemon that stands still is restarted, and its lines in the journal have their priority."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.systemd.machine import DEADLINE, Machine

#: Units whose daemons start without a broker.
UNITS = ["nova-lite-serialproxy.service", "nova-lite-api.service"]
#: Settings of an API that needs no other service.
API = """
[api]
auth_strategy = noauth2
enabled_apis = osapi_compute
listen = 127.0.0.1
"""


def wait_for(machine: Machine, unit: str, name: str, value: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while machine.property_of(unit, name) != value:
        assert time.monotonic() < deadline, machine.run("systemctl", "status", unit, check=False)
        time.sleep(0.2)


def wait_for_line(machine: Machine, unit: str, text: str) -> int:
    """Wait for a line of the unit in the journal, and return its priority."""
    deadline = time.monotonic() + DEADLINE
    while True:
        lines = machine.run("journalctl", "--output=json", "--unit", unit).splitlines()
        for entry in [json.loads(line) for line in lines if line.startswith("{")]:
            if text in str(entry["MESSAGE"]):
                return int(entry["PRIORITY"])
        assert time.monotonic() < deadline, lines
        time.sleep(0.2)


@pytest.mark.parametrize("unit", UNITS)
def test_stopped_daemon_is_restarted(machine: Machine, unit: str) -> None:
    machine.write("/etc/nova-lite/api.conf", API)
    machine.change_unit(unit, "WatchdogSec=4", "TimeoutAbortSec=1")
    machine.run("systemctl", "start", unit)
    first = machine.property_of(unit, "MainPID")
    machine.run("kill", "-STOP", first)
    wait_for(machine, unit, "NRestarts", "1")
    wait_for(machine, unit, "ActiveState", "active")
    assert machine.property_of(unit, "MainPID") not in ("0", first)
    assert "Watchdog timeout" in machine.run("journalctl", "--unit", unit)
    time.sleep(8)
    assert machine.property_of(unit, "NRestarts") == "1", "it reports again"
    machine.run("systemctl", "stop", unit)
    assert machine.property_of(unit, "Result") == "success"


def test_lines_in_the_journal_have_their_priority(machine: Machine) -> None:
    unit = "nova-lite-scheduler.service"
    machine.write("/etc/nova-lite/scheduler.conf", "[DEFAULT]\n")
    machine.change_unit(unit)
    machine.run("systemctl", "start", "--no-block", unit)
    assert wait_for_line(machine, unit, "Connection refused") == 3
    machine.write("/etc/nova-lite/scheduler.conf", "[DEFAULT\n")
    machine.run("systemctl", "kill", "--signal=KILL", unit)
    machine.run("systemctl", "stop", unit)
    machine.run("systemctl", "start", "--no-block", unit)
    assert wait_for_line(machine, unit, "bad configuration") == 3
    machine.run("systemctl", "stop", unit)
