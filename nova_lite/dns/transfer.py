"""Sends record sets to the operator's name server by dynamic updates (RFC 2136), signed with its key.

The name server has the zones: a user's own one, or one above it. So an operator makes one dynamic zone for the zones of
all users, and one for the addresses of each pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.tsigkeyring
import dns.update

from nova_lite.base import exceptions, key_files
from nova_lite.dns.objects import DELETE, RecordSet

#: Seconds to wait for a reply.
TIMEOUT = 5.0
#: Number of record sets in an update.
BATCH = 200

_KEY = re.compile(
    r'key\s+"?([A-Za-z0-9._-]+)"?\s*\{\s*algorithm\s+"?([A-Za-z0-9-]+)"?\s*;\s*secret\s+"([A-Za-z0-9+/=]+)"\s*;\s*\}\s*;'
)


class Unreachable(Exception):
    """The name server does not reply, so nothing else is sent now."""


class NameServer:
    """The operator's name server. ``key_file``: a key as ``tsig-keygen`` prints it; "": updates are not signed."""

    def __init__(self, address: str, port: int, key_file: str) -> None:
        self._at: dict[str, Any] = {"where": address, "port": port, "timeout": TIMEOUT}
        self._key = _read_key(key_file) if key_file else {}

    def zone_of(self, name: str) -> str | None:
        """Return the zone of the server that has this name. None: it has none, so that others answer for the name."""
        found = dns.name.from_text(name)
        while len(found) > 1:
            query = dns.message.make_query(found, dns.rdatatype.SOA)
            reply = self._send(query)
            if any(item.name == found and item.rdtype == dns.rdatatype.SOA for item in reply.answer):
                return found.to_text()
            found = found.parent()
        return None

    def update(self, zone: str, recordsets: Iterable[RecordSet]) -> str | None:
        """Let the server's zone have these record sets, all or none. Return why the server refuses them, if it does."""
        message = dns.update.UpdateMessage(zone)
        for item in recordsets:
            message.delete(item.name, item.type)
            if item.action != DELETE:
                message.add(item.name, item.zone_ttl if item.ttl is None else item.ttl, item.type, *item.records)
        code = self._send(message).rcode()
        return None if code == dns.rcode.NOERROR else dns.rcode.to_text(code)

    def _send(self, message: dns.message.Message) -> dns.message.Message:
        if self._key:
            message.use_tsig(**self._key)
        try:
            return dns.query.tcp(message, **self._at)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error


def _read_key(path: str) -> dict[str, Any]:
    """Return keyring, name and algorithm of the key. Raises `ConfigurationError`."""
    key_files.check(path, "[dns] key_file", hidden_from=0o007, chmod="0640")
    with open(path, encoding="utf-8") as file:
        found = _KEY.search(file.read())
    if found is None:
        raise exceptions.ConfigurationError(reason=f"[dns] key_file: {path} has no key as tsig-keygen prints it.")
    name, algorithm, secret = found.groups()
    return {"keyring": dns.tsigkeyring.from_text({name: secret}), "keyname": name, "algorithm": algorithm}
