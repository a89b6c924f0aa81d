"""The commands that people give every day, by the unmodified `openstack` client: exit status and columns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.cloud import transcript
from tests.integration.cloud.conftest import StackedCloud


@pytest.mark.timeout(900)
def test_the_client_prints_what_it_should(cloud: StackedCloud, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    names = {
        "image": "nova-lite-guest",
        "flavor": "m1.nano",
        "flavor_id": "42",
        "bigger": "m1.micro",
        "network": next(network["id"] for network in cloud.manage("network", "list") if network["name"] == "private"),
        "host": cloud.hosts()[0]["host"],
        "key": f"{key}.pub",
    }
    commands, clean = transcript.load()
    problems = []
    with transcript.Client(["--os-cloud", "nova-lite"], names) as client:
        for command in clean:
            client.run(command)
        try:
            for entry in commands:
                if entry.hosts <= len(cloud.entered):
                    found = transcript.check(client, entry)
                    problems += [f"openstack {entry.run}: {problem}" for problem in found]
        finally:
            for command in clean:
                client.run(command)
    assert problems == []
