"""Daemons of one machine do not take each other's ports."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nova_lite.conf import metrics

LIBRARY = Path(__file__).parents[3] / "devstack" / "lib"
MOST = 99  # compute hosts, and workers of the API, of which each has the next port


def test_every_compute_host_has_a_port_for_its_metrics() -> None:
    files = "".join(f"source {LIBRARY}/{name}.sh; " for name in ("common", "config"))
    script = f"{files} for number in $(seq {MOST}); do compute_metrics_port $number; done"
    said = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=True)
    ports = [int(line) for line in said.stdout.split()]
    others = {port for name, (_, port) in metrics.PORTS.items() if name not in ("nova-lite-compute", "nova-lite-api")}
    api = metrics.PORTS["nova-lite-api"][1]
    assert ports[0] == metrics.PORTS["nova-lite-compute"][1]
    assert len(set(ports)) == MOST
    assert not set(ports) & (others | set(range(api, api + MOST)))
