"""The comparison of the client's commands with their table finds every deviation."""

from __future__ import annotations

import json

import pytest

from tests.integration.cloud.transcript import Client, Command, check, load


class Saying(Client):
    """A client with one fixed output for every command."""

    def __init__(self, output: str, status: int = 0) -> None:
        super().__init__([], {})
        self._answer = (status, output, "")

    def run(self, command: str, *more: str) -> tuple[int, str, str]:
        return self._answer


SHOWN = json.dumps({"id": "1", "name": "a", "description": None})
LISTED = '"ID","Name"\n"1","a"\n"2",""\n'


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (Command("x", show="id, name, (description)"), SHOWN),
        (Command("x", show="id, name, (description), [owner]"), SHOWN),
        (Command("x", list="ID, (Name)", rows="1, 2"), LISTED),
        (Command("x", list="ID, Name"), '"ID","Name"\n'),
        (Command("x", says="^a$"), "b\na\n"),
    ],
)
def test_transcript_without_deviations(command: Command, output: str) -> None:
    assert check(Saying(output), command) == []


@pytest.mark.parametrize(
    ("command", "output", "problem"),
    [
        (Command("x", show="id, name, description"), SHOWN, "nothing in column 'description'"),
        (Command("x", show="id, name"), SHOWN, "unexpected columns ['description']"),
        (Command("x", show="id, name, (description), owner"), SHOWN, "no column 'owner'"),
        (Command("x", list="ID, Name"), LISTED, "nothing in column 'Name'"),
        (Command("x", list="ID, (Name)", rows="1, 3"), LISTED, "no row ['3']"),
        (Command("x", says="^c$"), "a\n", "does not say '^c$': a\n"),
        (Command("x", status=1), "a\n", "status 0, not 1: a\n"),
    ],
)
def test_transcript_with_deviations(command: Command, output: str, problem: str) -> None:
    assert check(Saying(output), command) == [problem]


def test_the_table_can_be_read() -> None:
    commands, clean = load()
    assert len(commands) > 80
    assert clean
