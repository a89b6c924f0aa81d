from __future__ import annotations

from tests.functional.conftest import broker

__all__ = ["broker"]
