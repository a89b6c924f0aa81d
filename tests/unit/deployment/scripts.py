"""Python scripts of devstack, loaded as modules."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

LIB = pathlib.Path(__file__).parents[3] / "devstack/lib"


def load(name: str) -> Any:
    """Load a script of devstack/lib, with its neighbours on the path."""
    spec = importlib.util.spec_from_file_location(f"devstack_{name}", LIB / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(LIB))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(LIB))
        sys.modules.pop("sessions", None)
    return module
