"""Keys of encrypted volumes and backups: one row each, wrapped by a master key. `tpms` has further ones there.

A copy of a volume has the same data key on the storage, so it gets a row of its own with the same passphrase. The row
goes with its volume or backup. Hosts get a passphrase while they have the volume, or work on it.
"""

from __future__ import annotations

import logging
import os
import uuid
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, master_keys
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeKey as Row
from nova_lite.db.volume import volumes
from nova_lite.objects import VolumeEncryption, VolumeKey, VolumeType

LOG = logging.getLogger(__name__)

#: Providers of a type's encryption that name LUKS version 1: today's name, and those of older releases.
LUKS = frozenset(
    {
        "luks",
        "LuksEncryptor",
        "nova.volume.encryptors.luks.LuksEncryptor",
        "os_brick.encryptors.luks.LuksEncryptor",
    }
)
#: The cipher that hosts offer, with its key sizes in bits, and what a type that names none gets.
CIPHER, KEY_SIZES, KEY_SIZE = "aes-xts-plain64", (128, 256, 512), 256
#: Control location of data that the compute host encrypts.
FRONT_END = "front-end"

_PASSPHRASE_BYTES = 32


def create(uow: UnitOfWork, kind: VolumeType) -> str:
    """Make a random key for a new volume of this type. Return the key's id. Raises `InvalidInput`."""
    provider, cipher, key_size = _parameters(kind)
    described = {"provider": provider, "cipher": cipher, "key_size": key_size, "control_location": FRONT_END}
    return insert(uow, _masters(uow.conf), str(uuid.uuid4()), new_passphrase(), described)


def new_passphrase() -> str:
    return os.urandom(_PASSPHRASE_BYTES).hex()


def _parameters(kind: VolumeType) -> tuple[str, str, int]:
    """Return provider, cipher and key size of volumes of this type. Raises `InvalidInput` for what no host can do."""
    wanted = kind.encryption or {}
    provider = str(wanted.get("provider"))
    cipher, key_size = wanted.get("cipher") or CIPHER, wanted.get("key_size") or KEY_SIZE
    problem = None
    if provider not in LUKS:
        problem = f"its provider must be luks (it is {provider[:64]}): hosts read no other format"
    elif cipher != CIPHER or key_size not in KEY_SIZES:
        problem = f"its cipher must be {CIPHER} with a key size of 128, 256 or 512"
    elif wanted.get("control_location") != FRONT_END:
        problem = f"its control location must be {FRONT_END}: the storage encrypts nothing itself"
    if problem is not None:
        raise exceptions.InvalidInput(reason=f"volumes of type {kind.name} cannot be encrypted: {problem}")
    return "luks", cipher, key_size


def copy(uow: UnitOfWork, key_id: str, volume_id: str) -> str:
    """Make a row for a copy of the volume, or of its backup, which has this key. Return its id."""
    row = _row(uow, key_id, volume_id)
    described = {name: getattr(row, name) for name in ("provider", "cipher", "key_size", "control_location")}
    masters = _masters(uow.conf)
    return insert(uow, masters, str(uuid.uuid4()), _unwrap(masters, row, volume_id), described)


def exists(uow: UnitOfWork, key_id: str) -> bool:
    return uow.session.get(Row, key_id) is not None


def delete(uow: UnitOfWork, key_id: str | None) -> None:
    """Destroy a key, with its volume or backup."""
    if key_id is not None:
        uow.change(sa.delete(Row).where(Row.id == key_id))


def describe(uow: UnitOfWork, context: RequestContext, volume_id: str) -> VolumeEncryption:
    """Return the encryption of a volume that the context may see. Raises `VolumeNotFound`."""
    key_id = volumes.get(uow, context, volume_id).encryption_key_id
    if key_id is None:
        return VolumeEncryption()
    row = _row(uow, key_id, volume_id)
    return rows.to_object(VolumeEncryption, row, encryption_key_id=row.id)


def for_host(uow: UnitOfWork, host: str, volume_id: str) -> VolumeKey:
    """Return the key of a volume that a server on this host has, or that this host works on.

    A server that moves is on both hosts. Raises `VolumeKeyUnavailable`.
    """
    volume = volumes.by_id(uow, volume_id)
    if volume is None or volume.encryption_key_id is None:
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="there is no such encrypted volume")
    node, allocation, task = models.ComputeNode, models.Allocation, models.VolumeTask
    here = sa.select(allocation.id).join(node, node.id == allocation.compute_node_id)
    here = here.where(allocation.instance_uuid == (volume.instance_uuid or ""), node.host == host)
    works = sa.select(task.id).where(task.volume_id == volume_id, task.host == host)
    if all(uow.session.scalar(query.limit(1)) is None for query in (here, works)):
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason=f"host {host} does not have the volume")
    return read(uow, _masters(uow.conf), volume.encryption_key_id, volume_id)


def read(uow: UnitOfWork, masters: master_keys.MasterKeys, key_id: str, volume_id: str = "") -> VolumeKey:
    """Return the key of this row. Raises `VolumeKeyUnavailable`."""
    row = _row(uow, key_id, volume_id)
    return VolumeKey(passphrase=_unwrap(masters, row, volume_id), key_size=row.key_size)


# --- master keys


def by_master_key(uow: UnitOfWork) -> dict[str, int]:
    """Return the number of keys that each master key wraps."""
    query = sa.select(Row.master_key, sa.func.count()).group_by(Row.master_key).order_by(Row.master_key)
    return {master_key: int(count) for master_key, count in uow.session.execute(query)}


def rewrap(uow: UnitOfWork, keys: master_keys.MasterKeys, most: int) -> int:
    """Wrap up to ``most`` keys with the newest master key that have another one. Return their number.

    Raises `VolumeKeyUnavailable` for a key whose master key is missing.
    """
    query = sa.select(Row).where(Row.master_key != keys.ids[0]).order_by(Row.id).limit(most).with_for_update()
    found = list(uow.session.scalars(query))
    for row in found:
        row.master_key, row.wrapped = keys.wrap(row.id, _unwrap(keys, row, "").encode())
    return len(found)


def insert(
    uow: UnitOfWork, masters: master_keys.MasterKeys, key_id: str, passphrase: str, described: dict[str, Any]
) -> str:
    """Make a row of this id for the passphrase. ``described``: the columns about its cipher."""
    master_key, wrapped = masters.wrap(key_id, passphrase.encode())
    uow.session.add(Row(id=key_id, master_key=master_key, wrapped=wrapped, created_at=uow.now, **described))
    uow.session.flush()
    return key_id


def _row(uow: UnitOfWork, key_id: str, volume_id: str) -> Row:
    row = uow.session.get(Row, key_id)
    if row is None:
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="it was destroyed")
    return row


def _masters(conf: cfg.ConfigOpts) -> master_keys.MasterKeys:
    return masters_of(conf, "encrypted volumes", "choose another volume type")


def masters_of(conf: cfg.ConfigOpts, purpose: str, advice: str) -> master_keys.MasterKeys:
    """Return the master keys. Without any raises `InvalidInput` with the ``advice`` to the user."""
    path = conf.volume.encryption_key_file
    if not path:
        raise exceptions.InvalidInput(
            reason=f"this cloud has no keys for {purpose}, because the operator has not set {master_keys.OPTION}: "
            f"{advice}"
        )
    try:
        return master_keys.of_daemon(path)
    except exceptions.ConfigurationError as error:
        LOG.error("Keys of encrypted volumes cannot be read: %s", error.message)
        raise exceptions.MasterKeysUnreadable() from error


def _unwrap(keys: master_keys.MasterKeys, row: Row, volume_id: str) -> str:
    try:
        return keys.unwrap(row.id, row.master_key, row.wrapped).decode()
    except master_keys.Unwrappable as error:
        LOG.error("Encryption key %s cannot be read: %s", row.id, error)
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason=str(error)) from error
