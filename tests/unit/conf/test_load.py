"""Errors of configuration files as daemons print them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf


def test_line_that_cannot_be_parsed_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "conductor.conf"
    path.write_text("[database]\nconnection SECRETWORD\n")
    code = "import sys; from nova_lite import conf; conf.load(sys.argv[1:], 'nova-lite-conductor')"
    command = [sys.executable, "-W", "ignore", "-c", code, "--config-file", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"{path}: line 2: No ':' or '=' found in assignment" in ended.stderr
    assert "SECRETWORD" not in ended.stdout + ended.stderr


def test_wrong_value_is_named_with_its_group_and_file(tmp_path: Path) -> None:
    file = tmp_path / "conductor.conf"
    file.write_text("[host_health]\naction = panic\n")
    loaded = cfg.ConfigOpts()
    conf.register_opts(loaded)
    loaded(["--config-file", str(file)], project="nova-lite", default_config_files=[], default_config_dirs=[])
    with pytest.raises(ValueError, match="panic") as raised:
        conf.check(loaded)
    wanted = f"Value for option [host_health] action in {file} is not valid: "
    assert conf.described(raised.value).startswith(wanted)
