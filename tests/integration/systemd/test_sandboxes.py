"""Each unit's sandbox lets its daemon do its work, and no more."""

from __future__ import annotations

import json

import pytest

from tests.integration.systemd.machine import SOURCE, Machine
from tests.integration.systemd.probe import DAEMONS, INSTANCE


@pytest.mark.parametrize("unit", [*DAEMONS, "compute@7"])
def test_sandbox_lets_its_daemon_work(machine: Machine, unit: str) -> None:
    daemon, name = unit.partition("@")[0], f"nova-lite-{unit}.service"
    probe = f"/opt/nova-lite/venv/bin/python -W ignore {SOURCE}/tests/integration/systemd/probe.py {daemon}"
    machine.change_unit(name, "Type=oneshot", "Restart=no", "WatchdogSec=0", "ExecStart=", f"ExecStart={probe}")
    machine.run("systemctl", "start", name, check=False)
    lines = machine.run("journalctl", "--output=cat", "--unit", name).splitlines()
    refused = [line for line in lines if line.startswith("REFUSED")]
    assert not refused, "\n".join(refused)
    assert machine.property_of(name, "Result") == "success", lines
    entry = json.loads(machine.run("journalctl", "--output=json", f"NOVA_LITE_INSTANCE={INSTANCE}", "--unit", name))
    assert (entry["MESSAGE"], entry["PRIORITY"]) == ("two\nlines", "4")
    assert (entry["SYSLOG_IDENTIFIER"], entry["NOVA_LITE_HOST"]) == (f"nova-lite-{daemon}", "h1")
    assert sum(line.startswith("ok ") for line in lines) >= 10
