"""Run the commands of transcript.yaml by the command line client, and compare what it prints with what is there."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.support.waiting import polls

HERE = Path(__file__).parent
TABLE = HERE / "transcript.yaml"
PATIENCE = 300.0
EMPTY = ("", None, "None")
MAY_BE_EMPTY, MAY_BE_MISSING = "(", "["


@dataclasses.dataclass(frozen=True)
class Command:
    """An entry of the table, whose first lines define the fields."""

    run: str
    list: str = ""
    show: str = ""
    rows: str = ""
    status: int = 0
    says: str = ""
    wait: bool = False
    keep: str = ""
    hosts: int = 1

    @property
    def columns(self) -> dict[str, str]:
        names = [name.strip() for name in (self.list or self.show).split(",") if name.strip()]
        return {name.strip("()[]"): name[0] if name[0] in (MAY_BE_EMPTY, MAY_BE_MISSING) else "" for name in names}


def load() -> tuple[list[Command], list[str]]:
    """Return the commands, and the commands that remove leftovers of an earlier run."""
    table = yaml.safe_load(TABLE.read_text())
    return [Command(**entry) for entry in table["commands"]], table["clean"]


class Client:
    """`client.py`, as a user; ``names`` are put in place of ``{name}`` in commands."""

    def __init__(self, options: list[str], names: dict[str, str]) -> None:
        self._options = options
        self.names = dict(names)

    def __enter__(self) -> Client:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "client.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(30)

    def run(self, command: str, *more: str) -> tuple[int, str, str]:
        """Return status, output and errors of the command."""
        arguments = [word.format_map(self.names) for word in shlex.split(command)]
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([*self._options, *arguments, *more]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["output"], answer["errors"]


def check(client: Client, command: Command) -> list[str]:
    """Run it, again and again if it waits for something; what is not as the table says, in words."""
    for _ in polls(PATIENCE, 0.3):
        problems = list(_problems(client, command))
        if not problems or not command.wait:
            break
    return problems


def _problems(client: Client, command: Command) -> Iterator[str]:
    form = ("-f", "csv") if command.list else ("-f", "json") if command.show else ()
    status, output, errors = client.run(command.run, *form)
    if status != command.status:
        yield f"status {status}, not {command.status}: {output}{errors}"
        return
    says = command.says
    for name, value in client.names.items():
        says = says.replace(f"{{{name}}}", re.escape(value))
    if not re.search(says, output + errors, re.MULTILINE):
        yield f"does not say {says!r}: {output}{errors}"
    if command.list:
        yield from _check_columns(command, _header(output), list(csv.DictReader(io.StringIO(output))))
    elif command.show:
        shown = json.loads(output)
        yield from _check_columns(command, list(shown), [shown])
    if command.keep:
        client.names[command.keep] = output.split()[0]


def _header(output: str) -> list[str]:
    return next(csv.reader(io.StringIO(output)), [])


def _check_columns(command: Command, header: list[str], found: list[dict[str, Any]]) -> Iterator[str]:
    if more := set(header) - set(command.columns):
        yield f"unexpected columns {sorted(more)}"
    for name, freedom in command.columns.items():
        if name not in header:
            if freedom != MAY_BE_MISSING:
                yield f"no column {name!r}"
        elif not freedom and any(row[name] in EMPTY for row in found):
            yield f"nothing in column {name!r}"
    if command.rows:
        names = {row[header[0]] for row in found}
        wanted = {name.strip() for name in command.rows.split(",")}
        if not wanted <= names:
            yield f"no row {sorted(wanted - names)}"
