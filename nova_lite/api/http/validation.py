"""JSON-schema validation of bodies and query strings, with messages as Nova's clients know them.

A message names the field and the value that was wrong. Values of secrets never appear in it, long ones are cut.
In ``relaxed`` mode (the ``/v2`` legacy API) properties that the schema does not know are dropped, not refused.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
from jsonschema import validators
from oslo_utils import strutils, timeutils

from nova_lite.base import exceptions

SECRETS = frozenset({"adminPass", "admin_pass", "user_data", "contents", "personality", "private_key", "password"})
HIDDEN = "***"
MAX_ECHO_LENGTH = 500

Schema = dict[str, Any]

FORMATS = jsonschema.FormatChecker(formats=())


class InvalidName(ValueError):
    """A text that breaks a rule of its own; the message replaces the validator's."""


def _format(name: str) -> Callable[[Callable[[str], bool]], Callable[[str], bool]]:
    """Register a check of strings; other types are left to the schema's ``type``."""

    def register(check: Callable[[str], bool]) -> Callable[[str], bool]:
        def checked(value: object) -> bool:
            return not isinstance(value, str) or check(value)

        FORMATS.checks(name, raises=(ValueError, binascii.Error))(checked)
        return check

    return register


@_format("name")
def _is_name(text: str) -> bool:
    if text != text.strip() or not text.isprintable():
        raise InvalidName(
            "An invalid 'name' value was provided. The name must be: printable characters. "
            "Can not start or end with whitespace."
        )
    return True


@_format("printable")
def _is_printable(text: str) -> bool:
    return all(char.isprintable() or char in "\n\r\t" for char in text)


@_format("uuid")
def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)).replace("-", "") == text.lower().replace("-", "")
    except ValueError:
        return False


@_format("base64")
def _is_base64(text: str) -> bool:
    base64.decodebytes(text.encode())
    return True


@_format("ipv4")
def _is_ipv4(text: str) -> bool:
    return bool(ipaddress.IPv4Address(text))


@_format("ipv6")
def _is_ipv6(text: str) -> bool:
    ipaddress.IPv6Address(text)
    return "%" not in text


def canonical_ipv6(text: str | None) -> str | None:
    """The address in its shortest form, lower case, all of it in hex; None for no address."""
    return str(ipaddress.IPv6Address(text)) if text else None


@_format("date-time")
def _is_time(text: str) -> bool:
    parse_time(text)
    return True


@_format("int32")
def _is_int32(text: str) -> bool:
    return text.isdecimal() and int(text) < 2**31


@_format("limit")
def _is_limit(text: str) -> bool:
    return -1 <= int(text) < 2**31


@_format("regex")
def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return True


@_format("boolean")
def _is_boolean(text: str) -> bool:
    strutils.bool_from_string(text, strict=True)
    return True


def parse_time(text: str) -> datetime.datetime:
    """ISO 8601 to naive UTC; raises ValueError."""
    return timeutils.normalize_time(timeutils.parse_isotime(text))


def validate_body(schema: Schema, body: Any, relaxed: bool = False) -> None:
    """Raises `exception.ValidationError`. In relaxed mode unknown properties are removed from ``body``."""
    _validate(schema, body, relaxed, "field/attribute")


def validate_query(schema: Schema, query: dict[str, list[str]]) -> None:
    """``query``: each parameter with all its values, which the schema describes one by one."""
    _validate(schema, query, False, "query parameters")


def _validate(schema: Schema, value: Any, relaxed: bool, what: str) -> None:
    error = next(_validator(schema, relaxed).iter_errors(value), None)
    if error is not None:
        raise exceptions.ValidationError(detail=_sentence(error, what))


def _drop_unknown(validator: Any, allowed: Any, instance: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(instance, dict) or allowed is not False:
        yield from jsonschema.Draft4Validator.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)
        return
    patterns = schema.get("patternProperties", {})
    for name in list(instance):
        if name not in schema.get("properties", {}) and not any(re.search(pattern, name) for pattern in patterns):
            del instance[name]


_Relaxed = validators.extend(jsonschema.Draft4Validator, {"additionalProperties": _drop_unknown})


#: By the schema's id, which stays its own as long as its validator holds it.
_validators: dict[tuple[int, bool], Any] = {}


def _validator(schema: Schema, relaxed: bool) -> Any:
    if (id(schema), relaxed) not in _validators:
        kind = _Relaxed if relaxed else jsonschema.Draft4Validator
        _validators[id(schema), relaxed] = kind(schema, format_checker=FORMATS)
    return _validators[id(schema), relaxed]


def _sentence(error: jsonschema.ValidationError, what: str) -> str:
    if isinstance(error.cause, InvalidName):
        return str(error.cause)
    path = [part for part in error.path if isinstance(part, str)]
    secret = any(part in SECRETS for part in path)
    message: str = error.message.replace(
        repr(error.instance), HIDDEN if secret else _cut(repr(_masked(error.instance)))
    )
    if not path:
        return message
    value = HIDDEN if secret else _cut(str(_masked(error.instance)))
    return f"Invalid input for {what} {path[-1]}. Value: {value}. {message}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ECHO_LENGTH else text[:MAX_ECHO_LENGTH] + "..."


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if key in SECRETS else _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return value
