"""The filter that the documentation shows works as it says."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.scheduler import core

from .builders import host, spec

PAGE = Path(__file__).resolve().parents[3] / "docs/contributing/add-a-filter.md"


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
