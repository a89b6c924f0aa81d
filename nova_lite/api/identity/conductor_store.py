"""The conductor as the store of the identity service's records, which are sealed in both directions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import get_admin_context
from nova_lite.objects import IdentityRecord, IdentityRecords
from nova_lite.rpcapi.conductor import ConductorRPC


class ConductorStore:
    """`nova_lite.api.identity.replica.Store` of an API daemon."""

    def __init__(self, conductor: Callable[[], ConductorRPC]) -> None:
        """Use the client that ``conductor`` returns. It is called with the first request, not before."""
        self._conductor = conductor
        self._private_key = sealing.new_private_key()
        self._public_key = sealing.public_key(self._private_key)
        self._receiver = ""

    def read(self, known: int) -> IdentityRecords:
        found = self._conductor().identity_read(get_admin_context(), known, self._public_key)
        self._receiver = found.public_key
        data = sealing.unseal(self._private_key, found.sealed) if found.sealed else b"[]"
        records = msgspec.json.decode(data, type=list[IdentityRecord])
        return IdentityRecords(version=found.version, complete=found.complete, records=records)

    def change(self, known: int | None, records: list[IdentityRecord]) -> int:
        if not self._receiver:
            raise exceptions.IdentityChanged()  # nothing was read yet
        sealed = sealing.seal(self._receiver, msgspec.json.encode(records))
        return self._conductor().identity_change(get_admin_context(), known, sealed)
