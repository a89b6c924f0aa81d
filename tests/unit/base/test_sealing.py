"""Sealed boxes."""

from __future__ import annotations

import base64

import pytest

from nova_lite.base import sealing


def test_box_is_read_by_its_receiver_only() -> None:
    private, other = sealing.new_private_key(), sealing.new_private_key()
    for data in (b"", "sécret".encode() * 100_000):
        box = sealing.seal(sealing.public_key(private), data)
        assert sealing.unseal(private, box) == data
        with pytest.raises(sealing.Unreadable):
            sealing.unseal(other, box)
    assert sealing.seal(sealing.public_key(private), b"x") != sealing.seal(sealing.public_key(private), b"x")


def test_changed_box_is_unreadable() -> None:
    private = sealing.new_private_key()
    raw = base64.b64decode(sealing.seal(sealing.public_key(private), b"secret"))
    for position in (0, 31, 32, len(raw) - 1):
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        with pytest.raises(sealing.Unreadable):
            sealing.unseal(private, base64.b64encode(changed).decode())
    for box in ("", "!", "AAAA", base64.b64encode(bytes(64)).decode()):
        with pytest.raises(sealing.Unreadable):
            sealing.unseal(private, box)


@pytest.mark.parametrize("receiver", ["", "!", "AAAA", base64.b64encode(bytes(32)).decode()])
def test_box_for_no_key_is_refused(receiver: str) -> None:
    with pytest.raises(sealing.Unreadable):
        sealing.seal(receiver, b"secret")
