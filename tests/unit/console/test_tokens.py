"""Tokens and URLs of consoles."""

from __future__ import annotations

import urllib.parse

import pytest

from nova_lite.console import tokens
from nova_lite.objects import Console


def console(console_type: str, base: str) -> Console:
    return Console(console_type=console_type, host="h", port=1, access_url_base=base)


def test_token_is_long_and_random_and_has_a_hash() -> None:
    made = {tokens.new() for _ in range(100)}
    assert len(made) == 100 and min(map(len, made)) >= 43
    assert tokens.digest("x") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert len(tokens.digest("\udcff\x00é")) == 64


@pytest.mark.parametrize(
    ("console_type", "base", "expected"),
    [
        ("novnc", "http://p:6080/vnc_auto.html", "http://p:6080/vnc_auto.html?path=%3Ftoken%3DT"),
        ("novnc", "http://p:6080/vnc.html?resize=scale", "http://p:6080/vnc.html?resize=scale&path=%3Ftoken%3DT"),
        ("serial", "ws://p:6083/", "ws://p:6083/?token=T"),
        ("spice-html5", "http://p:6082/spice_auto.html", "http://p:6082/spice_auto.html?path=%3Ftoken%3DT"),
        ("spice-direct", "http://k:13002/nova", "http://k:13002/nova?token=T"),
    ],
)
def test_url_contains_the_token(console_type: str, base: str, expected: str) -> None:
    assert tokens.url(console(console_type, base), "T") == expected


def test_novnc_websocket_path_contains_the_token() -> None:
    url = tokens.url(console("novnc", "http://p/vnc.html"), "a-b_c")
    path = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["path"][0]
    assert tokens.of_path("/" + path) == "a-b_c"
    assert tokens.of_path("/?token=") is None
    assert tokens.of_path("/websockify") is None
