"""Many uuids in little memory: 16 bytes each, where a list of strings takes more than a hundred."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

_BYTES = 16


class Uuids(Sequence[str]):
    """They stay as they are; `plus` makes others."""

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = packed

    def plus(self, uuid: str) -> Sequence[str]:
        """These and one more."""
        packed = _pack(uuid)
        return [*self, uuid] if packed is None else Uuids(self._packed + packed)

    def __len__(self) -> int:
        return len(self._packed) // _BYTES

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return list(self)[index]
        start = range(len(self))[index] * _BYTES
        return _text(self._packed[start : start + _BYTES])

    def __iter__(self) -> Iterator[str]:
        text = self._packed.hex()
        for start in range(0, len(text), 2 * _BYTES):
            yield _dashed(text[start : start + 2 * _BYTES])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Uuids):
            return self._packed == other._packed
        return list(self) == other if isinstance(other, list) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._packed)

    def __repr__(self) -> str:
        return f"Uuids({list(self)})"


def packed(texts: Iterable[str]) -> Sequence[str]:
    """The same ones, in the same order; as a list if one of them is not written as uuids are."""
    if isinstance(texts, Uuids):
        return texts
    texts = list(texts)
    parts = [_pack(each) for each in texts]
    known = [part for part in parts if part is not None]
    return Uuids(b"".join(known)) if len(known) == len(parts) else texts


def plus(uuids: Sequence[str], uuid: str) -> Sequence[str]:
    """``uuids`` and one more."""
    return uuids.plus(uuid) if isinstance(uuids, Uuids) else [*uuids, uuid]


def _pack(text: str) -> bytes | None:
    """None for what is not a uuid, or would be written in another way."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return raw if len(raw) == _BYTES and _text(raw) == text else None


def _text(raw: bytes) -> str:
    return _dashed(raw.hex())


def _dashed(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
