"""Texts of errors in the user's language.

Daemons send class and arguments of an error, and its English text. So only the APIs translate, as they respond: the key
in a catalogue is the class's English format. A text that is not made from this format stays English, and arguments
stay as they are. Logs are English.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import webob
from webob.acceptparse import create_accept_language_header

from nova_lite.base import exceptions

Error = TypeVar("Error", bound=exceptions.NovaLiteException)

LOCALES = Path(__file__).parents[2] / "locale"
#: Directories of catalogues, by language tag. As in oslo.i18n, Chinese without a country is that of China.
CATALOGUES = {"de": "de", "zh-CN": "zh_CN", "zh": "zh_CN"}
ENGLISH = "en"

_LINES = r'((?:".*"\n)+)'
_ENTRY = re.compile(rf"^msgid {_LINES}msgstr {_LINES}", re.MULTILINE)


def localized(environ: dict[str, Any], error: Error, respond: Callable[[Error], webob.Response]) -> webob.Response:
    """Return the response to an error, with its text in the language that the request's ``Accept-Language`` prefers."""
    accepted = create_accept_language_header(environ.get("HTTP_ACCEPT_LANGUAGE"))
    tag = accepted.lookup([*CATALOGUES, ENGLISH], default_tag=ENGLISH)
    text = translation(error, CATALOGUES[tag]) if tag != ENGLISH else None
    if text is None:
        response = respond(error)
    else:
        # The callers of a failed batch share one error.
        translated = copy.copy(error)
        translated.args = (text,)
        response = respond(translated)
        response.headers["Content-Language"] = tag
    response.vary = (*(response.vary or ()), "Accept-Language")
    return response


def translation(error: exceptions.NovaLiteException, locale: str) -> str | None:
    """Return the text of an error by a catalogue. None if it is not there, or the error has its own text."""
    translated = catalogue(locale).get(error.msg_fmt)
    try:
        if translated is None or error.message != error.msg_fmt % error.kwargs:
            return None
    except (KeyError, TypeError):  # the arguments of an error with its own text are not those of the format
        return None
    return translated % error.kwargs


@functools.cache
def catalogue(locale: str) -> dict[str, str]:
    """Return translations by English text, read from a file of gettext's source format."""
    text = (LOCALES / locale / "LC_MESSAGES" / "nova_lite.po").read_text(encoding="utf-8")
    entries = ((_joined(entry[1]), _joined(entry[2])) for entry in _ENTRY.finditer(text))
    return {english: translated for english, translated in entries if english and translated}


def _joined(lines: str) -> str:
    """Return the text of quoted lines. The escapes that catalogues use are those of JSON."""
    return "".join(json.loads(line) for line in lines.splitlines())
