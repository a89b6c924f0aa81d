"""Users' regular expressions: useful patterns are accepted, and none takes long."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.base.patterns import checked

LONG = ["a" * 255, "a" * 254 + "b", "ab" * 127, ".*" * 127]


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("", ""),
        ("web", "web"),
        ("^vm-[0-9]+$", "^vm-[0-9]+$"),
        (".*web.*prod.*", "web.*prod"),
        ("^.*web.*$", "web"),
        (r"10\.0\.0\.\d+", r"10\.0\.0\.\d+"),
        (r"a\.*", r"a\.*"),
        (r"\(?x", r"\(?x"),
        ("(web|db)-1", "(web|db)-1"),
        ("[*+()|]", "[*+()|]"),
        (r"\(a\)*", r"\(a\)*"),
    ],
)
def test_useful_patterns_are_accepted(pattern: str, kept: str) -> None:
    assert checked(pattern) == kept


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "(a+)+$",
        "(a|aa)*b",
        "(a?)+",
        "((a))+",
        "a?" * 60 + "a" * 60,
        "(a|aa)" * 40,
        "a*b*c*d",
        "x{1,9}" * 3,
        "[a",
        "?",
        r"(?x)(a|a) *b$",
        "(?i)web",
        "a(?#)*",
    ],
)
def test_dangerous_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        checked(pattern)


@pytest.mark.parametrize("pattern", [r"^(.*)@(.*)\.example\.(com|org)$", "^cn=.*,ou=.*,dc=x", "admin.*-x", "(a|b).*"])
def test_useful_patterns_for_long_texts_are_accepted(pattern: str) -> None:
    checked(pattern, is_for_long=True)


@pytest.mark.parametrize("pattern", ["a*b*c", "^a|b*c*d", "^a*b*c*d", "(a+)+$"])
def test_dangerous_patterns_for_long_texts_are_refused(pattern: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        checked(pattern, is_for_long=True)


def test_long_pattern_is_refused_before_it_is_compiled() -> None:
    """A pattern of some thousand sets of characters takes seconds to compile."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from nova_lite.base import exceptions, patterns\n"
        "try: patterns.checked('(?i)' + '[\u0100-\uffff]' * 20000)\n"
        "except exceptions.InvalidInput as error: assert '255 characters' in error.message\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab.*+?{}()|[]^$\\1,", max_size=30))
def test_accepted_patterns_are_fast_and_unchanged(pattern: str) -> None:
    try:
        kept = checked(pattern)
    except exceptions.InvalidInput:
        return
    for text in LONG:
        started = time.process_time()
        found = re.search(kept, text) is not None
        assert time.process_time() - started < 2.0
        if kept != pattern:
            assert found == (re.search(pattern, text) is not None)
