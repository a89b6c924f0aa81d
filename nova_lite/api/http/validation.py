"""JSON-schema validation of bodies and query strings, with the error messages that clients of Nova know.

A message names the field and the wrong value. It never contains the value of a secret, and truncates long values.
In ``relaxed`` mode (the ``/v2`` legacy API) properties that the schema does not know are dropped instead of refused.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
from jsonschema import validators
from oslo_utils import strutils, timeutils

from nova_lite.base import exceptions, ip, patterns

SECRETS = frozenset({"adminPass", "admin_pass", "user_data", "contents", "personality", "private_key", "password"})
HIDDEN = "***"
MAX_ECHO_LENGTH = 500

#: End of a text in a regular expression.
_END = r"\Z"

Schema = dict[str, Any]

FORMATS = jsonschema.FormatChecker(formats=())


class InvalidName(ValueError):
    """A string has the wrong format. The error's text replaces the validator's message."""


def _format(name: str) -> Callable[[Callable[[str], bool]], Callable[[str], bool]]:
    """Register a check for strings of the format ``name``. The schema's ``type`` checks values of other types."""

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


def is_shown(text: str) -> bool:
    """Check whether a text has no control characters. It may have marks of scripts: joiners, and directions of text."""
    return all(char.isprintable() or unicodedata.category(char) == "Cf" for char in text)


@_format("printable")
def _is_printable(text: str) -> bool:
    return all(char.isprintable() or char in "\n\r\t" for char in text)


@_format("uuid")
def is_uuid(text: str) -> bool:
    """Check whether ``text`` is a UUID, with or without hyphens."""
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
    return bool(ip.parse4(text))


@_format("ipv6")
def _is_ipv6(text: str) -> bool:
    return bool(ip.parse6(text))


def canonical_ipv6(text: str | None) -> str | None:
    """Return the address in its shortest form, in lower case. None for no address."""
    return str(ip.parse6(text)) if text else None


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
        patterns.check_syntax(text)
    except exceptions.InvalidInput as error:
        raise ValueError(error.message) from error
    return True


@_format("boolean")
def _is_boolean(text: str) -> bool:
    strutils.bool_from_string(text, strict=True)
    return True


def parse_time(text: str) -> datetime.datetime:
    """Parse an ISO 8601 time to a naive UTC time.

    Raise `ValueError` if it has another format, or is not within the years 1 to 9999 in UTC.
    """
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(text))
    except OverflowError as error:
        raise ValueError(f"{text[:64]} is not within the years 1 to 9999") from error


def validate_body(schema: Schema, body: Any, relaxed: bool = False) -> None:
    """Validate ``body``; raise `ValidationError` (400). In relaxed mode, remove unknown properties from ``body``."""
    _validate(schema, body, relaxed, "field/attribute")


def validate_query(schema: Schema, query: dict[str, list[str]]) -> None:
    """Validate a query string, given as all values of each parameter; raise `ValidationError` (400)."""
    _validate(schema, query, False, "query parameters")


def _validate(schema: Schema, value: Any, relaxed: bool, what: str) -> None:
    key = id(schema), relaxed
    if key not in _validators:
        kind = _Relaxed if relaxed else jsonschema.Draft4Validator
        _validators[key] = schema, kind(_anchored(schema), format_checker=FORMATS)
    error = next(_validators[key][1].iter_errors(value), None)
    if error is not None:
        raise exceptions.ValidationError(detail=_message(error, what))


def _drop_unknown(validator: Any, allowed: Any, instance: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(instance, dict) or allowed is not False:
        yield from jsonschema.Draft4Validator.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)
        return
    patterns = schema.get("patternProperties", {})
    for name in list(instance):
        if name not in schema.get("properties", {}) and not any(re.search(pattern, name) for pattern in patterns):
            del instance[name]


_Relaxed = validators.extend(jsonschema.Draft4Validator, {"additionalProperties": _drop_unknown})


#: Schemas and their validators by the id of the schema. The schema is kept, so that its id stays unique.
_validators: dict[tuple[int, bool], tuple[Schema, Any]] = {}


def _anchored(schema: Any) -> Any:
    """Return the schema with patterns that end at the end of the text. ``$`` would accept a line break after it."""
    if isinstance(schema, list):
        return [_anchored(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _anchored(item) for name, item in schema.items()}
    if isinstance(schema.get("pattern"), str):
        changed["pattern"] = _with_end(schema["pattern"])
    if isinstance(schema.get("patternProperties"), dict):
        patterns = changed["patternProperties"].items()
        changed["patternProperties"] = {_with_end(pattern): item for pattern, item in patterns}
    return changed


def _with_end(pattern: str) -> str:
    return pattern[:-1] + _END if pattern.endswith("$") else pattern


def _message(error: jsonschema.ValidationError, what: str) -> str:
    if isinstance(error.cause, InvalidName):
        return str(error.cause)
    path = [part for part in error.path if isinstance(part, str)]
    secret = any(part in SECRETS for part in path)
    text = error.message.replace(repr(_END)[1:-1], "$")
    message: str = text.replace(repr(error.instance), HIDDEN if secret else _truncate(repr(_mask(error.instance))))
    if not path:
        return message
    value = HIDDEN if secret else _truncate(str(_mask(error.instance)))
    return f"Invalid input for {what} {path[-1]}. Value: {value}. {message}"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_ECHO_LENGTH else text[:MAX_ECHO_LENGTH] + "..."


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if key in SECRETS else _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return value
