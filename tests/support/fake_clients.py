"""Checks of hand-made clients against the protocol of their service."""

from __future__ import annotations

import inspect
import typing
from typing import Any


def assert_same_signature(fake: Any, real: Any) -> None:
    """Check that names, defaults and types agree. Markers of a protocol such as `rpc.Timeout` do not count."""
    assert typing.get_type_hints(fake) == typing.get_type_hints(real)
    parameters = [inspect.signature(side).parameters.values() for side in (fake, real)]
    shapes = [[(item.name, item.default) for item in side] for side in parameters]
    assert shapes[0] == shapes[1]
