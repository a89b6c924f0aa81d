"""CPU topology of a guest: sockets, cores and threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.hardware.request import HardwareRequest

_NO_LIMIT = 65536
_PARTS = ("sockets", "cores", "threads")


class Topology(NamedTuple):
    """Sockets, cores of each socket, and threads of each core."""

    sockets: int
    cores: int = 1
    threads: int = 1


def choose(request: HardwareRequest, vcpus: int, strict: bool = True) -> Topology:
    """Return the topology of ``vcpus`` vCPUs that is within the limits and has most of the preferred numbers.

    Among several, prefer more sockets, then more cores. Raises `HardwareRefused` if the limits allow none, or if a
    preferred number is above its limit.
    """
    preferred = tuple(request.number(f"cpu_{part}") for part in _PARTS)
    limits = tuple(request.number(f"cpu_max_{part}") or _NO_LIMIT for part in _PARTS)
    if preferred == (None, None, None) and limits == (_NO_LIMIT,) * 3:
        return Topology(vcpus)
    for part, number, limit in zip(_PARTS, preferred, limits, strict=True):
        if strict and number is not None and number > limit:
            raise exceptions.HardwareRefused(reason=f"{number} CPU {part} are requested, and at most {limit} allowed.")
    possible = [
        topology
        for topology in _all(vcpus)
        if all(number <= limit for number, limit in zip(topology, limits, strict=True))
    ]
    if not possible:
        if not strict:
            return Topology(vcpus)
        allowed = " x ".join(f"{limit} {part}" for part, limit in zip(_PARTS, limits, strict=True) if limit < _NO_LIMIT)
        raise exceptions.HardwareRefused(reason=f"A guest cannot have {vcpus} vCPUs with at most {allowed}.")

    def rank(topology: Topology) -> tuple[int, int, int]:
        matches = sum(number == wish for number, wish in zip(topology, preferred, strict=True))
        return matches, topology.sockets, topology.cores

    return max(possible, key=rank)


def _all(vcpus: int) -> Iterator[Topology]:
    for sockets in _divisors(vcpus):
        for cores in _divisors(vcpus // sockets):
            yield Topology(sockets, cores, vcpus // sockets // cores)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
