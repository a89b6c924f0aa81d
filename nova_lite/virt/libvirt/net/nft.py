"""Execution of nft, which loads packet filters, and the words of its language.

Texts for nft contain no text of users or of other daemons: only numbers, and words that these functions return.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import subprocess
from collections.abc import Callable, Iterable
from typing import TypeVar

from nova_lite.base import exceptions, ip, metrics
from nova_lite.virt.libvirt.net import namespaces

LOG = logging.getLogger(__name__)

Item = TypeVar("Item")
Part = TypeVar("Part")

#: Names of interfaces that this daemon accepts: letters, digits and ``_.-``, at most 15, as the kernel limits them.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_MAC_ADDRESS = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
#: The kernel limits names of tables, chains and sets to 255 characters. Each has a prefix, and up to three ids.
_MAX_NAME, _MAX_ID = 200, 70
_ID = re.compile(rf"[A-Za-z0-9-]{{1,{_MAX_ID}}}")


def address(value: ip.Address) -> str:
    """Return an address, made from its number."""
    kind = ipaddress.IPv4Address if value.version == 4 else ipaddress.IPv6Address
    return str(kind(int(value)))


def network(value: ip.Network) -> str:
    """Return a network, made from its numbers."""
    return f"{address(value.network_address)}/{value.prefixlen:d}"


def interface(name: str) -> str:
    """Return the quoted name of an interface. Raises ValueError for a name that the kernel or nft may refuse."""
    if not _INTERFACE.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an interface")
    return f'"{name}"'


def mac(text: str) -> str:
    """Return a MAC address in lower case. Raises ValueError."""
    if not _MAC_ADDRESS.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address")
    return text.lower()


def identifier(name: str) -> str:
    """Return an id as a part of nft's names: letters, digits and underscores. Different ids stay different."""
    return name.replace("-", "_") if _ID.fullmatch(name) else _hash(name)


def table(prefix: str, name: str) -> str:
    """Return the name of a table for the host or network ``name``."""
    plain = re.sub("[^A-Za-z0-9]", "_", name)
    return prefix + (plain if len(plain) <= _MAX_NAME else _hash(name))


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


#: Invalid items that were reported already. Each is reported once.
_reported: set[tuple[str, str]] = set()


def usable(kind: str, items: Iterable[Item], make: Callable[[Item], Part], name: Callable[[Item], str]) -> list[Part]:
    """Return ``make(item)`` of each item. Leave out and report items for which it raises ValueError."""
    parts = []
    for item in items:
        try:
            parts.append(make(item))
        except ValueError as error:
            if (kind, name(item)) not in _reported:
                _reported.add((kind, name(item)))
                metrics.FILTERS_SKIPPED.labels(kind).inc()
                LOG.error("The %s %s is invalid and left out of this host's networks: %s", kind, name(item), error)
    return parts


def run(text: str, namespace: str | None = None) -> str:
    """Execute the commands in one kernel transaction. Return nft's error message, empty on success.

    ``namespace``: network namespace whose filters they change; None: the host's own.
    """
    enter = () if namespace is None else namespaces.inside(namespace)
    try:
        result = subprocess.run([*enter, "nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"nft cannot be run: {error.strerror}"
    return f"nft: {' '.join(result.stderr.split())}" if result.returncode else ""


def apply(text: str, namespace: str | None = None) -> None:
    """Execute the commands, if any. Raises `VirtDriverError`."""
    if text and (error := run(text, namespace)):
        raise exceptions.VirtDriverError(reason=f"the packet filters of this host cannot be loaded: {error}")
