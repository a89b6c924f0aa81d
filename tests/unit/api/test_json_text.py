"""JSON of request bodies: what gets in, and the reason for which the rest does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nova_lite.api.http import json_text
from nova_lite.base.exceptions import ValidationError

MALFORMED = "Malformed request body"
LEVELS, BITS, NUL = "more than 32 levels", "more than 64 bits", "the character NUL"


def nested(levels: int, start: str = "[", end: str = "]") -> bytes:
    return (start * levels + "1" + end * levels).encode()


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        2**63 - 1,
        -(2**63),
        1.5,
        1e308,
        "",
        "a\nb\tc",
        "\U0001f600",
        "\\u0000",
        "9" * 400,
        None,
        True,
        [[1] * 1000] * 100,
        {"a": [{"b": "[[[["}] * 100},
        {"": ""},
    ],
)
def test_json_within_the_limits_is_parsed(value: Any) -> None:
    assert json_text.parse(json.dumps(value).encode()) == value
    assert json_text.parse(json.dumps(value, ensure_ascii=False).encode("utf-8-sig")) == value


def test_json_of_the_deepest_level_is_parsed() -> None:
    assert json_text.parse(nested(32)) is not None
    assert json_text.parse(nested(32, '{"a":', "}")) is not None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", MALFORMED),
        (b" ", MALFORMED),
        (b"NaN", MALFORMED),
        (b"-Infinity", MALFORMED),
        (b"1e400", MALFORMED),
        (b'{"a": -1e400}', MALFORMED),
        (b'"\\ud800"', MALFORMED),
        (b'{"\\udfff": 1}', MALFORMED),
        (b'"\xff"', MALFORMED),
        (b'"\xed\xa0\x80"', MALFORMED),
        ('"a"'.encode("utf-16"), MALFORMED),
        (b"1" + b"0" * 5000, MALFORMED),
        (nested(33), LEVELS),
        (nested(33, '{"a":', "}"), LEVELS),
        (nested(17, '[{"a":', "}]"), LEVELS),
        (nested(600), LEVELS),
        (nested(600, '{"a":', "}"), LEVELS),
        (nested(100000), MALFORMED),
        (b"9223372036854775808", BITS),
        (b"[-9223372036854775809]", BITS),
        (b'{"a": {"b": 1' + b"0" * 400 + b"}}", BITS),
        (b'"\\u0000"', NUL),
        (b'{"a": ["b\\u0000c"]}', NUL),
        (b'{"a\\u0000": 1}', NUL),
    ],
)
def test_json_beyond_the_limits_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        json_text.parse(body)
