"""Types of all options of all commands: a wrong value gets a sentence of ours, with the right form."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from nova_lite.cmd import dev, manage

#: Values that a conversion may fail at.
WRONG = (
    "yesterday",
    "",
    "-",
    "9" * 5000,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "1e9",
    "\u00b2",
    "http://[",
    "http://a:99999999",
)


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield the options and arguments with a type of all commands below ``parser``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options(below)
        elif action.type is not None:
            yield f"{parser.prog} {'/'.join(action.option_strings) or action.dest}", action


TYPED = dict([*options(manage.parser()), *options(dev.parser())])


@pytest.mark.parametrize("name", TYPED)
def test_option_wrong_value_is_explained(name: str) -> None:
    convert = TYPED[name].type
    assert callable(convert)
    refused = 0
    for text in WRONG:
        try:
            convert(text)
        except argparse.ArgumentTypeError as error:
            refused += 1
            assert len(str(error)) < 200
    assert refused


def test_time_option_names_the_form() -> None:
    convert = TYPED["nova-lite-manage audit-log list --since"].type
    assert callable(convert)
    with pytest.raises(argparse.ArgumentTypeError, match=r"'yesterday' is not a time such as 2026-01-31T12:00:00"):
        convert("yesterday")
    assert convert("2026-01-31T12:00:00+02:00").isoformat() == "2026-01-31T10:00:00"
