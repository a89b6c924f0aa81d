"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from nova_lite.api.identity import passwords
from nova_lite.virt.libvirt.net import namespaces


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Hash passwords in this process with a thousandth of the memory and time, which are 16 MiB and some 50 ms.

    The hashes name their full cost. `tests/functional/test_standalone.py` has real ones.
    """
    derive = passwords._kdf

    def cheap(salt: bytes, n: int, r: int, p: int) -> Scrypt:
        return derive(salt, max(2, n >> 10), r, p)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_kdf", cheap)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_systemd() -> Iterator[None]:
    """Hide the systemd of a machine that has one, also from tests that run in one of its units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("INVOCATION_ID", raising=False)
        patch.setattr(namespaces, "SYSTEMD", "/nonexistent")
        yield
