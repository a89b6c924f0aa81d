"""Hardware that a flavor and an image request, read with the definitions of the table."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware import table
from nova_lite.hardware.definition import Definition, Outcome, Precedence

EXTRA_SPEC, PROPERTY = "Extra spec", "Image property"


class HardwareRequest(msgspec.Struct):
    """Values of the flavor and of the image by the definitions' names, and traits: each ``required`` or ``forbidden``.

    Where both have a value and the definition combines them, ``image`` has the result.
    """

    flavor: dict[str, str] = msgspec.field(default_factory=dict)
    image: dict[str, str] = msgspec.field(default_factory=dict)
    traits: dict[str, str] = msgspec.field(default_factory=dict)

    def value(self, name: str) -> str | None:
        """Return the effective value, or None if neither flavor nor image has one."""
        return self.image.get(name, self.flavor.get(name))

    def flag(self, name: str) -> bool | None:
        """Return the effective value as a boolean, or None if there is none."""
        value = self.value(name)
        return None if value is None else strutils.bool_from_string(value)

    def number(self, name: str) -> int | None:
        value = self.value(name)
        return None if value is None else int(value)


def read(specs: Mapping[str, str], properties: Mapping[str, str], strict: bool = True) -> HardwareRequest:
    """Read extra specs and image properties.

    Raises `HardwareRefused` for refused and unknown settings and for values that a definition does not accept. If not
    ``strict``, leaves them out: servers of older versions may have them.
    """
    request = HardwareRequest()
    for key, value in specs.items():
        definition = table.find_extra_spec(key)
        _add(request, request.flavor, EXTRA_SPEC, key, value, definition, table.is_reserved(key), strict)
    for key, value in properties.items():
        definition = table.find_image_property(key)
        reserved = key.startswith(table.RESERVED_PREFIX)
        _add(request, request.image, PROPERTY, key, value, definition, reserved, strict)
    _combine(request, strict)
    return request


def check_extra_spec(key: str, value: str, with_values: bool) -> None:
    """Check an extra spec that a flavor is to have. Raises `HardwareRefused`.

    ``with_values``: also check that the key is known and the value accepted, as Nova does from 2.86 on.
    """
    definition = table.find_extra_spec(key)
    if definition is None:
        if with_values and table.is_reserved(key):
            raise _unknown(EXTRA_SPEC, key)
        return
    if with_values:
        _check_value(EXTRA_SPEC, key, value, definition)
    if definition.outcome is Outcome.REFUSED and not definition.is_harmless(value):
        raise _refusal(EXTRA_SPEC, key, value, definition)


def _add(
    request: HardwareRequest,
    values: dict[str, str],
    kind: str,
    key: str,
    value: str,
    definition: Definition | None,
    reserved: bool,
    strict: bool,
) -> None:
    """Add one setting to ``values``, which are those of the flavor or of the image, or to the traits."""
    if definition is None:
        if reserved and strict:
            raise _unknown(kind, key)
        return
    if definition.outcome is Outcome.NOT_APPLICABLE:
        return
    try:
        _check_value(kind, key, value, definition)
        if definition.outcome is Outcome.REFUSED and not definition.is_harmless(value):
            raise _refusal(kind, key, value, definition)
    except exceptions.HardwareRefused:
        if strict:
            raise
        return
    if definition.name == "traits":
        _add_trait(request, key.partition(":")[2], value, strict)
    else:
        values[definition.stored_name(key)] = value


def _add_trait(request: HardwareRequest, trait: str, value: str, strict: bool) -> None:
    if strict and request.traits.get(trait, value) != value:
        raise exceptions.HardwareRefused(reason=f"Trait {trait} is both required and forbidden by flavor and image.")
    request.traits[trait] = value


def _combine(request: HardwareRequest, strict: bool) -> None:
    """Apply the precedence of settings that both flavor and image have. Raises `HardwareRefused` if ``strict``."""
    for name in request.flavor.keys() & request.image.keys():
        definition = BY_NAME[name.partition(".")[0]]
        precedence, spec, image_property = definition.precedence, definition.flavor, definition.image
        of_flavor, of_image = request.flavor[name], request.image[name]
        if precedence is Precedence.SAME and strict and _normalized(of_flavor) != _normalized(of_image):
            raise exceptions.HardwareRefused(
                reason=f"Flavor and image contradict each other: {spec} is {of_flavor}, {image_property} is {of_image}."
            )
        if precedence is Precedence.ONLY_ONE and strict:
            raise exceptions.HardwareRefused(
                reason=f"Flavor and image both have {spec} ({of_flavor}, {of_image}): only one of them may."
            )
        if precedence is Precedence.EITHER:
            request.image[name] = str(strutils.bool_from_string(of_flavor) or strutils.bool_from_string(of_image))
        if precedence is Precedence.LIMIT and int(of_image) > int(of_flavor):
            if strict:
                raise exceptions.HardwareRefused(
                    reason=f"The image requests more than its flavor allows: {image_property} is {of_image}, {spec} is "
                    f"{of_flavor}."
                )
            request.image[name] = of_flavor


BY_NAME = {definition.name: definition for definition in table.DEFINITIONS}


def _normalized(value: str) -> str:
    return str(strutils.bool_from_string(value)) if strutils.is_valid_boolstr(value) else value


def _check_value(kind: str, key: str, value: str, definition: Definition) -> None:
    if not definition.values.accepts(value):
        description = definition.values.description.replace("`", "")
        raise exceptions.HardwareRefused(reason=f"{kind} '{key}' cannot be {value!r}: it takes {description}.")


def _refusal(kind: str, key: str, value: str, definition: Definition) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(
        reason=f"{kind} '{key}' ({value}) is not supported here: {definition.description}."
    )


def _unknown(kind: str, key: str) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(reason=f"{kind} '{key}' is unknown.")
