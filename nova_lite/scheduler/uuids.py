"""Many uuids in little memory: 16 bytes each, while strings in a list take more than a hundred."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

_BYTES = 16


class Uuids(Sequence[str]):
    """Immutable sequence of uuids in packed form. `plus` returns a longer one."""

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = packed

    def plus(self, uuid: str) -> Sequence[str]:
        """Return these uuids and one more."""
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
    """Return the uuids in packed form, in the same order. Return a list if a text is not a canonical uuid."""
    if isinstance(texts, Uuids):
        return texts
    texts = list(texts)
    parts = [_pack(text) for text in texts]
    packed_texts = [part for part in parts if part is not None]
    return Uuids(b"".join(packed_texts)) if len(packed_texts) == len(parts) else texts


def plus(uuids: Sequence[str], uuid: str) -> Sequence[str]:
    """Return ``uuids`` and one more."""
    return uuids.plus(uuid) if isinstance(uuids, Uuids) else [*uuids, uuid]


def _pack(text: str) -> bytes | None:
    """Return the bytes of a uuid, or None if the text is not the canonical form of one."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return raw if len(raw) == _BYTES and _text(raw) == text else None


def _text(raw: bytes) -> str:
    return _dashed(raw.hex())


def _dashed(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
