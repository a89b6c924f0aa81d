"""Fences: what this host has promised about each instance, one small file on disk each.

A message may come twice, late, or after the one that cancels it; the daemon may be killed at any step. What makes all
of that harmless is this record (docs/explanation/delivery-guarantees.md): it is synced to disk *before* anything is
destroyed or reported, and asked right before a domain comes to exist. Without it a guest can run on two hosts, even
when compute asks the conductor first.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from typing import Any

import msgspec

from nova_lite.base import exceptions, failpoints, files
from nova_lite.compute.claims import Resources
from nova_lite.objects import BuildResult
from nova_lite.objects.ready import make_ready

LOG = logging.getLogger(__name__)

#: Records without a domain are forgotten after so many seconds: no message is ever that late.
RETENTION = 7 * 24 * 3600

NEVER = -1
SUFFIX = ".json"
IDENTITY = "identity"


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How an order ended: what `finish_action` reports. ``answer``: what it gave besides, for later steps."""

    power_state: int | None = None
    error: str | None = None
    details: str = ""
    answer: dict[str, Any] | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that this host remembers of one instance.

    ``fenced_generation``: it and any lower one is never built here again. ``refused``: the report that went with it,
    if a build failed here.

    ``created_generation``: a domain of it may be here (written right before one is made); ``built_generation``: its
    build was completed; ``resources``: what it holds. These three end with the removal.

    ``held_generation``: a guest of it or a lower one may not run here now: its disks are on their way elsewhere.

    ``last_action_id`` and ``last_position``: the newest order seen, by its action and its place in that, finished if
    there is a ``result``; ``last_request_id``: of the request that made that action. ``ids_returned``: the database has
    given ids again that were seen here. ``updated_at``: seconds since the epoch.
    """

    uuid: str
    fenced_generation: int = NEVER
    refused: BuildResult | None = None
    created_generation: int = NEVER
    built_generation: int = NEVER
    resources: Resources | None = None
    held_generation: int = NEVER
    last_action_id: int = 0
    last_position: int = 0
    last_request_id: str = ""
    ids_returned: bool = False
    result: ActionResult | None = None
    updated_at: float = 0.0

    def forbids(self, generation: int) -> bool:
        """This generation was given up on; one that had been completed before can still have its domain."""
        return generation <= self.fenced_generation and generation != self.built_generation

    @property
    def last_order(self) -> tuple[int, int]:
        return self.last_action_id, self.last_position

    def is_last(self, action_id: int, position: int, request_id: str) -> bool:
        """Whether the newest order is this one, and not another one of its id."""
        return self.last_order == (action_id, position) and self.last_request_id in ("", request_id)

    def is_in_order(self, action_id: int, position: int, request_id: str) -> bool:
        """Whether the ids alone say that an order comes after the newest one that was seen, or is that one."""
        if action_id != self.last_action_id:
            return action_id > self.last_action_id and not self.ids_returned
        return position >= self.last_position and self.last_request_id in ("", request_id)

    @property
    def is_here(self) -> bool:
        """Whether a domain of the instance may be on this host."""
        return self.created_generation != NEVER or self.built_generation != NEVER


make_ready(Record)


class FencingTokenStore:
    """Records of one host in ``directory``. Reads take no lock; changes of one instance exclude each other."""

    def __init__(self, directory: str) -> None:
        self._directory = files.private_directory(directory)
        self._locks = [threading.Lock() for _ in range(64)]
        self._records: dict[str, Record] = {}
        self._load()

    def identity(self) -> str:
        """What tells this host from another machine of its name: made once, and lost only with the promises."""
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
                reason=f"The host's identity {path} cannot be read ({error}). Remove it, force the host down and take "
                "that back."
            ) from error

    # --- asking

    def get(self, instance_uuid: str) -> Record:
        """The record of an instance; an empty one if nothing is known of it."""
        return self._records.get(instance_uuid) or Record(uuid=instance_uuid)

    def check(self, instance_uuid: str, generation: int) -> None:
        """Raises `Fenced` if ``generation`` may not be built here (any more)."""
        fenced = self.get(instance_uuid).fenced_generation
        if generation <= fenced:
            raise exceptions.Fenced(instance_uuid=instance_uuid, generation=fenced)

    def resources(self) -> dict[str, Resources]:
        """What completed builds hold, by instance uuid."""
        return {uuid: record.resources for uuid, record in list(self._records.items()) if record.resources is not None}

    # --- builds

    def forbid(self, instance_uuid: str, generation: int) -> None:
        """Promise never to build ``generation`` or a lower one; on return the promise is on disk."""
        with self._lock(instance_uuid):
            self._forbid(instance_uuid, generation)

    def forbid_unless_built(self, instance_uuid: str, generation: int) -> bool:
        """`forbid`, unless the build of just this generation is complete. Returns whether it was forbidden."""
        with self._lock(instance_uuid):
            if self.get(instance_uuid).built_generation == generation:
                return False
            self._forbid(instance_uuid, generation)
            return True

    def refuse(self, result: BuildResult) -> None:
        """`forbid` the generation of a failed build, and remember its report for when it is asked for again."""
        with self._lock(result.instance_uuid):
            record = self.get(result.instance_uuid)
            if result.generation >= record.fenced_generation:
                self._write(
                    record,
                    fenced_generation=result.generation,
                    refused=result,
                    built_generation=NEVER,
                    resources=None,
                )

    def refuse_unless_made(self, result: BuildResult) -> BuildResult | None:
        """`refuse` a build that nobody can look after now, unless something of the instance may be here. Returns the
        report to make, if it is refused, now or before."""
        with self._lock(result.instance_uuid):
            record = self.get(result.instance_uuid)
            if record.is_here:
                return None
            if result.generation > record.fenced_generation:
                self._write(record, fenced_generation=result.generation, refused=result)
                return result
            refused = record.refused
            return refused if refused is not None and refused.generation == result.generation else None

    def forbid_unless_made(self, instance_uuid: str, generation: int) -> bool:
        """`forbid`, unless something of the instance may be here. Returns whether it was forbidden."""
        with self._lock(instance_uuid):
            if self.get(instance_uuid).is_here:
                return False
            self._forbid(instance_uuid, generation)
            return True

    def creating(self, instance_uuid: str, generation: int) -> None:
        """Right before a domain comes to exist: raises `Fenced`, or notes on disk that one may be here from now on."""
        with self._lock(instance_uuid):
            self.check(instance_uuid, generation)
            self._write(self.get(instance_uuid), created_generation=generation)

    def built(self, instance_uuid: str, generation: int, resources: Resources | None = None) -> None:
        """The build is complete: from here on it is not fenced off, only deleted. Raises `Fenced` if it was before."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.built_generation == generation:
                return
            self.check(instance_uuid, generation)
            self._write(record, built_generation=generation, resources=resources)

    def removed(self, instance_uuid: str) -> None:
        """Nothing of the instance is here any more."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.is_here:
                self._write(
                    record, created_generation=NEVER, built_generation=NEVER, resources=None, held_generation=NEVER
                )

    def restored(self, instance_uuid: str, generation: int, resources: Resources) -> None:
        """What was set aside here, and is complete, is to be the instance again, though a later generation was given
        up here; written before it is taken back."""
        with self._lock(instance_uuid):
            self._write(
                self.get(instance_uuid),
                created_generation=generation,
                built_generation=generation,
                resources=resources,
            )

    def hold(self, instance_uuid: str, generation: int) -> None:
        """From here on no guest of ``generation`` or a lower one is started here; on return that is on disk."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if generation > record.held_generation:
                self._write(record, held_generation=generation)

    def let_go(self, instance_uuid: str) -> None:
        """What was held back may run again."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.held_generation != NEVER:
                self._write(record, held_generation=NEVER)

    def check_not_held(self, instance_uuid: str, generation: int) -> None:
        """Raises `DomainHeld` for a guest whose disks are on their way elsewhere."""
        if generation <= self.get(instance_uuid).held_generation:
            raise exceptions.DomainHeld(instance_uuid=instance_uuid)

    # --- actions

    def admit(
        self,
        instance_uuid: str,
        action_id: int,
        forbid_generation: int | None = None,
        position: int = 0,
        request_id: str = "",
        is_open: bool = False,
    ) -> bool:
        """Note that an order came. False: a newer one was seen, drop it, unless the conductor says that it ``is_open``.

        True: it is on disk that it was seen and, unless it is finished, that ``forbid_generation`` is fenced.
        """
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            in_order = record.is_in_order(action_id, position, request_id)
            if not (in_order or is_open):
                return False
            is_last = record.is_last(action_id, position, request_id)
            if is_last and record.result is not None:
                return True
            fenced = max(record.fenced_generation, NEVER if forbid_generation is None else forbid_generation)
            if not is_last or fenced != record.fenced_generation:
                self._write(
                    record,
                    last_action_id=action_id,
                    last_position=position,
                    last_request_id=request_id,
                    ids_returned=record.ids_returned or not in_order,
                    result=None,
                    fenced_generation=fenced,
                )
            return True

    def done(
        self, instance_uuid: str, action_id: int, result: ActionResult, position: int = 0, request_id: str = ""
    ) -> None:
        """The order is finished; the result is on disk before it is reported. Late ones are not noted."""
        with self._lock(instance_uuid):
            record = self.get(instance_uuid)
            if record.is_last(action_id, position, request_id):
                self._write(record, result=result)

    # --- upkeep

    def prune(self, before: float | None = None) -> int:
        """Forget records of instances that are not here, last changed before ``before`` (seconds since the epoch;
        None: `RETENTION` ago). Returns how many."""
        limit = time.time() - RETENTION if before is None else before
        pruned = 0
        for instance_uuid in list(self._records):
            with self._lock(instance_uuid):
                record = self.get(instance_uuid)
                if not record.is_here and record.updated_at < limit:
                    files.remove(self._path(instance_uuid))
                    self._records.pop(instance_uuid, None)
                    pruned += 1
        return pruned

    def _forbid(self, instance_uuid: str, generation: int) -> None:
        record = self.get(instance_uuid)
        if generation > record.fenced_generation:
            self._write(record, fenced_generation=generation)

    def _lock(self, instance_uuid: str) -> threading.Lock:
        return self._locks[hash(instance_uuid) % len(self._locks)]

    def _path(self, instance_uuid: str) -> str:
        return os.path.join(self._directory, os.path.basename(instance_uuid) + SUFFIX)

    def _write(self, record: Record, **changes: Any) -> None:
        """Always synced: an unsynced file renamed over a synced one can leave neither after a power cut."""
        record = msgspec.structs.replace(record, updated_at=time.time(), **changes)
        failpoints.reach("fence", "before")
        failpoints.check_disk()
        files.write_atomically(self._path(record.uuid), msgspec.json.encode(record))
        failpoints.reach("fence", "after")
        self._records[record.uuid] = record

    def _load(self) -> None:
        files.remove_unfinished(self._directory)
        for name in os.listdir(self._directory):
            if name.endswith(SUFFIX):
                record = _read(os.path.join(self._directory, name))
                self._records[record.uuid] = record
        LOG.debug("%d fence records in %s", len(self._records), self._directory)


def _read(path: str) -> Record:
    """A record that cannot be read is a promise that nobody knows any more: the operator has to look."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise exceptions.ConfigurationError(
            reason=f"The fence record {path} cannot be read ({error}). Remove it if its instance has no domain here."
        ) from error
