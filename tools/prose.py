#!/usr/bin/env python3
"""Checks the words of code and pages: opening words, sentence length, test names, and private vocabulary.

    tools/prose.py [--count] [PATH]...

PATH: files or directories, by default the whole checkout. Each finding is one line: file, line, rule, text. Rules:

- ``opening``   a docstring or ``#:`` comment starts with a pronoun, preposition, or relative word
- ``verb``      a function's docstring does not start with an imperative verb
- ``sentence``  a sentence has more words than `MOST_WORDS`
- ``line``      a line of a page has more than `MOST_COLUMNS` characters
- ``test``      a test's name starts without a subject
- ``word``      a term that docs/reference/glossary.md replaces by a standard one

The exit status is 1 if there is a finding. ``--count`` prints a table of findings by rule and directory instead.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
MOST_WORDS = 35
MOST_COLUMNS = 240

_OPENING = [
    "What",
    "Who",
    "Whose",
    "Whom",
    "Whether",
    "Of",
    "One",
    "Ones",
    "Those",
    "That",
    "Which",
    "Where",
    "How",
    "By",
    "As",
    "So",
    "With",
    "It",
    "They",
    "This",
    "These",
    "Such",
    "Nothing",
    "Nobody",
    "Nowhere",
    "From",
    "To",
    "For",
    "In",
    "On",
    "At",
    "Here",
    "There",
    "If",
    "When",
    "While",
    "Until",
    "After",
    "Before",
    "Because",
    "Since",
    "Also",
    "Then",
    "Not",
    "Only",
    "Else",
    "Than",
    "Into",
    "Between",
    "Beside",
    "Besides",
    "Within",
    "Without",
    "Unless",
    "Anything",
    "Anybody",
    "Everything",
    "Everybody",
    "Both",
]
#: Openings that are fine at the head of a test page or of an option's text, but not of a docstring.
_TEST_OPENING = [
    "what",
    "who",
    "whose",
    "whom",
    "which",
    "where",
    "how",
    "one",
    "ones",
    "those",
    "that",
    "it",
    "they",
    "this",
    "these",
    "such",
    "nothing",
    "nobody",
    "of",
    "by",
    "as",
    "so",
    "with",
    "from",
    "to",
    "for",
    "in",
    "on",
    "at",
    "all_that",
    "if",
    "when",
    "while",
    "until",
    "after",
    "before",
    "not",
    "only",
]
#: Terms of our own that have a standard name. Checked in docstrings, comments, pages, and names of functions.
_WORDS = {
    r"\btold\b": "notified, reported, passed",
    r"\b(tells?|telling) (of|the|whether|that|a|an|its|which|what)\b": "reports, publishes, shows",
    r"\bhears? (of|from|that)\b": "receives",
    r"\bwho asks\b": "caller",
    r"\basked for\b": "requested",
    r"\bis asked\b": "is queried, is called",
    r"\bhow-manieth\b": "sequence number",
    r"\bnudges?\b": "wake-up",
    r"\bgathered\b": "batched",
    r"\btravels? together\b": "batched",
    r"\bredrives?\b|\bredriven\b": "retry",
    r"\bof before\b": "older",
    r"\bas ever\b": "unchanged, as usual",
    r"\bat rest\b": "idle",
    r"\bin turns\b": "interleaved",
    r"\bmakes? no sense\b|\bmade no sense\b": "corrupt, inconsistent",
    r"\bby itself\b|\bby themselves\b": "automatically, alone",
    r"\bone that\b|\bones that\b|\bthose that\b|\bthose who\b": "the noun",
    r"\bis (at it|heard|of use)\b": "the verb",
    r"\bin good hands\b|\bfor good\b": "leased; permanently",
    r"\bticket\b": "command",
    r"\bgives? back\b|\bgiven back\b": "release, return",
    r"\btakes? back\b|\btaken back\b": "undo, roll back",
    r"\bsays? (of|what|which|how|who)\b": "describes, defines",
    r"\b(nobody|somebody|everybody|anybody)\b": "the role: no user, an operator, all users",
    r"\b(go|goes|going|gone|went) on\b": "continue, continues",
    r"\banew\b": "again, from the start",
    # Finds a subject or an object without a noun before. A comparison has one: "a version older than that of the host".
    r"(?:(?:^|[.?!]\s)(?:those|that)|\b(?:returns?|yields?|skips?|lists?|keeps?|leaves?|uses?|reads?|takes?|removes?|"
    r"deletes?|gets?|sends?) (?:those|that)) of\b": "the noun",
    # "what the host has" for its data. "what the host has done" is a verb.
    r"\bwhat (?!else\b)(?:[\w'-]+ ){1,3}(has|have|had)\b(?! (?:not |already |just )?(?:\w+ed|\w+en|been|begun|built|"
    r"done|found|gone|kept|left|lost|made|read|said|sent|set|shut|put|to|become|come|run)\b)": "the noun: data, rows",
}
_WORD_RULES = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in _WORDS.items()]

#: First words of function docstrings that are verbs, in the imperative.
_VERBS_FILE = Path(__file__).with_name("verbs.txt")


class Finding(NamedTuple):
    path: Path
    line: int
    rule: str
    text: str
    comment: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def main() -> int:
    """Print all findings below the given paths."""
    parser = argparse.ArgumentParser(description="Check the words of code and pages.")
    parser.add_argument("--count", action="store_true", help="print a table by rule and directory")
    parser.add_argument("--rule", action="append", help="only this rule; may be repeated")
    parser.add_argument("paths", nargs="*", default=["."], help="files or directories")
    arguments = parser.parse_args()
    found = [finding for path in files(arguments.paths) for finding in check(path)]
    found = [finding for finding in found if not arguments.rule or finding.rule in arguments.rule]
    if arguments.count:
        counts = collections.Counter((str(Path(*finding.path.parts[:2])), finding.rule) for finding in found)
        for (directory, rule), count in sorted(counts.items()):
            print(f"{count:6} {directory} {rule}")
    else:
        for finding in found:
            print(finding)
    print(f"{len(found)} findings", file=sys.stderr)
    return bool(found)


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python files and pages of the checkout below ``paths``, relative to its top."""
    listed = subprocess.run(
        ["git", "-C", str(TOP), "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    wanted = [Path(path).resolve() for path in paths]
    for name in sorted(filter(None, listed)):
        path = TOP / name
        if path.is_file() and any(path == one or one in path.parents for one in wanted):
            yield Path(name)


def check(path: Path) -> Iterator[Finding]:
    """Yield the findings of one file."""
    text = (TOP / path).read_text()
    if path.suffix == ".md":
        if path.name != "CHANGELOG.md" and path.parent.name != "adr":  # both keep what was decided in its time
            yield from _page(path, text)
        return
    if "migrations/versions" in str(path) or path == Path("tools/prose.py"):
        return
    yield from _docstrings(path, ast.parse(text))
    yield from _comments(path, text)


def verbs() -> frozenset[str]:
    """Return the verbs that may open a function's docstring."""
    return frozenset(_VERBS_FILE.read_text().split())


def _docstrings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    known = verbs()
    is_test = path.name.startswith("test_")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rest = node.name.removeprefix("test_")
            if node.name.startswith("test_") and any(
                rest == word or rest.startswith(f"{word}_") for word in _TEST_OPENING
            ):
                yield Finding(path, node.lineno, "test", node.name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        line = node.body[0].lineno
        first = docstring.split()[0].strip("`,.:;()\"'")
        if first in _OPENING:
            yield Finding(path, line, "opening", docstring.split("\n")[0][:80])
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("test_")
            and not is_test
            and not _is_property(node)
            and first.lower() not in known
        ):
            yield Finding(path, line, "verb", docstring.split("\n")[0][:80])
        yield from _sentences(path, line, docstring)
        yield from _words(path, line, docstring)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    names = {getattr(item, "id", getattr(item, "attr", "")) for item in decorators}
    return bool(names & {"property", "cached_property", "fixture"})


def _comments(path: Path, text: str) -> Iterator[Finding]:
    block: list[str] = []
    began = 0
    last = 0
    for token in [*tokenize.generate_tokens(io.StringIO(text).readline), None]:
        if token is not None and token.type == tokenize.COMMENT:
            words = token.string.lstrip("#: ").rstrip()
            if block and token.start[0] == last + 1 and token.line.lstrip().startswith("#"):
                block.append(words)
            else:
                yield from _comment(path, began, " ".join(block))
                block, began = [words], token.start[0]
                if not token.line.lstrip().startswith("#"):
                    yield from _comment(path, began, words)
                    block = []
            last = token.start[0]
    yield from _comment(path, began, " ".join(block))


def _comment(path: Path, line: int, text: str) -> Iterator[Finding]:
    if not text or text.startswith(("noqa", "type:", "fmt:", "---", "!", "pragma")):
        return
    if text.split()[0].strip("`,.:;()") in _OPENING:
        yield Finding(path, line, "opening", text[:80], comment=True)
    yield from _sentences(path, line, text)
    yield from _words(path, line, text)


def _page(path: Path, text: str) -> Iterator[Finding]:
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        if len(line) > MOST_COLUMNS and not fenced:
            yield Finding(path, number, "line", f"{len(line)} characters: {line[:60]}")
    written = text.partition("<!-- Made")[0]  # tables and examples below the mark are generated
    for began, paragraph in _paragraphs(written):
        yield from _sentences(path, began, paragraph, _SENTENCE_END)
        yield from _words(path, began, paragraph)


def page_sentences(text: str) -> list[str]:
    """Return the sentences of a page, without code, tables, and headings."""
    return [sentence for _, paragraph in _paragraphs(text) for sentence in sentences(paragraph, _SENTENCE_END)]


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    paragraph: list[str] = []
    began = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        starts = line.lstrip()
        fenced ^= starts.startswith("```")
        if paragraph and (fenced or not starts or re.match(r"([-*|#>]|\d+\.|```|:::|<!--)", starts)):
            yield began, " ".join(paragraph)
            paragraph = []
        if fenced or not starts or starts.startswith(("|", "#", "```", "<!--", ":::")):
            continue
        if not paragraph:
            began = number
        paragraph.append(re.sub(r"^([-*>]|\d+\.)\s+", "", starts).strip())


_PART_END = re.compile(r"(?<=[.;:?!])[\"')\]]*\s+(?=[`A-Z\[\"'(*])|;\s|(?<=``):\s|\.\s(?=``)")
_SENTENCE_END = re.compile(r"(?<=[.?!])[\"')\]*]*\s+(?=[`A-Z\[\"'(*])")


def sentences(text: str, end: re.Pattern[str] = _PART_END) -> list[str]:
    """Split running text into sentences. Literal blocks are left out. `_PART_END` also splits at a semicolon."""
    text = re.sub(r"::\n\n(?:[ \t]+.*\n?|\n)+", " ", text)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"(?m)^\s*\|.*$", "", text))
    parts: list[str] = []
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s", text):
        parts += re.split(end, block.replace("\n", " "))
    return [part.strip() for part in parts if part.strip()]


def _sentences(path: Path, line: int, text: str, end: re.Pattern[str] = _PART_END) -> Iterator[Finding]:
    for sentence in sentences(text, end):
        words = len(re.sub(r"``[^`]*``|`[^`]*`", "x", sentence).split())
        if words > MOST_WORDS:
            yield Finding(path, line, "sentence", f"{words} words: {sentence[:70]}")


def _words(path: Path, line: int, text: str) -> Iterator[Finding]:
    plain = re.sub(r"``[^`]*``|`[^`]*`", "x", text)
    for pattern, better in _WORD_RULES:
        if found := pattern.search(plain):
            yield Finding(path, line, "word", f"{found.group(0)!r}, say: {better}")


if __name__ == "__main__":
    sys.exit(main())
