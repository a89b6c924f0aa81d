"""Packed uuids equal the uuids that they were made of."""

from __future__ import annotations

import sys
import uuid

import pytest

from nova_lite.scheduler import uuids

SOME = [str(uuid.UUID(int=number << 64 | number)) for number in (1, 2**63 + 5, 77)]


def test_packed_uuids_equal_the_originals() -> None:
    kept = uuids.packed(SOME)
    assert isinstance(kept, uuids.Uuids)
    assert [*kept] == SOME == [kept[number] for number in range(3)]
    assert (len(kept), kept[-1], kept[1:]) == (3, SOME[2], SOME[1:])
    assert SOME[1] in kept and str(uuid.uuid4()) not in kept
    assert set(kept).intersection(SOME[:1]) == set(SOME[:1])
    with pytest.raises(IndexError):
        kept[3]
    assert len(uuids.packed([])) == 0


def test_plus_returns_a_longer_sequence() -> None:
    kept = uuids.packed(SOME[:2])
    more = uuids.plus(kept, SOME[2])
    assert (more, isinstance(more, uuids.Uuids)) == (SOME, True)
    assert kept == SOME[:2], "the original is unchanged"
    assert uuids.plus(SOME[:2], SOME[2]) == SOME


def test_packed_uuids_compare_by_value() -> None:
    kept = uuids.packed(SOME)
    assert kept == uuids.packed(SOME) and kept == SOME and hash(kept) == hash(uuids.packed(SOME))
    assert kept != uuids.packed(SOME[::-1]) and kept != SOME[:2] and kept != "x"


@pytest.mark.parametrize("text", ["", "i1", SOME[0].upper().replace("1", "A"), SOME[0].replace("-", ""), SOME[0] + "0"])
def test_noncanonical_text_stays_a_string(text: str) -> None:
    assert uuids.packed([*SOME, text]) == [*SOME, text]
    assert uuids.plus(uuids.packed(SOME), text) == [*SOME, text]


def test_packed_uuids_take_little_memory() -> None:
    many = [str(uuid.uuid4()) for _ in range(1000)]
    kept = uuids.packed(many)
    assert isinstance(kept, uuids.Uuids)
    assert sys.getsizeof(kept) + sys.getsizeof(kept._packed) < 17 * 1000
    assert sys.getsizeof(many) + sum(map(sys.getsizeof, many)) > 80 * 1000
