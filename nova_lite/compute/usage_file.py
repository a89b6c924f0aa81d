"""Ring buffers of the use of a host and its servers, in one file of bounded size.

The file is a table of records of 32 bytes. Its first row names the owner of each column. Then each span has a ring of
rows, one for each of its steps. A step is written into one place for all servers, so it costs a few pages of the disk,
which the kernel writes when it likes: nothing is synced. The checksum of a record begins with its owner, so a record
that a power cut has damaged, or that an earlier owner of the column has left, counts as none.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping

import msgspec

from nova_lite.base import files, threads
from nova_lite.objects import USAGE_SPANS, UsageHistory, UsageSample

#: Owner of the column of the host itself.
HOST = str(uuid.UUID(int=0))

#: Columns of the table: the host, and its servers that were measured last.
COLUMNS = 1024
RECORD = 32
#: Owner (uuid, the last step of 30 seconds in which it was measured) and sample (step, six values), with a checksum.
_OWNER, _SAMPLE, _SUM = struct.Struct("<16sI8x"), struct.Struct("<I6f"), struct.Struct("<I")
#: Start of all checksums. Change it with the layout.
_LAYOUT = zlib.crc32(b"nova-lite usage 1")
_FIELDS = UsageSample.__struct_fields__
_ROW = COLUMNS * RECORD
_SPANS = list(USAGE_SPANS)
_STEP = USAGE_SPANS["hour"][0]
_WEEK = USAGE_SPANS["week"][0] * USAGE_SPANS["week"][1] // _STEP


class UsageFile:
    """Samples by owner, in the file ``path``. Steps have the number of their length since 1970."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threads.Lock()
        files.private_directory(os.path.dirname(path))
        with open(path, "a+b", buffering=0, opener=files.private_opener) as file:
            row = os.pread(file.fileno(), _ROW, 0)
        #: Owner of each column, and the last step in which it was measured.
        self._owners: list[tuple[bytes, int] | None] = [_owner(record) for record in _records(row)]

    def write(self, number: int, samples: Mapping[str, UsageSample]) -> None:
        """Write the samples of a step of the span of an hour, and the means in those of the longer spans."""
        with self._lock, open(self._path, "r+b", buffering=0, opener=files.private_opener) as file:
            descriptor = file.fileno()
            columns = self._assign(number, samples)
            owners = self._owners
            table = b"".join(bytes(RECORD) if owner is None else _signed(_OWNER.pack(*owner)) for owner in owners)
            os.pwrite(descriptor, table, 0)
            row = bytearray(len(owners) * RECORD)
            for owner, column in columns.items():
                _put(row, column, number, samples[owner], self._owners)
            os.pwrite(descriptor, row, _place("hour", number))
            for finer, span in itertools.pairwise(_SPANS):
                os.pwrite(descriptor, *self._means(descriptor, finer, span, number))

    def read(self, owner: str, span: str, number: int) -> UsageHistory:
        """Return the history of an owner up to the step ``number`` of the span of an hour, which is the last one."""
        step, count = USAGE_SPANS[span]
        last = number * _STEP // step
        key = uuid.UUID(owner).bytes
        with self._lock:
            column = next((index for index, held in enumerate(self._owners) if held and held[0] == key), None)
        samples: list[UsageSample | None] = [None] * count
        if column is not None:
            with open(self._path, "rb", buffering=0) as file:
                for index in range(count):
                    wanted = last - count + 1 + index
                    record = os.pread(file.fileno(), RECORD, _place(span, wanted) + column * RECORD)
                    samples[index] = _sample(record, wanted, key)
        return UsageHistory(start=(last - count + 1) * step, step=step, samples=samples)

    def _assign(self, number: int, samples: Mapping[str, UsageSample]) -> dict[str, int]:
        """Return the column of each owner. Owners beyond the number of columns have none."""
        held = {owner[0]: column for column, owner in enumerate(self._owners) if owner is not None}
        keys = {owner: uuid.UUID(owner).bytes for owner in samples}
        found = {owner: held[key] for owner, key in keys.items() if key in held}
        taken = set(found.values())
        missing = [owner for owner in samples if owner not in found]
        order = iter(self._reusable(number, taken) if missing else ())
        for owner, column in zip(missing, order, strict=False):
            found[owner] = column
            if column == len(self._owners):
                self._owners.append(None)
        for owner, column in found.items():
            self._owners[column] = (keys[owner], number)
        return found

    def _reusable(self, number: int, taken: set[int]) -> Iterator[int]:
        """Yield columns for new owners: of owners without a sample in the last week, new ones, then the oldest."""
        others = [
            (owner[1] if owner else -_WEEK, column) for column, owner in enumerate(self._owners) if column not in taken
        ]
        others.sort()
        expired = [column for last, column in others if last <= number - _WEEK]
        yield from expired
        yield from range(len(self._owners), COLUMNS)
        yield from (column for _, column in others[len(expired) :])

    def _means(self, descriptor: int, finer: str, span: str, number: int) -> tuple[bytearray, int]:
        """Return the row of a longer span in which a step lies, and its place: the means of the rows of ``finer``."""
        step, finer_step = USAGE_SPANS[span][0], USAGE_SPANS[finer][0]
        wanted, owners = number * _STEP // step, self._owners
        rows = []
        for part in range(wanted * step // finer_step, number * _STEP // finer_step + 1):
            rows.append((part, list(_records(os.pread(descriptor, len(owners) * RECORD, _place(finer, part))))))
        row = bytearray(len(owners) * RECORD)
        for column, owner in enumerate(owners):
            if owner is None:
                continue
            found = [_sample(records[column], part, owner[0]) for part, records in rows if column < len(records)]
            parts = [sample for sample in found if sample is not None]
            if parts:
                _put(row, column, wanted, _mean(parts), owners)
        return row, _place(span, wanted)


def _place(span: str, number: int) -> int:
    """Return where the row of a step begins."""
    before = sum(USAGE_SPANS[name][1] for name in _SPANS[: _SPANS.index(span)])
    return (1 + before + number % USAGE_SPANS[span][1]) * _ROW


def _records(row: bytes) -> Iterator[bytes]:
    return (row[start : start + RECORD] for start in range(0, len(row) // RECORD * RECORD, RECORD))


def _signed(content: bytes, owner: bytes = b"") -> bytes:
    return content + _SUM.pack(zlib.crc32(content, zlib.crc32(owner, _LAYOUT)))


def _owner(record: bytes) -> tuple[bytes, int] | None:
    """Return the owner and its last step. None: the column is free, or the record is damaged."""
    if record != _signed(record[: _OWNER.size]):
        return None
    key, last = _OWNER.unpack_from(record)
    return key, last


def _put(row: bytearray, column: int, number: int, sample: UsageSample, owners: list[tuple[bytes, int] | None]) -> None:
    owner = owners[column]
    assert owner is not None
    values = [math.nan if value is None else value for value in msgspec.structs.astuple(sample)]
    row[column * RECORD : (column + 1) * RECORD] = _signed(_SAMPLE.pack(number, *values), owner[0])


def _sample(record: bytes, number: int, owner: bytes) -> UsageSample | None:
    """Return a record of this step and owner, or None."""
    if record != _signed(record[: _SAMPLE.size], owner):
        return None
    found, *values = _SAMPLE.unpack_from(record)
    if found != number:
        return None
    return UsageSample(
        **{name: None if math.isnan(value) else value for name, value in zip(_FIELDS, values, strict=True)}
    )


def _mean(samples: list[UsageSample]) -> UsageSample:
    """Return the mean of each value over the samples that have it."""
    found = {}
    for name in _FIELDS:
        known = [value for sample in samples if (value := getattr(sample, name)) is not None]
        found[name] = sum(known) / len(known) if known else None
    return UsageSample(**found)
