"""Limits of QoS policies: a table of nftables for the ports of this host's guests, and one for floating addresses.

A limit is a bucket of bytes, and what exceeds it is dropped. nft fills the bucket once a second, so it holds at least
what may pass in a second. The rules name tap devices, which need not exist: a guest is limited from its first packet,
also after a reboot or a live migration. Only what has changed is loaded again, since that refills a bucket.

Connections have the floating address of a port as their first destination, or as the destination of their replies.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from nova_lite.base import files, ip
from nova_lite.objects import PortFilters, QosLimits
from nova_lite.objects.ready import prepare_decoders
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import qos_table, tap_of

LOG = logging.getLogger(__name__)

#: Bytes a second for a limit of 1 kbit/s.
_BYTES = 125
#: A limit that no guest reaches has no rule: the kernel's arithmetic would overflow.
_HIGHEST = 100_000_000
#: A guest sends up to 64 KiB as one packet, for which a bucket needs room. nft's burst has 32 bits.
_LEAST_BURST, _MOST_BURST = 65536, 2**32 - 1

#: Rules of each direction: what a guest sends, and what it receives.
_Rules = tuple[tuple[str, ...], tuple[str, ...]]


class Limits(msgspec.Struct, omit_defaults=True):
    """Limits by port id, and by floating address."""

    ports: dict[str, QosLimits] = msgspec.field(default_factory=dict)
    floating: dict[str, QosLimits] = msgspec.field(default_factory=dict)


class Table(NamedTuple):
    """Table with chains for each key of its maps: ``kind`` is the type of the keys. ``hooks``: chains that look up."""

    family: str
    kind: str
    hooks: str


PORTS = Table(
    "bridge",
    "ifname",
    """
  chain prerouting {
    type filter hook prerouting priority -250; policy accept;
    iifname vmap @sent
  }
  chain postrouting {
    type filter hook postrouting priority -250; policy accept;
    oifname vmap @received
  }
""",
)
FLOATING = Table(
    "inet",
    "ipv4_addr",
    """
  chain forward {
    type filter hook forward priority -10; policy accept;
    ct direction original ct original ip daddr vmap @received
    ct direction reply ct original ip daddr vmap @sent
    ct direction original ct reply ip daddr vmap @sent
    ct direction reply ct reply ip daddr vmap @received
  }
""",
)

prepare_decoders(Limits)


class HostQos:
    """Limits of this host. They are stored on disk before they apply, for a start without a conductor."""

    def __init__(self, host: str, directory: str) -> None:
        self._host = host
        self._path = os.path.join(directory, f"_qos@{host}.json")
        self._lock = threading.Lock()
        self._limits = Limits()
        #: Loaded rules of each table; None: unknown.
        self._loaded: dict[Table, dict[str, _Rules] | None] = {PORTS: {}, FLOATING: {}}
        self._error = ""

    def prepare(self) -> None:
        """Load the stored limits. If the file cannot be read, the loaded limits stay until the conductor replies."""
        if not os.path.exists(self._path):
            return
        with self._lock:
            self._loaded = dict.fromkeys(self._loaded)
            self._limits = self._read()
            if self._limits != Limits():
                self._load()

    def _read(self) -> Limits:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=Limits)
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read and will be queried again: %s", self._path, error)
            return Limits()

    def set(self, filters: PortFilters) -> None:
        """Replace all limits. A conductor of an older version knows none."""
        if filters.qos is None:
            return
        wanted = Limits(filters.qos, filters.floating_qos)
        with self._lock:
            if wanted != self._limits:
                files.write_atomically(self._path, msgspec.json.encode(wanted), writer=self._host)
                self._limits = wanted
            self._load()

    def _load(self) -> None:
        """Load what has changed, or whole tables that an administrator has removed. A failure is logged once."""
        errors = [
            self._load_table(PORTS, port_rules(self._limits.ports)),
            self._load_table(FLOATING, floating_rules(self._limits.floating)),
        ]
        error = next(filter(None, errors), "")
        if error and error != self._error:
            LOG.error("QoS policies do not limit the guests of this host: %s", error)
        self._error = error

    def _load_table(self, table: Table, wanted: dict[str, _Rules]) -> str:
        name, loaded = qos_table(self._host), self._loaded[table]
        if loaded and nft.run(f"list map {table.family} {name} sent\n"):
            LOG.warning("The table %s %s is gone and loaded again", table.family, name)
            loaded = None
        if loaded == wanted:
            return ""
        error = nft.run(changes(table, name, loaded, wanted)) if loaded and wanted else "not loaded"
        error = error and nft.run(whole(table, name, wanted))
        self._loaded[table] = None if error else wanted
        return error


def port_rules(limits: Mapping[str, QosLimits]) -> dict[str, _Rules]:
    """Return the rules by tap device."""
    return dict(nft.usable("QoS limit of port", limits.items(), _of_port, lambda item: item[0]))


def floating_rules(limits: Mapping[str, QosLimits]) -> dict[str, _Rules]:
    """Return the rules by floating address. Marks are for ports only."""
    return dict(nft.usable("QoS limit of floating address", limits.items(), _of_address, lambda item: item[0]))


def _of_port(item: tuple[str, QosLimits]) -> tuple[str, _Rules]:
    port_id, limits = item
    marks: list[str] = []
    if limits.dscp is not None:
        if not 0 <= limits.dscp < 64:
            raise ValueError(f"DSCP mark {limits.dscp}")
        marks = [f"{family} dscp set {limits.dscp:d}" for family in ("ip", "ip6")]
    return nft.interface(tap_of(port_id)), ((*_limit(limits.egress), *marks), _limit(limits.ingress))


def _of_address(item: tuple[str, QosLimits]) -> tuple[str, _Rules]:
    address, limits = item
    return nft.address(ip.parse4(address)), (_limit(limits.egress), _limit(limits.ingress))


def _limit(limit: tuple[int, int] | None) -> tuple[str, ...]:
    if limit is None or limit[0] > _HIGHEST:
        return ()
    rate, burst = limit[0] * _BYTES, limit[1] * _BYTES
    if rate <= 0:
        raise ValueError(f"{limit[0]} kbit/s")
    more = min(max(burst - rate, _LEAST_BURST), _MOST_BURST)
    return (f"limit rate over {rate:d} bytes/second burst {more:d} bytes drop",)


def whole(table: Table, name: str, wanted: dict[str, _Rules]) -> str:
    """Return the nft commands that replace a table, or only remove it if there are no limits."""
    gone = f"add table {table.family} {name}\ndelete table {table.family} {name}\n"
    if not wanted:
        return gone
    maps = "".join(f"  map {side} {{ type {table.kind} : verdict; }}\n" for side in ("sent", "received"))
    return f"{gone}table {table.family} {name} {{\n{maps}{table.hooks}}}\n{changes(table, name, {}, wanted)}"


def changes(table: Table, name: str, before: dict[str, _Rules], wanted: dict[str, _Rules]) -> str:
    """Return the nft commands that change a loaded table."""
    lines = []
    for key in sorted(before.keys() | wanted.keys()):
        for side, old, new in zip(
            ("sent", "received"), before.get(key, ((), ())), wanted.get(key, ((), ())), strict=True
        ):
            chain = f"{side}_{nft.identifier(key.strip(chr(34)))}"
            if old and old != new:
                lines.append(f"delete element {table.family} {name} {side} {{ {key} }}\n")
                lines.append(f"delete chain {table.family} {name} {chain}\n")
            if new and old != new:
                body = "".join(f"    {rule}\n" for rule in new)
                lines.append(f"table {table.family} {name} {{\n  chain {chain} {{\n{body}  }}\n}}\n")
                lines.append(f"add element {table.family} {name} {side} {{ {key} : jump {chain} }}\n")
    return "".join(lines)
