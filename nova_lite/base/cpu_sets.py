"""Sets of CPUs as options, flavors and libvirt write them: ``0-3,^2,8``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from oslo_config import types

#: No machine has more CPUs; a longer range is a mistake that would only fill memory.
MAX_CPU = 65535

_PART = re.compile(r"(\^?)(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> frozenset[int]:
    """CPUs of ``0-3,^2,8``; a part that begins with ``^`` takes out. Raises ValueError with a sentence."""
    within: set[int] = set()
    without: set[int] = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is neither a CPU nor a range of CPUs")
        first, last = int(found[2]), int(found[3] or found[2])
        if first > last or last > MAX_CPU:
            raise ValueError(f"{part!r} is not a range of CPUs")
        (without if found[1] else within).update(range(first, last + 1))
    return frozenset(within - without)


class CpuSet(types.ConfigType):
    """The type of such an option: text, as it was written."""

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
    """``0-1,3``: as short as can be, and the same for the same CPUs."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
