"""Wings of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite.compute import wings
from tests.support.api_client import make_conf


def test_wing_without_a_half_on_hosts_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(wings.plugins, "load", lambda *arguments: loaded.append(arguments) or [])
    conf = make_conf(tmp_path)
    conf.set_override("wings", ["dns"])
    assert wings.load(conf, "h1", None, None) == {}  # type: ignore[arg-type]
    assert loaded == [(wings.NAMESPACE, [], "[DEFAULT] wings")]
