"""Origin checks of web pages that open consoles."""

from __future__ import annotations

import pytest

from nova_lite.console import origins
from nova_lite.objects import Console


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        (None, "proxy:6080", True),
        ("http://proxy:6080", "proxy:6080", True),
        ("https://proxy", "proxy:6080", True),
        ("http://Proxy", "pROXY:6080", True),
        ("http://[2001:db8::1]:6080", "[2001:db8::1]:6080", True),
        ("https://dashboard.example", "proxy:6080", True),
        ("https://DASHBOARD.example", "proxy:6080", True),
        ("http://evil.example", "proxy:6080", False),
        ("http://proxy.evil.example", "proxy", False),
        ("http://evil.example/?proxy", "proxy", False),
        ("http://proxy@evil.example", "proxy", False),
        ("http://[2001:db8::2]", "[2001:db8::1]:6080", False),
        ("null", "proxy", False),
        ("", "proxy", False),
        ("http://[", "proxy", False),
        ("null", None, False),
        ("http://proxy", None, False),
    ],
)
def test_origin_is_allowed_by_its_host(origin: str | None, host: str | None, expected: bool) -> None:
    assert origins.is_allowed(origin, host, ["Dashboard.example"]) is expected


@pytest.mark.parametrize(
    ("origin", "base", "expected"),
    [
        (None, "https://proxy/", True),
        ("http://proxy", "http://proxy/vnc.html", True),
        ("https://proxy", "https://proxy/vnc.html", True),
        ("http://proxy", "https://proxy/vnc.html", False),
        ("https://proxy", "http://proxy/vnc.html", False),
        ("http://proxy", "ws://proxy/", True),
        ("https://proxy", "wss://proxy/", True),
        ("http://proxy", "wss://proxy/", False),
        ("http://[", "http://proxy/", False),
    ],
)
def test_origin_needs_the_scheme_of_its_console(origin: str | None, base: str, expected: bool) -> None:
    scheme = origins.scheme_of(origin)
    console = Console(console_type="novnc", host="h", port=1, access_url_base=base)
    assert (scheme is None or console.is_shown_by(scheme)) is expected
