"""Errors of configuration files as daemons print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite import conf as configuration


def test_line_that_cannot_be_parsed_is_named_without_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "conductor.conf"
    path.write_text("[database]\nconnection SECRETWORD\n")
    with pytest.raises(SystemExit) as stopped:
        configuration.load(["--config-file", str(path)], "nova-lite-conductor")
    said = f"{stopped.value.code}{capsys.readouterr().err}"
    assert f"{path}: line 2: No ':' or '=' found in assignment" in said
    assert "SECRETWORD" not in said
