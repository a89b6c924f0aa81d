"""Sets of CPUs in the notation of options, flavors and libvirt: ``0-3,^2,8``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from oslo_config import types

#: Highest CPU number. A longer range is a mistake that would only fill memory.
MAX_CPU = 65535

_PART = re.compile(r"(\^?)(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> frozenset[int]:
    """Parse ``0-3,^2,8``; a part that begins with ``^`` is excluded. Raises ValueError with a sentence."""
    within: set[int] = set()
    without: set[int] = set()
    for part in filter(None, (item.strip() for item in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is neither a CPU nor a range of CPUs")
        first, last = int(match[2]), int(match[3] or match[2])
        if first > last or last > MAX_CPU:
            raise ValueError(f"{part!r} is not a range of CPUs")
        (without if match[1] else within).update(range(first, last + 1))
    return frozenset(within - without)


class CpuSet(types.ConfigType):
    """Type of an option that holds a set of CPUs. The value stays text."""

    def __init__(self) -> None:
        super().__init__(type_name="set of CPUs")

    def __call__(self, value: str) -> str:
        parse(value)
        return value

    def __repr__(self) -> str:
        return "CpuSet"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def _formatter(self, value: str) -> str:
        return value


def show(cpus: Iterable[int]) -> str:
    """Return the shortest notation of the set, for example ``0-1,3``."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
