"""Privileges of the small os-brick, which needs none."""

from __future__ import annotations

import types

default = types.SimpleNamespace(set_client_mode=lambda mode: None)
