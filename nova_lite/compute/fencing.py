"""Fencing token store: which generations of each instance this host must never build again.

A message may arrive twice, late, or after the message that cancels it, and the daemon may be killed at any step. The
store makes all of that harmless. It has one small file per instance. Each change is synced to disk *before* a domain is
destroyed or a result is reported, and the store is checked right before a domain is created. Without it a guest can run
on two hosts, even if compute queries the conductor first. See docs/explanation/delivery-guarantees.md.

A record is removed when the conductor says that it is settled, never because of its age: clocks jump. Its promises then
become one number for the host, the settled action id. The host asks the conductor before it obeys a command of that
action or an earlier one for an instance that it does not know.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from nova_lite.base import exceptions, files
from nova_lite.compute.claims import Resources
from nova_lite.objects import BuildResult
from nova_lite.objects.ready import prepare_decoders

LOG = logging.getLogger(__name__)

NEVER = -1
SUFFIX = ".json"
IDENTITY = "identity"
SETTLED = "settled"


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a command, as `finish_action` reports it. ``answer``: data for later steps of the operation."""

    power_state: int | None = None
    error: str | None = None
    details: str = ""
    answer: dict[str, Any] | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one instance on this host.

    ``revoked_generation``: this generation and all lower ones are never built here again. ``failed_build``: the report
    of the build whose failure revoked it.

    ``created_generation``: a domain of this generation may exist here (written right before it is created).
    ``built_generation``: the build of this generation is complete. ``resources``: its claim. Removing the instance
    resets these three.

    ``held_generation``: a guest of this generation or a lower one must not start here, because its disks are being
    moved to another host.

    ``last_action_id`` and ``last_sequence``: action and sequence number of the newest command; it has finished if there
    is a ``result``. ``last_request_id``: the request that created that action. ``ids_reused``: the database has
    assigned ids again that were seen here.

    ``settled_action_id``: the host may have removed an earlier record of the instance, which knew actions up to this
    one.
    """

    uuid: str
    revoked_generation: int = msgspec.field(default=NEVER, name="fenced_generation")
    failed_build: BuildResult | None = msgspec.field(default=None, name="refused")
    created_generation: int = NEVER
    built_generation: int = NEVER
    resources: Resources | None = None
    held_generation: int = NEVER
    last_action_id: int = 0
    last_sequence: int = msgspec.field(default=0, name="last_position")
    last_request_id: str = ""
    ids_reused: bool = msgspec.field(default=False, name="ids_returned")
    result: ActionResult | None = None
    settled_action_id: int = 0

    def is_revoked(self, generation: int) -> bool:
        """Check whether this generation is revoked. A build that was complete before may still have its domain."""
        return generation <= self.revoked_generation and generation != self.built_generation

    @property
    def last_command(self) -> tuple[int, int]:
        return self.last_action_id, self.last_sequence

    def is_last_command(self, action_id: int, sequence: int, request_id: str) -> bool:
        """Check whether this command is the newest one, and not a different command with a reused id."""
        return self.last_command == (action_id, sequence) and self.last_request_id in ("", request_id)

    def is_in_order(self, action_id: int, sequence: int, request_id: str) -> bool:
        """Check by the ids alone whether a command is the newest one, or comes after it."""
        if action_id != self.last_action_id:
            return self.is_build_in_order(action_id) and not self.ids_reused
        return sequence >= self.last_sequence and self.last_request_id in ("", request_id)

    def is_build_in_order(self, action_id: int) -> bool:
        """Check by the id alone whether a build belongs to the newest action, or to a later one."""
        return action_id == self.last_action_id or action_id > max(self.last_action_id, self.settled_action_id)

    @property
    def may_have_domain(self) -> bool:
        """True if a domain of the instance may exist on this host."""
        return self.created_generation != NEVER or self.built_generation != NEVER


prepare_decoders(Record)


class FencingTokenStore:
    """Records of one host in ``directory``. Reads take no lock. Changes of one instance exclude each other.

    ``write(path, data)``: writes a record durably.
    """

    def __init__(self, directory: str, write: Callable[[str, bytes], None] = files.write_atomically) -> None:
        self._directory = files.private_directory(directory)
        self._write_file = write
        self._locks = [threading.Lock() for _ in range(64)]
        self._records: dict[str, Record] = {}
        self._settled_action_id = _read_settled(os.path.join(directory, SETTLED))
        self._load()

    def identity(self) -> str:
        """Return the id of this machine, which distinguishes it from another machine with the same host name.

        It is created once, and lost only together with the records.
        """
        path = os.path.join(self._directory, IDENTITY)
        try:
            with open(path, encoding="ascii") as file:
                return str(uuid.UUID(file.read().strip()))
        except FileNotFoundError:
            identity = str(uuid.uuid4())
            files.write_atomically(path, identity.encode())
            return identity
        except (OSError, ValueError) as error:
            raise exceptions.ConfigurationError(
                reason=f"The host's identity {path} cannot be read ({error}). Remove it, force the host down, and then "
                "unset forced down."
            ) from error

    # --- reads

    def get(self, instance_uuid: str) -> Record:
        """Return the record of an instance; an empty one if the instance is unknown."""
        return self._records.get(instance_uuid) or Record(uuid=instance_uuid, settled_action_id=self._settled_action_id)

    def check(self, instance_uuid: str, generation: int) -> None:
        """Raise `Fenced` if ``generation`` must not be built here (any more)."""
        fenced = self.get(instance_uuid).revoked_generation
        if generation <= fenced:
            raise exceptions.Fenced(instance_uuid=instance_uuid, generation=fenced)

    def resources(self) -> dict[str, Resources]:
        """Return the claims of complete builds, by instance uuid."""
        return {uuid: record.resources for uuid, record in list(self._records.items()) if record.resources is not None}

    # --- builds

    def revoke(self, instance_uuid: str, generation: int) -> None:
        """Revoke ``generation`` and all lower ones. On return the revocation is on disk."""
        with self._lock(instance_uuid):
            self._revoke(instance_uuid, generation)

    def revoke_unless_built(self, instance_uuid: str, generation: int) -> bool:
        """`revoke`, unless the build of exactly this generation is complete. Return whether it was revoked."""
        with self._lock(instance_uuid):
            if self.get(instance_uuid).built_generation == generation:
                return False
            self._revoke(instance_uuid, generation)
            return True

    def revoke_failed_build(self, result: BuildResult) -> None:
        """`revoke` the generation of a failed build, and store its report in case the build is requested again."""
        with self._lock(result.instance_uuid):
            record = self.get(result.instance_uuid)
            if result.generation >= record.revoked_generation:
                self._write(
                    record,
                    revoked_generation=result.generation,
                    failed_build=result,
                    built_generation=NEVER,
                    resources=None,
                )

    def revoke_failed_build_unless_created(self, result: BuildResult) -> BuildResult | None:
        """Do `revoke_failed_build`, unless a domain of the instance may exist here.

        For a build whose state cannot be determined now. Returns the report to send if this build is revoked, now or
        earlier.
        """
        with self._lock(result.instance_uuid):
            record = self.get(result.instance_uuid)
            if record.may_have_domain:
                return None
            if result.generation > record.revoked_generation:
                self._write(record, revoked_generation=result.generation, failed_build=result)
                return result
            refused = record.failed_build
            return refused if refused is not None and refused.generation == result.generation else None

    def revoke_unless_created(self, instance_uuid: str, generation: int) -> bool:
        """`revoke`, unless a domain of the instance may exist here. Return whether it was revoked."""
        with self._lock(instance_uuid):
            if self.get(instance_uuid).may_have_domain:
                return False
            self._revoke(instance_uuid, generation)
            return True

    def mark_creating(self, instance_uuid: str, generation: int) -> None:
        """Record that a domain may exist from now on. Call it right before the domain is created. Raises `Fenced`."""
        with self._lock(instance_uuid):
            self.check(instance_uuid, generation)
            self._write(self.get(instance_uuid), created_generation=generation)

    def mark_built(self, instance_uuid: str, generation: int, resources: Resources | None = None) -> None:
        """Record that the build is complete. Raise `Fenced` if its generation is revoked.

        A complete build can only be deleted, not fenced off.
        """
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.built_generation == generation:
                return
            self.check(instance_uuid, generation)
            self._write(record, built_generation=generation, resources=resources)

    def mark_removed(self, instance_uuid: str) -> None:
        """Record that nothing of the instance is left here."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.may_have_domain:
                self._write(
                    record, created_generation=NEVER, built_generation=NEVER, resources=None, held_generation=NEVER
                )

    def mark_restored(self, instance_uuid: str, generation: int, resources: Resources) -> None:
        """Record that the guest that was set aside becomes the instance again, although a later generation was revoked
        here.

        Call it before the guest is restored.
        """
        with self._lock(instance_uuid):
            self._write(
                self.get(instance_uuid),
                created_generation=generation,
                built_generation=generation,
                resources=resources,
            )

    def mark_resized(self, instance_uuid: str, resources: Resources) -> None:
        """Record what a guest holds that was resized in place."""
        with self._lock(instance_uuid):
            self._write(self.get(instance_uuid), resources=resources)

    def hold(self, instance_uuid: str, generation: int) -> None:
        """Prevent the start of a guest of ``generation`` or a lower one. On return that is on disk."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if generation > record.held_generation:
                self._write(record, held_generation=generation)

    def release_hold(self, instance_uuid: str) -> None:
        """Allow a held guest to start again."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.held_generation != NEVER:
                self._write(record, held_generation=NEVER)

    def check_not_held(self, instance_uuid: str, generation: int) -> None:
        """Raise `DomainHeld` for a guest whose disks are being moved to another host."""
        if generation <= self.get(instance_uuid).held_generation:
            raise exceptions.DomainHeld(instance_uuid=instance_uuid)

    # --- commands

    def admit(
        self,
        instance_uuid: str,
        action_id: int,
        revoke_generation: int | None = None,
        sequence: int = 0,
        request_id: str = "",
        is_open: bool = False,
    ) -> bool:
        """Record the arrival of a command. Return False if a newer command was seen: the caller drops this one.

        ``is_open`` accepts the command nevertheless: the conductor has confirmed that it waits for it. On True the
        arrival is on disk and, unless the command has finished already, ``revoke_generation`` is revoked.
        """
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            in_order = record.is_in_order(action_id, sequence, request_id)
            if not (in_order or is_open):
                return False
            is_last = record.is_last_command(action_id, sequence, request_id)
            if is_last and record.result is not None:
                return True
            fenced = max(record.revoked_generation, NEVER if revoke_generation is None else revoke_generation)
            if not is_last or fenced != record.revoked_generation:
                self._write(
                    record,
                    last_action_id=action_id,
                    last_sequence=sequence,
                    last_request_id=request_id,
                    ids_reused=record.ids_reused or not in_order,
                    result=None,
                    revoked_generation=fenced,
                )
            return True

    def record_result(
        self, instance_uuid: str, action_id: int, result: ActionResult, sequence: int = 0, request_id: str = ""
    ) -> None:
        """Record the result of a command on disk, before it is reported. Ignore an overtaken command."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.is_last_command(action_id, sequence, request_id):
                self._write(record, result=result)

    # --- maintenance

    def without_domain(self) -> list[Record]:
        """Return the records of instances that are not here. The conductor knows which of them are settled."""
        return [record for record in list(self._records.values()) if not record.may_have_domain]

    def prune(self, settled: Iterable[Record], last_action_id: int) -> int:
        """Remove these records, unless they have changed or their instance may be here. Return the number of removed
        ones.

        ``last_action_id``: no command for these instances had a higher id when the conductor called them settled. It
        is on disk before a record is removed.
        """
        pruned = 0
        self._raise_settled_action_id(last_action_id)
        for seen in settled:
            with self._lock(seen.uuid):
                if self._records.get(seen.uuid) is seen and not seen.may_have_domain:
                    files.remove(self._path(seen.uuid))
                    del self._records[seen.uuid]
                    pruned += 1
        return pruned

    def _raise_settled_action_id(self, action_id: int) -> None:
        if action_id > self._settled_action_id:
            files.write_atomically(os.path.join(self._directory, SETTLED), str(action_id).encode())
            self._settled_action_id = action_id

    def _revoke(self, instance_uuid: str, generation: int) -> None:
        record = self.get(instance_uuid)
        if generation > record.revoked_generation:
            self._write(record, revoked_generation=generation)

    def _lock(self, instance_uuid: str) -> threading.Lock:
        return self._locks[hash(instance_uuid) % len(self._locks)]

    def _path(self, instance_uuid: str) -> str:
        return os.path.join(self._directory, os.path.basename(instance_uuid) + SUFFIX)

    def _write(self, record: Record, **changes: Any) -> None:
        """Write a record and sync it. Without the sync, a power cut can destroy both the old and the new file."""
        record = msgspec.structs.replace(record, **changes)
        self._write_file(self._path(record.uuid), msgspec.json.encode(record))
        self._records[record.uuid] = record

    def _load(self) -> None:
        files.remove_unfinished(self._directory)
        for name in os.listdir(self._directory):
            if name.endswith(SUFFIX):
                record = _read(os.path.join(self._directory, name))
                self._records[record.uuid] = record
        LOG.debug("%d fencing records in %s", len(self._records), self._directory)


def _read(path: str) -> Record:
    """Read a record. A corrupt record is a lost revocation, so the daemon stops and the operator has to decide."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, ValueError) as error:  # text that is no UTF-8 is no error of msgspec
        raise exceptions.ConfigurationError(
            reason=f"The fencing record {path} cannot be read ({error}). Remove it if its instance has no domain here."
        ) from error


def _read_settled(path: str) -> int:
    """Read the settled action id; 0 if no record was ever removed."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise exceptions.ConfigurationError(
            reason=f"{path} cannot be read ({error}). Write the highest id of the table instance_actions into it."
        ) from error
