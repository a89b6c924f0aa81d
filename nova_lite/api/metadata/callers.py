"""Identification of the server that sends a request.

A guest has no credentials. Its server is found by the network and the address of the request (`ByAddress`). Or
Neutron's metadata agent signs the server's id (`BySignature`), with ``[neutron] service_metadata_proxy``.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import NamedTuple, Protocol

import webob
from oslo_config import cfg

from nova_lite.api.http.server import NETWORK
from nova_lite.api.metadata.role import GuestQueries
from nova_lite.base import exceptions, ip
from nova_lite.objects import Instance

LOG = logging.getLogger(__name__)


class Caller(NamedTuple):
    """Sender of a request: address and network id ("" from a proxy), or signed server and project id."""

    name: str
    proof: str


class Callers(Protocol):
    """Way to identify callers."""

    def of(self, req: webob.Request) -> Caller:
        """Return the caller. Raises a `NovaLiteException` if the request has no valid proof."""
        ...

    def find(self, guests: GuestQueries, caller: Caller) -> Instance | None:
        """Return the caller's server, or None if there is none."""
        ...


def load(conf: cfg.ConfigOpts) -> Callers:
    if not conf.neutron.service_metadata_proxy:
        return ByAddress(conf.api.use_forwarded_for)
    if not conf.neutron.metadata_proxy_shared_secret:
        raise exceptions.ConfigurationError(
            reason="[neutron] service_metadata_proxy needs metadata_proxy_shared_secret, which signs requests."
        )
    return BySignature(conf.neutron.metadata_proxy_shared_secret)


class ByAddress:
    """Identifies servers by the network from which a request comes, and by its address there.

    ``use_forwarded_for``: other requests come from a proxy, which names the address. No other network has that, then.
    """

    def __init__(self, use_forwarded_for: bool) -> None:
        self._use_forwarded_for = use_forwarded_for

    def of(self, req: webob.Request) -> Caller:
        if (network_id := req.environ.get(NETWORK)) is not None:
            return Caller(req.remote_addr or "", network_id)
        if not self._use_forwarded_for:
            raise exceptions.Forbidden("Guests of this cloud's networks reach this API on their networks only.")
        try:
            address = str(ip.parse(req.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()))
        except ValueError as error:
            raise exceptions.Invalid("The last address in X-Forwarded-For is not an IP address.") from error
        return Caller(address, "")

    def find(self, guests: GuestQueries, caller: Caller) -> Instance | None:
        instances = [
            instance
            for instance in guests.at_address(caller.name, caller.proof or None)
            if any(vif.address == caller.name and caller.proof in ("", vif.network.id) for vif in instance.vifs)
        ]
        if len(instances) == 1:
            return instances[0]
        reason = "several servers have" if instances else "no server has"
        where = caller.proof or "no network"
        LOG.warning("A metadata request from %s (%s) is refused: %s it", caller.name, where, reason)
        return None


class BySignature:
    """Identifies servers by the signature of Neutron's metadata agent."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def of(self, req: webob.Request) -> Caller:
        names = ("X-Instance-ID", "X-Instance-ID-Signature", "X-Tenant-ID")
        for name in names:
            if not req.headers.get(name):
                raise exceptions.Invalid(f"{name} header is missing from request.")
        instance_uuid, signature, project_id = (req.headers[name] for name in names)
        expected = hmac.new(self._secret, instance_uuid.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            LOG.warning("A metadata request from %s is refused: its signature is wrong", req.remote_addr)
            raise exceptions.Forbidden("Invalid proxy request signature.")
        return Caller(instance_uuid, project_id)

    def find(self, guests: GuestQueries, caller: Caller) -> Instance | None:
        instance = guests.by_uuid(caller.name, caller.proof)
        if instance is None:
            LOG.warning("A metadata request is refused: project %s has no instance %s", caller.proof, caller.name)
        return instance
