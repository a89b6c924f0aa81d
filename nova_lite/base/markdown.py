"""Line wrapping of generated Markdown pages."""

from __future__ import annotations

import re
import textwrap

_WIDTH = 118
#: Stands for a space at which no line ends.
_KEPT = "\0"


def paragraph(text: str) -> str:
    """Return ``text`` as one paragraph of short lines."""
    return _fill(text, "", "")


def item(text: str) -> str:
    """Return ``text`` as one item of a list."""
    return _fill(text, "- ", "  ")


def _fill(text: str, first: str, rest: str) -> str:
    """Wrap ``text``. Code spans stay whole, and no line starts with a mark of a list."""
    kept = re.sub(r"`[^`]*`", lambda span: span.group().replace(" ", _KEPT), " ".join(text.split()))
    kept = re.sub(r" (?=(?:\d+\.|[-+*#>|]) )", _KEPT, kept)
    lines = textwrap.fill(
        kept, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace(_KEPT, " ")
