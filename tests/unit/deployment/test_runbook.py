"""docs/howto/troubleshoot.md names what there is: metrics, lines of logs, options, commands of ours."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import oslo_messaging
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import metrics
from nova_lite.cmd import manage

TOP = Path(__file__).resolve().parents[3]
TEXT = (TOP / "docs" / "howto" / "troubleshoot.md").read_text()
LINES = re.findall(r"^- Log \(.*?\): `(.*)`$", TEXT, re.MULTILINE)
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
SYMPTOMS = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)


def strings() -> set[str]:
    """Every string in our programs, and in the library that talks to the broker, as it is when it is put together."""
    driver = Path(oslo_messaging.__file__).parent / "_drivers" / "impl_rabbit.py"
    found = set()
    for path in (*TOP.glob("nova_lite/**/*.py"), driver):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "%s" for part in node.values)
                found.add("".join(map(str, parts)))
    return found


STRINGS = {re.sub(r"%(\(\w+\))?[\d.]*[a-z]", "…", text).strip() for text in strings()}


def test_all_symptoms_are_there() -> None:
    for word in ("broker", "database", "lost", "back", "disk", "clock", "more to do", "stuck"):
        assert any(word in symptom for symptom in SYMPTOMS), word


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_log_is_written_by_somebody(line: str) -> None:
    assert line in STRINGS


def test_metrics_that_are_named_are_there() -> None:
    named = set(re.findall(r"nova_lite_[a-z_]+", TEXT))
    assert len(named) > 20
    assert named <= metrics.DAEMONS_OF.keys()


def test_options_that_are_named_are_there() -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    named = re.findall(r"`\[(\w+)\] (\w+)`", TEXT)
    assert len(named) >= 5
    for group, option in named:
        getattr(conf if group == "DEFAULT" else conf[group], option)


@pytest.mark.parametrize("command", [item for item in COMMANDS if item.startswith("nova-lite-manage")])
def test_our_commands_are_understood(command: str) -> None:
    manage.parser().parse_args(shlex.split(command)[1:])


def test_other_commands_are_those_that_were_tried() -> None:
    programs = {shlex.split(command)[0] for command in COMMANDS}
    assert programs == {
        "nova-lite-manage",
        "openstack",
        "curl",
        "journalctl",
        "df",
        "date",
        "rabbitmqctl",
        "rabbitmq-diagnostics",
    }
