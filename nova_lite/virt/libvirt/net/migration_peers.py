"""Access of other hosts to the ports of live migrations: libvirtd's port for TLS, and qemu's ports.

Without a filter, each host with a certificate can control the libvirtd of each other host at any time. With it, these
ports are open for the source of a migration to this host, from its preparation to its end. Packets of all others are
dropped, also of connections that were opened before. Connections from this host are not concerned.

The addresses are stored on disk, so a restart of the daemon interrupts no migration.
"""

from __future__ import annotations

import logging
import os
import threading

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import migrations_table
from nova_lite.virt.libvirt.records import Records

LOG = logging.getLogger(__name__)

LIBVIRTD_PORT = 16514
#: Ports on which qemu waits for guests and their disks.
QEMU_PORTS = (49152, 49215)


class MigrationPeers:
    """Manages the filter. It exists with ``[libvirt] live_migration_tls``."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, records: Records) -> None:
        self._is_on: bool = conf.libvirt.live_migration_tls
        self._own = own_address(conf)
        self._records = records
        self._table = migrations_table(host)
        self._host = host
        self._path = os.path.join(records.instances_path, f"_migrations@{host}.json")
        self._lock = threading.Lock()
        self._peers: dict[str, str] = {}
        #: True while the kernel lacks the last change.
        self._is_outdated = False

    def prepare(self) -> None:
        """Load the filter when the daemon starts, or remove it. Raises `ConfigurationError`: the daemon must not serve
        without it."""
        with self._lock:
            if not self._is_on:
                error = nft.run(without(self._table))
                if error and os.path.exists(self._path):
                    LOG.warning("The filter of live migrations may still be there: %s", error)
                files.remove(self._path)
                return
            self._peers = {uuid: text for uuid, text in self._read().items() if self._records.owns(uuid)}
            if error := self._try_load():
                raise exceptions.ConfigurationError(reason=f"[libvirt] live_migration_tls: {error}")

    def open(self, instance_uuid: str, address: str) -> None:
        """Let the source of an instance's migration in. Raises `MigrationPreCheckError` or `VirtDriverError`."""
        if not self._is_on:
            return
        if parse(address) is None:
            raise exceptions.MigrationPreCheckError(
                reason=f"{address or 'nothing'} is not an address of the source ([libvirt] live_migration_inbound_addr)"
            )
        with self._lock:
            self._peers[instance_uuid] = address
            self._store()

    def close(self, instance_uuid: str) -> None:
        """End the access for an instance's migration. Raises `VirtDriverError`."""
        with self._lock:
            if self._peers.pop(instance_uuid, None) is not None or self._is_outdated:
                self._store()

    def _store(self) -> None:
        files.write_atomically(self._path, msgspec.json.encode(self._peers), writer=self._host)
        if error := self._try_load():
            raise exceptions.VirtDriverError(reason=error)

    def _try_load(self) -> str:
        """Load the filter. Return an error, empty on success."""
        error = nft.run(ruleset(self._table, self._own, sorted(set(self._peers.values()))))
        self._is_outdated = bool(error)
        return error and f"the filter of live migrations cannot be loaded: {error}"

    def _read(self) -> dict[str, str]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read; migrations to this host that are under way may fail: %s", self._path, error)
            return {}


def own_address(conf: cfg.ConfigOpts) -> str:
    """Return the address of this host for migrations."""
    return str(conf.libvirt.live_migration_inbound_addr or conf.my_ip)


def parse(text: str) -> ip.Address | None:
    """Return the address of a host, None if it is none."""
    try:
        address = ip.parse(text)
    except ValueError:
        return None
    is_usable = not (address.is_loopback or address.is_multicast or address.is_unspecified)
    return address if is_usable else None


def without(table: str) -> str:
    """Return the nft commands that remove the table."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def ruleset(table: str, own: str, peers: list[str]) -> str:
    """Return the nft commands that replace the table in one transaction.

    qemu listens at ``own`` alone, and its ports are in the range that the kernel gives to clients. So only packets of
    connections from other hosts count (direction "original").
    """
    addresses = [address for peer in peers if (address := parse(peer)) is not None]
    sets = {
        version: ", ".join(nft.address(address) for address in addresses if address.version == version)
        for version in (4, 6)
    }
    elements = {version: f" elements = {{ {text} }};" if text else "" for version, text in sets.items()}
    mine = parse(own)
    at_own = "" if mine is None else f"{'ip' if mine.version == 4 else 'ip6'} daddr {nft.address(mine)} "
    first, last = QEMU_PORTS
    return f"""{without(table)}table inet {table} {{
  set peers4 {{ type ipv4_addr;{elements[4]} }}
  set peers6 {{ type ipv6_addr;{elements[6]} }}
  chain guarded {{
    ip saddr @peers4 accept
    ip6 saddr @peers6 accept
    drop
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "lo" accept
    ct direction original tcp dport {LIBVIRTD_PORT} jump guarded
    ct direction original {at_own}tcp dport {first}-{last} jump guarded
  }}
}}
"""
