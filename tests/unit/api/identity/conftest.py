"""Fixtures of the identity API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.identity_api import PASSWORDS, World


@pytest.fixture(scope="session")
def hashes() -> dict[str, str]:
    """Hash the passwords once, since each hash takes some 50 ms."""
    from nova_lite.api.identity import passwords

    return {name: passwords.hashed(password) for name, password in PASSWORDS.items()}


@pytest.fixture
def world(tmp_path: Path, hashes: dict[str, str]) -> World:
    return World(tmp_path, hashes)
