"""How many sockets, cores and threads a guest's vCPUs are shown as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.hardware.request import HardwareRequest

_NO_LIMIT = 65536
_PARTS = ("sockets", "cores", "threads")


class Topology(NamedTuple):
    sockets: int
    cores: int = 1
    threads: int = 1


def choose(asked: HardwareRequest, vcpus: int, strict: bool = True) -> Topology:
    """Of all that make ``vcpus`` and stay below the limits, the one that meets most of the wishes; of several, that
    with most sockets, then cores. Raises `HardwareRefused` where limits leave none, or a wish is above its limit."""
    wishes = tuple(asked.number(f"cpu_{part}") for part in _PARTS)
    limits = tuple(asked.number(f"cpu_max_{part}") or _NO_LIMIT for part in _PARTS)
    if wishes == (None, None, None) and limits == (_NO_LIMIT,) * 3:
        return Topology(vcpus)
    for part, wish, limit in zip(_PARTS, wishes, limits, strict=True):
        if strict and wish is not None and wish > limit:
            raise exceptions.HardwareRefused(
                reason=f"{wish} CPU {part} are asked for, and at most {limit} are allowed."
            )
    possible = [each for each in _all(vcpus) if all(have <= limit for have, limit in zip(each, limits, strict=True))]
    if not possible:
        if not strict:
            return Topology(vcpus)
        says = " x ".join(f"{limit} {part}" for part, limit in zip(_PARTS, limits, strict=True) if limit < _NO_LIMIT)
        raise exceptions.HardwareRefused(reason=f"{vcpus} vCPUs cannot be had with at most {says}.")
    return max(
        possible,
        key=lambda each: (sum(have == wish for have, wish in zip(each, wishes, strict=True)), each.sockets, each.cores),
    )


def _all(vcpus: int) -> Iterator[Topology]:
    for sockets in _divisors(vcpus):
        for cores in _divisors(vcpus // sockets):
            yield Topology(sockets, cores, vcpus // sockets // cores)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
