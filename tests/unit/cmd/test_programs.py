"""Causes that other programs print reach the operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd.manage import programs

UNREACHABLE = """Error: unable to perform an operation on node 'rabbit@c1'. Please see diagnostics information below.

Most common reasons for this are:

 * Target node is unreachable (e.g. due to hostname resolution, TCP connection or firewall issues)

DIAGNOSTICS
===========

attempted to contact: [rabbit@c1]

rabbit@c1:
  * connected to epmd (port 4369) on c1
  * suggestion: start the node

Current node details:
 * effective user's home directory: /var/lib/rabbitmq
 * Erlang cookie hash: vbDrgDtczGEs4ceP2DD8BA==
"""


def failed(directory: Path, errors: str, output: str = "") -> str:
    program = directory / "program"
    (directory / "errors").write_text(errors)
    (directory / "output").write_text(output)
    program.write_text(f"#!/bin/sh\ncat {directory}/errors >&2\ncat {directory}/output\nexit 64\n")
    program.chmod(0o755)
    with pytest.raises(exceptions.ConfigurationError) as caught:
        programs.run(str(program), seconds=10)
    return str(caught.value).partition(" failed: ")[2]


def test_cause_of_a_broker_that_is_not_reached_is_shown_in_one_line(tmp_path: Path) -> None:
    assert failed(tmp_path, UNREACHABLE) == (
        "Error: unable to perform an operation on node 'rabbit@c1'. Please see diagnostics information below. "
        "* connected to epmd (port 4369) on c1 * suggestion: start the node"
    )


@pytest.mark.parametrize(
    ("errors", "output", "cause"),
    [
        ('Error:\nUser "one" does not exist\n', "", 'Error: User "one" does not exist'),
        ("gpg: starting\ngpg: decryption failed: Bad session key\n", "", "gpg: decryption failed: Bad session key"),
        ("", "one\ntwo\n", "two"),
        ("\n", "", "status 64"),
    ],
)
def test_cause_of_a_program_that_fails_is_shown(tmp_path: Path, errors: str, output: str, cause: str) -> None:
    assert failed(tmp_path, errors, output) == cause
