"""Keys of servers' TPMs, among the keys of encrypted volumes: one row each, with the id of the server.

The first host of a server with a TPM has the key made. Hosts get it while they have the server. It goes with the
server.
"""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import volume_keys
from nova_lite.objects import VolumeKey

#: Key in an instance's ``system_metadata``, as in Nova: the id of its key.
SECRET = "vtpm_secret_uuid"  # noqa: S105 a name

#: Description of swtpm's encryption, as libvirt requests it.
_ENCRYPTION = {"provider": "swtpm", "cipher": "aes-256-cbc", "key_size": 256, "control_location": volume_keys.FRONT_END}


def key_for_host(uow: UnitOfWork, host: str, instance_uuid: str) -> VolumeKey:
    """Return the key of the TPM of a server that is on this host, or moves from or to it. Make it if there is none.

    Raises `TPMKeyUnavailable`, `InstanceNotFound`, and `InvalidInput` if the cloud has no master key.
    """
    instance = instances.get_row(uow, get_admin_context(), instance_uuid, lock=True)
    if all(held.host != host for held in claims.held_hosts(uow, instance)):
        raise _unavailable(instance, f"host {host} does not have the server")
    masters = volume_keys.masters_of(uow.conf, "TPMs", "choose a flavor and an image without a TPM")
    if SECRET not in instance.system_metadata:
        volume_keys.insert(uow, masters, instance.uuid, volume_keys.new_passphrase(), _ENCRYPTION)
        instance.system_metadata = {**instance.system_metadata, SECRET: instance.uuid}
    try:
        return volume_keys.read(uow, masters, instance.uuid)
    except exceptions.VolumeKeyUnavailable as error:
        raise _unavailable(instance, error.kwargs["reason"]) from error


def delete(uow: UnitOfWork, instance: Instance) -> None:
    """Destroy the key of a server that is deleted, or that has its TPM no longer."""
    if SECRET in instance.system_metadata:
        volume_keys.delete(uow, instance.uuid)


def _unavailable(instance: Instance, reason: str) -> exceptions.TPMKeyUnavailable:
    return exceptions.TPMKeyUnavailable(instance_uuid=instance.uuid, reason=reason)
