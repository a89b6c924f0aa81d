"""Sets of CPUs as text."""

from __future__ import annotations

import pytest

from nova_lite.base import cpu_sets


@pytest.mark.parametrize(
    ("text", "cpus", "shown"),
    [
        ("0-3,^2,8", {0, 1, 3, 8}, "0-1,3,8"),
        (" 4 , 1-2 ", {1, 2, 4}, "1-2,4"),
        ("^1,0-2", {0, 2}, "0,2"),
        ("", set(), ""),
        ("7-7", {7}, "7"),
    ],
)
def test_cpu_set_is_parsed_and_shown(text: str, cpus: set[int], shown: str) -> None:
    assert cpu_sets.parse(text) == cpus
    assert cpu_sets.show(cpus) == shown
    assert cpu_sets.parse(shown) == cpus


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-1", "0-999999", "0:3", "²"])
def test_cpu_set_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        cpu_sets.parse(text)
