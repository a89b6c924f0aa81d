"""The filter that the documentation shows works as it says."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.hardware import fitting
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import NUMACell
from nova_lite.scheduler import core

from .builders import host, spec

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "contributing/add-a-filter.md"


def test_filter_in_the_documentation_works() -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    names: dict[str, type] = {}
    exec(example[1], names)  # it is a page of ours
    quiet = names["QuietFilter"]()
    busy = host(1, instances=[f"old-{number}" for number in range(9)])
    places = core.select_destinations([busy], spec(1), [quiet], [], core.Options(), random.Random(1))
    assert [place.selected.host for place in places] == ["host1"]
    with pytest.raises(exceptions.NoValidHost, match=r"Of 1 host, 1 failed QuietFilter \(10 instances\)"):
        core.select_destinations([busy], spec(2), [quiet], [], core.Options(), random.Random(1))


def test_filters_page_quotes_the_reason_of_the_numa_filter() -> None:
    quote = re.search(
        r"It names what a host lacks: `([^`]+)`",
        " ".join((DOCS / "reference/filters-and-weighers.md").read_text().split()),
    )
    assert quote is not None
    request = NUMARequest(cells=(NUMACellRequest(0, (0, 1), 256),), dedicated=frozenset({0, 1}))
    cell = NUMACell(id=0, memory_mb=1024, shared_cpus="0", dedicated_cpus="1")
    with pytest.raises(fitting.FitError) as refusal:
        fitting.fit(request, [cell], {}, fitting.Ratios())
    assert str(refusal.value) == quote[1]
