"""Paths of access rules: their wildcards mean the same as in Keystone, and no path takes long to match."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.api.identity import access_rules
from nova_lite.api.identity.records import AccessRule

#: The longest paths that are matched here, in a process that gets some seconds of CPU.
COSTLY = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from nova_lite.api.identity.access_rules import allow
from nova_lite.api.identity.records import AccessRule

for path in ("/" + "**a" * 20 + "b", "/" + "*a" * 60, "/" + "{x}" * 70 + "b", "/" + "**" * 100 + "x"):
    rule = AccessRule(id="1", service="compute", method="GET", path=path)
    for text in ("/" + "a" * 200, "/" + "a" * 60000, "/a" * 30000):
        assert not allow([rule], ["compute"], "GET", text + "!")
"""


def fits(pattern: str, path: str) -> bool:
    rule = AccessRule(id="1", service="compute", method="GET", path=pattern)
    return access_rules.allow([rule], ["compute"], "GET", path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/v2.1/servers", "/v2.1/servers", True),
        ("/v2.1/servers", "/v2.1/servers/", False),
        ("/v2.1/servers", "/v2x1/servers", False),
        ("/v2.1/servers/*", "/v2.1/servers/7", True),
        ("/v2.1/servers/*", "/v2.1/servers/", False),
        ("/v2.1/servers/*", "/v2.1/servers/7/action", False),
        ("/v2.1/servers/{id}/action", "/v2.1/servers/7/action", True),
        ("/v2.1/servers/{id}/action", "/v2.1/servers/7/8/action", False),
        ("/v2.1/servers/{id", "/v2.1/servers/{id", True),
        ("/v2.1/servers**", "/v2.1/servers", True),
        ("/v2.1/**/action", "/v2.1/servers/7/action", True),
        ("/**", "/a/b\n/c", True),
        ("/*-x/**", "/a-x/", True),
        ("/***", "/", False),
        ("/***", "/a/b", True),
    ],
)
def test_wildcards_of_access_rules_mean_segments(pattern: str, path: str, expected: bool) -> None:
    assert fits(pattern, path) is expected


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="/a*{}b", max_size=10), st.text(alphabet="/ab{", max_size=12))
def test_access_rule_fits_the_same_paths_as_its_expression(pattern: str, path: str) -> None:
    parts = re.split(r"(\*\*|\*|\{[^}]*\})", pattern)
    texts = [re.escape(part) if number % 2 == 0 else "[^/]+" for number, part in enumerate(parts)]
    texts = [".*" if part == "**" else text for part, text in zip(parts, texts, strict=True)]
    assert fits(pattern, path) is bool(re.fullmatch("".join(texts), path, re.DOTALL))


def test_costly_path_of_an_access_rule_is_matched_in_linear_time() -> None:
    subprocess.run([sys.executable, "-c", COSTLY], check=True, timeout=300)
