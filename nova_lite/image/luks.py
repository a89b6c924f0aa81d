"""Headers of LUKS disks and volumes (version 1), which qemu decrypts for guests.

A header describes the cipher, and has the data's key, encrypted with a passphrase. The data follow it. The passphrases
of this cloud are random, of 256 bits. So no attacker can guess one, and few rounds of the slow digest are enough.

The layout is that of qemu and cryptsetup: eight key slots of which the first is used, then the data.
"""

from __future__ import annotations

import hashlib
import os
import struct
import uuid

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

MAGIC = b"LUKS\xba\xbe"
SECTOR = 512

#: The cipher that volumes can have, in the words of dm-crypt.
CIPHER = "aes-xts-plain64"
#: Bytes of the data's key by Cinder's key size in bits. XTS has two keys of this size; 512 counts both of them.
KEY_BYTES = {128: 32, 256: 64, 512: 64}

_VERSION = 1
_DIGEST = "sha256"
_SLOTS = 8
_USED, _UNUSED = 0x00AC71F3, 0x0000DEAD
#: Copies into which a key is split, so that a disk that lost one of them has lost the key.
_STRIPES = 4000
#: Rounds of PBKDF2: the least of the format.
_ROUNDS = 1000
_SALT, _DIGEST_BYTES = 32, 20
#: Sectors before the first key slot, and the multiple at which slots begin.
_ALIGNMENT = 8

_HEADER = struct.Struct(f">6sH32s32s32sII{_DIGEST_BYTES}s{_SALT}sI40s")
_SLOT = struct.Struct(f">II{_SALT}sII")


class NotLuks(ValueError):
    """Data that do not begin with a header of this format."""


def new_header(passphrase: bytes, key_size: int = 256) -> bytes:
    """Return a header with a new random key for the data. ``key_size``: in bits, one of `KEY_BYTES`."""
    key = os.urandom(KEY_BYTES[key_size])
    stripes = -(-len(key) * _STRIPES // SECTOR)
    slot_sectors = -(-stripes // _ALIGNMENT) * _ALIGNMENT
    payload = _ALIGNMENT + _SLOTS * slot_sectors
    digest_salt, slot_salt = os.urandom(_SALT), os.urandom(_SALT)
    cipher, mode = CIPHER.split("-", 1)
    header = _HEADER.pack(
        MAGIC,
        _VERSION,
        cipher.encode(),
        mode.encode(),
        _DIGEST.encode(),
        payload,
        len(key),
        _derive(key, digest_salt, _DIGEST_BYTES),
        digest_salt,
        _ROUNDS,
        str(uuid.uuid4()).encode(),
    )
    for slot in range(_SLOTS):
        state, rounds, salt = (_UNUSED, 0, bytes(_SALT)) if slot else (_USED, _ROUNDS, slot_salt)
        header += _SLOT.pack(state, rounds, salt, _ALIGNMENT + slot * slot_sectors, _STRIPES)
    material = _split(key).ljust(stripes * SECTOR, b"\0")
    encrypted = _encrypt(_derive(passphrase, slot_salt, len(key)), material)
    return (header.ljust(_ALIGNMENT * SECTOR, b"\0") + encrypted).ljust(payload * SECTOR, b"\0")


def data_offset(path: str) -> int:
    """Return the number of bytes before the data of a file. Raises `NotLuks`."""
    with open(path, "rb") as file:
        start = file.read(_HEADER.size)
    if len(start) < _HEADER.size or not start.startswith(MAGIC):
        raise NotLuks(path)
    version, payload = _HEADER.unpack(start)[1], _HEADER.unpack(start)[5]
    if version != _VERSION:
        raise NotLuks(path)
    return int(payload) * SECTOR


def _derive(secret: bytes, salt: bytes, size: int) -> bytes:
    return hashlib.pbkdf2_hmac(_DIGEST, secret, salt, _ROUNDS, size)


def _split(key: bytes) -> bytes:
    """Split a key into stripes, all of which are needed to get it back."""
    parts, last = [], bytes(len(key))
    for _ in range(_STRIPES - 1):
        part = os.urandom(len(key))
        parts.append(part)
        last = _diffuse(_xor(last, part))
    return b"".join([*parts, _xor(last, key)])


def _diffuse(block: bytes) -> bytes:
    size = hashlib.new(_DIGEST).digest_size
    pieces = (block[start : start + size] for start in range(0, len(block), size))
    return b"".join(
        hashlib.new(_DIGEST, struct.pack(">I", index) + piece).digest()[: len(piece)]
        for index, piece in enumerate(pieces)
    )


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def _encrypt(key: bytes, data: bytes) -> bytes:
    """Encrypt whole sectors, numbered from 0, as the data are encrypted."""
    sectors = []
    for number in range(len(data) // SECTOR):
        tweak = struct.pack("<QQ", number, 0)
        encryptor = Cipher(algorithms.AES(key), modes.XTS(tweak)).encryptor()
        sectors.append(encryptor.update(data[number * SECTOR : (number + 1) * SECTOR]) + encryptor.finalize())
    return b"".join(sectors)
