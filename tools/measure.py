#!/usr/bin/env python3
"""Measures how easy the code is to read, and prints a table: measure, before, target, now.

    tools/measure.py [--fast]

``before`` was measured on commit d8b11e9, before docs/adr/0012-house-style.md. ``--fast`` leaves out the rows that
trace a request through a cloud in one process. The tool needs the checkout's .venv.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import prose

TOP = prose.TOP
PACKAGE = TOP / "nova_lite"


class Row(NamedTuple):
    """A line of the table. ``measure`` returns the value now."""

    name: str
    before: str
    target: str
    measure: Callable[[], str]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure how easy the code is to read.")
    parser.add_argument("--fast", action="store_true", help="leave out the traced requests")
    arguments = parser.parse_args()
    rows = STATIC if arguments.fast else (*STATIC, *TRACED)
    print("| Measure | Before | Target | Now |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {row.name} | {row.before} | {row.target} | {row.measure()} |", flush=True)
    return 0


def _sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations/versions" not in str(path)]


def _pages() -> list[Path]:
    return [path for path in prose.files([str(TOP)]) if path.suffix == ".md" and path.name != "CHANGELOG.md"]


def _docstrings() -> str:
    total = 0
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                total += ast.get_docstring(node) is not None
    bad = sum(
        finding.rule == "opening" and not finding.comment
        for path in _sources()
        for finding in prose.check(path.relative_to(TOP))
    )
    return f"{bad} of {total} ({100 * bad / total:.1f} %)"


def _test_names() -> str:
    names = bad = 0
    for path in sorted((TOP / "tests").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        names += sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in nodes)
        bad += sum(finding.rule == "test" for finding in prose.check(path.relative_to(TOP)))
    return f"{bad} of {names} ({100 * bad / names:.1f} %)"


def _page_sentences() -> Iterator[int]:
    for path in _pages():
        for sentence in prose.page_sentences((TOP / path).read_text()):
            yield len(sentence.split())


def _documentation() -> str:
    lengths = list(_page_sentences())
    long = sum(length > prose.MOST_WORDS for length in lengths)
    lines = sum(finding.rule == "line" for path in _pages() for finding in prose.check(path))
    return f"{statistics.mean(lengths):.1f} words; {100 * long / len(lengths):.1f} %; {lines}"


def _options() -> str:
    names = set()
    for path in sorted((PACKAGE / "conf").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("cfg.") and node.args):
                continue
            if ast.unparse(node.func).endswith("Opt") and isinstance(node.args[0], ast.Constant):
                names.add((path.stem, str(node.args[0].value)))
    text = "\n".join((TOP / path).read_text() for path in _pages())
    missing = sum(name not in text for _, name in names)
    return f"{len(names)}; {missing}"


def _entries() -> str:
    return str(sum(path.name != "__pycache__" for path in PACKAGE.iterdir()))


def _cycles() -> str:
    import grimp

    sys.path.insert(0, str(TOP))
    graph = grimp.build_graph("nova_lite")
    cyclic = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if graph.direct_import_exists(importer=module, imported=imported) and graph.chain_exists(
                importer=imported, imported=module
            ):
                cyclic |= {module, imported}
    return f"{len(cyclic)} modules in cycles" if cyclic else "0"


def _files_of(word: str) -> str:
    found = [path for path in _sources() if re.search(word, path.read_text(), re.IGNORECASE)]
    folders = {path.parent for path in found}
    return f"{len(found)} in {len(folders)} folders"


def _batching() -> str:
    users = sum("nova_lite.base.batching import" in path.read_text() for path in _sources())
    tree = ast.parse((PACKAGE / "base/batching.py").read_text())
    primitives = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(item, ast.FunctionDef) and item.name == "submit" for item in node.body)
    ]
    return f"{users} modules, {len(primitives)} primitive ({', '.join(primitives)})"


def _too_old() -> str:
    call_sites = [path for path in _sources() if path.parent != PACKAGE / "rpc"]
    return str(sum(path.read_text().count("except exceptions.ServiceTooOld") for path in call_sites))


def _failpoints() -> str:
    seams = PACKAGE / "base/faults.py"
    return str(sum(path.read_text().count("failpoints.reach(") for path in _sources() if path != seams))


def _patchers() -> str:
    pattern = re.compile(r"^(?:import|from) (?:amqp|kombu|oslo_messaging\._drivers)\b", re.MULTILINE)
    modules = "impl_rabbit|amqpdriver|transport|connection|channel"
    assigns = re.compile(rf"^\s*(?:{modules})\.[A-Z_]\w*\.\w+ = ", re.MULTILINE)
    found = [path for path in _sources() if pattern.search(path.read_text()) and assigns.search(path.read_text())]
    return f"{len(found)} ({', '.join(str(path.relative_to(PACKAGE)) for path in found)})"


def _traced(name: str, until: str | None, calls: bool = False) -> str:
    import tracing

    traced = tracing.trace(name)
    found = (
        traced.response
        if until == "response"
        else traced.whole
        if until is None
        else tracing.until(traced.whole, until)
    )
    functions = len(tracing.functions(found))
    return f"{len(found)}, {functions}" if calls else f"{functions}, {len(tracing.files(found))}"


STATIC = (
    Row("Docstrings that start without a verb or noun", "927 of 3,233 (28.7 %)", "< 1 %", _docstrings),
    Row("Test names without a subject", "559 of 2,903 (19.3 %)", "< 1 %", _test_names),
    Row(
        "Pages: mean sentence; sentences over 35 words; lines over 240 characters",
        "19.7 words; 10.8 %; 357", "18 words; < 3 %; 0", _documentation,
    ),
    Row("Configuration options; options missing from all pages", "245; 62", "<= 200; 0", _options),
    Row("Entries at the top level of `nova_lite`", "41", "<= 24", _entries),
    Row("Import cycles", "5 modules in cycles", "0", _cycles),
    Row("Files that know rescue", "24 in 11 folders", "<= 9", lambda: _files_of(r"rescu")),
    Row("Files that know key pairs", "21", "<= 4 for the resource", lambda: _files_of(r"keypair")),
    Row("Batching", "10 modules, 4+ primitives", "<= 5 modules, 1 primitive", _batching),
    Row("`except ServiceTooOld` at call sites", "13", "0", _too_old),
    Row("Calls of failpoints inside functions", "27", "0, but for the seams", _failpoints),
    Row("Modules that patch amqp, kombu, or oslo.messaging", "5", "1", _patchers),
)  # fmt: skip

TRACED = (
    Row(
        "`POST /servers` until the 202: functions, files",
        "206, 50", "<= 136, 33", lambda: _traced("create", "response"),
    ),
    Row(
        "`POST /servers` until `driver.spawn`: functions, files",
        "426, 100", "<= 326, 70", lambda: _traced("create", "FakeGuests.spawn"),
    ),
    Row(
        "`pause`, HTTP to recorded: calls, functions",
        "713, 169", "<= 400, 150", lambda: _traced("pause", None, calls=True),
    ),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
