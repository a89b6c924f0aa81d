"""Role of the daemon that serves metadata, and what the conductor then lets it read.

An API that serves other APIs too has the role ``api``, and may read every server. An API on a compute host serves only
metadata. Its role is ``metadata``: the conductor gives it only the guests of its own host.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import Instance
from nova_lite.rpc import keys
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)


class GuestQueries(Protocol):
    """Queries about guests that ask for metadata."""

    def at_address(self, address: str, network_id: str | None) -> list[Instance]:
        """Return the servers with this address on the network; None: one for each network that has it."""
        ...

    def by_uuid(self, instance_uuid: str, project_id: str) -> Instance | None:
        """Return the server of this project, if there is one."""
        ...

    def set_password(self, instance: Instance, password: str) -> None:
        """Store the password that a guest posted. Raises `PasswordAlreadySet` if there is one."""
        ...


class AllGuests:
    """Queries with the role ``api``: about every server."""

    def __init__(self, conductor: ConductorRPC) -> None:
        self._conductor = conductor

    def at_address(self, address: str, network_id: str | None) -> list[Instance]:
        return self._conductor.instances_at_address(get_admin_context(), address, network_id)

    def by_uuid(self, instance_uuid: str, project_id: str) -> Instance | None:
        context = RequestContext(project_id=project_id, overwrite=False)
        try:
            return self._conductor.instance_get(context, instance_uuid)
        except exceptions.InstanceNotFound:
            return None

    def set_password(self, instance: Instance, password: str) -> None:
        context = RequestContext(project_id=instance.project_id, overwrite=False)
        self._conductor.instance_password_set(context, instance.uuid, password)


class GuestsOfHost:
    """Queries with the role ``metadata``: about the guests of one host."""

    def __init__(self, conductor: ConductorRPC, host: str) -> None:
        self._conductor = conductor
        self._host = host

    def at_address(self, address: str, network_id: str | None) -> list[Instance]:
        return self._conductor.metadata_instances(get_admin_context(), self._host, address, None, network_id)

    def by_uuid(self, instance_uuid: str, project_id: str) -> Instance | None:
        found = self._conductor.metadata_instances(get_admin_context(), self._host, None, instance_uuid)
        return next((instance for instance in found if instance.project_id == project_id), None)

    def set_password(self, instance: Instance, password: str) -> None:
        self._conductor.metadata_password_set(get_admin_context(), self._host, instance.uuid, password)


def _serves_only_metadata(conf: cfg.ConfigOpts) -> bool:
    return set(conf.api.enabled_apis) == {"metadata"}


def role_of(conf: cfg.ConfigOpts) -> str:
    """Return the role of an API daemon.

    Operators of earlier versions have a key of the API on each host that serves metadata. It works until the next minor
    version.
    """
    directory = conf.rpc.keys_directory
    if not directory or not _serves_only_metadata(conf):
        return rpc.API
    if os.path.exists(keys.private_path(directory, rpc.METADATA, conf.host)):
        return rpc.METADATA
    return rpc.API


def log_role(conf: cfg.ConfigOpts) -> None:
    """Log that this daemon's key lets it read more than it needs."""
    if conf.rpc.keys_directory and _serves_only_metadata(conf) and role_of(conf) == rpc.API:
        LOG.warning(
            "This API serves only metadata, and its key may read every server. The next minor version needs a key of "
            "role metadata: nova-lite-manage keys create metadata %s",
            conf.host,
        )


def queries(role: str, host: str, conductor: ConductorRPC) -> GuestQueries:
    """Return what a daemon of this role on ``host`` can query."""
    return GuestsOfHost(conductor, host) if role == rpc.METADATA else AllGuests(conductor)
