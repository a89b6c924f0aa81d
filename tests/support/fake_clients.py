"""What hand-made clients of a service are held to."""

from __future__ import annotations

import inspect
import typing
from typing import Any


def assert_same_signature(fake: Any, real: Any) -> None:
    """Same names, defaults and types; what a Protocol says besides (`rpc.Timeout`) does not count."""
    assert typing.get_type_hints(fake) == typing.get_type_hints(real)
    parameters = [inspect.signature(side).parameters.values() for side in (fake, real)]
    shapes = [[(each.name, each.default) for each in side] for side in parameters]
    assert shapes[0] == shapes[1]
