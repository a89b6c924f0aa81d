"""Servers whose guests need keys: whatever fails, each guest that runs has had the keys of its server."""

from __future__ import annotations

from tests.faults.arena import Arena

#: Extra specs by the names of flavors.
SPECS = {"tpm": {"hw:tpm_version": "2.0"}, "encrypted": {"hw:ephemeral_encryption": "yes"}}


def flavors(arena: Arena) -> None:
    """Make the flavors."""
    for name, specs in SPECS.items():
        body = {"id": name, "name": name, "ram": 64, "disk": 1, "vcpus": 1}
        arena.insist("POST", "/flavors", {"flavor": body}, (200, 409))
        arena.insist("POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": specs}, (200,))


def create_with_tpm(arena: Arena) -> None:
    """Create a server, whose guest starts once its host has the key of its TPM."""
    _create(arena, "tpm")


def create_encrypted(arena: Arena) -> None:
    """Create a server, whose disk is made once its host has the key."""
    _create(arena, "encrypted")


def _create(arena: Arena, flavor: str) -> None:
    arena.create(1, flavor)
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
