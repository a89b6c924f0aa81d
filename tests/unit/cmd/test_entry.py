"""``nova-lite``: its commands, and what each loads."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from nova_lite.cmd import apply, entry
from tests.support.api_client import ROOT

SCRIPT = "import sys; from nova_lite.cmd import entry; entry.parser(); print(*sys.modules)"


def test_help_lists_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^    (\w+) ", shown, re.MULTILINE) == ["dev", "apply"]


def test_help_of_dev_has_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["dev", "--help"])
    assert ended.value.code == 0
    assert "--seed" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["aply"], ["apply"], ["apply", "-f", "a", "--file-of"]])
def test_wrong_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(arguments)
    assert ended.value.code == 2
    assert "usage: nova-lite" in capsys.readouterr().err


def test_unreadable_file_ends_apply_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["apply", "-f", "none.yaml"]) == apply.FAILED
    assert capsys.readouterr().err == (
        "nova-lite apply: none.yaml: the file cannot be read: No such file or directory.\n"
    )


def test_apply_loads_no_daemon_and_no_client_before_it_reads_its_file() -> None:
    loaded = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
    assert {"openstack", "eventlet", "oslo_messaging", "sqlalchemy", "nova_lite.cmd.dev"}.isdisjoint(loaded)


def test_page_lists_every_option() -> None:
    page = (ROOT / "docs/howto/describe-a-project.md").read_text()
    options = {name for action in apply.parser()._actions for name in action.option_strings if name[:2] == "--"}
    assert options - {"--help"} == set(re.findall(r"^\| (?:`-f`, )?`(--[a-z-]+)` \|", page, re.MULTILINE))
