"""What a flavor and an image say, read by the rows of the table."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware import table
from nova_lite.hardware.definition import Definition, Outcome, Precedence


class HardwareRequest(msgspec.Struct):
    """By the rows' names: what the flavor says, what the image says; and traits, each ``required`` or ``forbidden``."""

    flavor: dict[str, str] = msgspec.field(default_factory=dict)
    image: dict[str, str] = msgspec.field(default_factory=dict)
    traits: dict[str, str] = msgspec.field(default_factory=dict)

    def value(self, name: str) -> str | None:
        """What counts."""
        return self.image.get(name, self.flavor.get(name))

    def flag(self, name: str) -> bool | None:
        """None where nothing is said."""
        value = self.value(name)
        return None if value is None else strutils.bool_from_string(value)

    def number(self, name: str) -> int | None:
        value = self.value(name)
        return None if value is None else int(value)


def read(specs: Mapping[str, str], properties: Mapping[str, str], strict: bool = True) -> HardwareRequest:
    """Raises `HardwareRefused` for what the table refuses, what it does not know, and values that it does not take. Not
    ``strict``: leaves these out, for servers that were made when they were not looked at."""
    asked = HardwareRequest()
    for key, value in specs.items():
        _note(asked, asked.flavor, "Extra spec", key, value, table.of_spec(key), table.is_ours(key), strict)
    for key, value in properties.items():
        ours = key.startswith(table.IMAGE_PREFIX)
        _note(asked, asked.image, "Image property", key, value, table.of_property(key), ours, strict)
    _settle(asked, strict)
    return asked


def check_extra_spec(key: str, value: str, with_values: bool) -> None:
    """Whether a flavor may have this extra spec; ``with_values``: also whether it is known, and takes this value
    (Nova's check since 2.86). Raises `HardwareRefused`."""
    row = table.of_spec(key)
    if row is None:
        if with_values and table.is_ours(key):
            raise _unknown("Extra spec", key)
        return
    if with_values:
        _check_value("Extra spec", key, value, row)
    if row.outcome is Outcome.REFUSED and not row.kept and not row.asks_nothing(value):
        raise _refusal("Extra spec", key, value, row)


def _note(
    asked: HardwareRequest,
    told: dict[str, str],
    what: str,
    key: str,
    value: str,
    row: Definition | None,
    ours: bool,
    strict: bool,
) -> None:
    if row is None:
        if ours and strict:
            raise _unknown(what, key)
        return
    if row.outcome is Outcome.ELSEWHERE:
        return
    try:
        _check_value(what, key, value, row)
        if row.outcome is Outcome.REFUSED and not row.asks_nothing(value):
            raise _refusal(what, key, value, row)
    except exceptions.HardwareRefused:
        if strict:
            raise
        return
    if row.name == "traits":
        _note_trait(asked, key.partition(":")[2], value, strict)
    else:
        told[row.name_of(key)] = value


def _note_trait(asked: HardwareRequest, trait: str, value: str, strict: bool) -> None:
    if strict and asked.traits.get(trait, value) != value:
        raise exceptions.HardwareRefused(reason=f"Trait {trait} is both required and forbidden by flavor and image.")
    asked.traits[trait] = value


def _settle(asked: HardwareRequest, strict: bool) -> None:
    """Where both say something: whose word counts, or that it cannot be."""
    for name in asked.flavor.keys() & asked.image.keys():
        row = _BY_NAME[name.partition(".")[0]]
        mine, other = asked.flavor[name], asked.image[name]
        if row.wins is Precedence.SAME and strict and _plain(row, mine) != _plain(row, other):
            raise exceptions.HardwareRefused(
                reason=f"Flavor and image contradict each other: {row.flavor} is {mine}, {row.image} is {other}."
            )
        if row.wins is Precedence.ONE and strict:
            raise exceptions.HardwareRefused(
                reason=f"Flavor and image both say {row.flavor} ({mine}, {other}): only one of them may."
            )
        if row.wins is Precedence.EITHER:
            asked.image[name] = str(strutils.bool_from_string(mine) or strutils.bool_from_string(other))
        if row.wins is Precedence.LIMIT and int(other) > int(mine):
            if strict:
                raise exceptions.HardwareRefused(
                    reason=f"The image asks for more than its flavor allows: {row.image} is {other}, {row.flavor} is "
                    f"{mine}."
                )
            asked.image[name] = mine


_BY_NAME = {row.name: row for row in table.ROWS}


def _plain(row: Definition, value: str) -> str:
    return str(strutils.bool_from_string(value)) if strutils.is_valid_boolstr(value) else value


def _check_value(what: str, key: str, value: str, row: Definition) -> None:
    if not row.values.takes(value):
        says = row.values.says.replace("`", "")
        raise exceptions.HardwareRefused(reason=f"{what} '{key}' cannot be {value!r}: it takes {says}.")


def _refusal(what: str, key: str, value: str, row: Definition) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(reason=f"{what} '{key}' ({value}) is not supported here: {row.says}.")


def _unknown(what: str, key: str) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(reason=f"{what} '{key}' is not one that is known.")
