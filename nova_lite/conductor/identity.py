"""RPC methods about the records of the identity service: with passwords' hashes and keys of tokens, sealed."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database
from nova_lite.db.identity import identity_records
from nova_lite.objects import IdentityRecord, SealedIdentityRecords


class IdentityEndpoints:
    """The conductors share one private key, so each of them can open what the API seals to its public half."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._private_key = ""

    def identity_read(self, context: RequestContext, known: int, public_key: str) -> SealedIdentityRecords:
        found = self._db.read(identity_records.read, known)
        try:
            sealed = sealing.seal(public_key, msgspec.json.encode(found.records)) if found.records else ""
        except sealing.Unreadable as error:
            raise exceptions.InvalidInput(reason="public_key is not a public key.") from error
        own = sealing.public_key(self._own_key())
        return SealedIdentityRecords(version=found.version, complete=found.complete, sealed=sealed, public_key=own)

    def identity_change(self, context: RequestContext, known: int | None, sealed: str) -> int:
        try:
            data = sealing.unseal(self._own_key(), sealed)
        except sealing.Unreadable as error:
            self._private_key = ""  # another database may have taken the place of this one
            raise exceptions.IdentityChanged() from error
        return self._db.write(identity_records.change, known, msgspec.json.decode(data, type=list[IdentityRecord]))

    def _own_key(self) -> str:
        if not self._private_key:
            self._private_key = self._db.write(identity_records.private_key)
        return self._private_key
