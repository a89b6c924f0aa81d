"""Identification of the server that sends a request.

A guest has no credentials. Its server is found by the address of the request (`ByAddress`), or Neutron's metadata agent
signs the server's id (`BySignature`). ``[neutron] service_metadata_proxy`` selects one of them.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import NamedTuple, Protocol

import webob
from oslo_config import cfg

from nova_lite.api.metadata.role import GuestQueries
from nova_lite.base import exceptions, ip
from nova_lite.objects import Instance

LOG = logging.getLogger(__name__)

NEIGHBOURS = "/proc/self/net/arp"


class Caller(NamedTuple):
    """Sender of a request: address and MAC address, or signed server and project id."""

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
    """Identifies servers by IP address, and by MAC address if the guest is on a link of this machine."""

    def __init__(self, use_forwarded_for: bool, neighbours: str = NEIGHBOURS) -> None:
        self._use_forwarded_for = use_forwarded_for
        self._neighbours = neighbours

    def of(self, req: webob.Request) -> Caller:
        address = req.remote_addr or ""
        if self._use_forwarded_for and req.headers.get("X-Forwarded-For"):
            address = req.headers["X-Forwarded-For"].rpartition(",")[2].strip()
        try:
            address = str(ip.parse(address))
        except ValueError as error:
            raise exceptions.Invalid("The last address in X-Forwarded-For is not an IP address.") from error
        return Caller(address, self._mac_address(address))

    def _mac_address(self, address: str) -> str:
        """Return the MAC address from the ARP table, empty if the address is on no link, as behind a proxy."""
        try:
            with open(self._neighbours, encoding="ascii") as file:
                rows = [line.split() for line in file]
        except OSError:
            return ""
        return next((row[3].lower() for row in rows if len(row) == 6 and row[0] == address), "")

    def find(self, guests: GuestQueries, caller: Caller) -> Instance | None:
        """Return the server with this address. Networks may share addresses, so a known MAC address must match."""
        instances = [
            instance
            for instance in guests.at_address(caller.name)
            if any(
                vif.address == caller.name and caller.proof in ("", vif.mac_address.lower()) for vif in instance.vifs
            )
        ]
        if len(instances) == 1:
            return instances[0]
        reason = "several servers have" if instances else "no server has"
        mac_address = caller.proof or "no MAC"
        LOG.warning("A metadata request from %s (%s) is refused: %s it", caller.name, mac_address, reason)
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
