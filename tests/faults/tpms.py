"""Servers with a TPM: whatever fails, each guest that runs has had the one key of its server."""

from __future__ import annotations

from tests.faults.arena import Arena

TPM = "tpm"
FLAVOR = {"id": TPM, "name": TPM, "ram": 64, "disk": 1, "vcpus": 1}


def flavor(arena: Arena) -> None:
    """Make a flavor with a TPM."""
    arena.insist("POST", "/flavors", {"flavor": FLAVOR}, (200, 409))
    specs = {"extra_specs": {"hw:tpm_version": "2.0"}}
    arena.insist("POST", f"/flavors/{TPM}/os-extra_specs", specs, (200,))


def create(arena: Arena) -> None:
    """Create a server, whose guest starts once its host has the key."""
    arena.create(1, TPM)
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
