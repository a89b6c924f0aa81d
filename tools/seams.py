#!/usr/bin/env python3
"""Checks that time, randomness, ids and threads come from one place each, so that a run can be repeated from a seed.

    tools/seams.py [--write]

`PLACES` has the modules that may use the names of `SEAMS`; other modules of `nova_lite` call these modules. Older uses
are debt, whose size tools/seams.txt has for each file and seam. More uses than listed are a finding. Fewer uses are one
as well, so that the list shrinks with them: ``--write`` removes from it what is paid, and adds nothing.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".txt")

#: Names of the standard library by seam. A name stands for everything below it, too.
SEAMS = {
    "clock": (
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.clock_gettime", "time.sleep", "datetime.datetime.now", "datetime.datetime.utcnow"),
    ),
    "ids": ("uuid.uuid1", "uuid.uuid4"),
    "randomness": ("random",),
    "threads": ("threading", "queue", "concurrent.futures.ThreadPoolExecutor"),
}

#: Modules that may use names of a seam. Failpoints stop a daemon from outside, as a machine would.
PLACES = {
    ("nova_lite/base/clock.py", "clock"),
    ("nova_lite/base/failpoints.py", "clock"),
    ("nova_lite/base/ids.py", "ids"),
    ("nova_lite/base/randomness.py", "randomness"),
    ("nova_lite/base/threads.py", "threads"),
    ("nova_lite/base/concurrency.py", "threads"),
}


def uses(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, seam, and name of each use. The import of a module alone is none."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {item.asname: item.name for item in node.names if item.asname}
            names |= {top: top for item in node.names if not item.asname for top in [item.name.partition(".")[0]]}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in parts and "(" not in ast.unparse(node):
            head, dot, rest = ast.unparse(node).partition(".")
            full = names.get(head, "") + dot + rest
            for seam, known in SEAMS.items():
                if any(f"{full}.".startswith(f"{name}.") for name in known):
                    yield node.lineno, seam, full


def debt(top: Path) -> dict[tuple[str, str], list[str]]:
    """Return the uses outside of their places, by file and seam."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted((top / "nova_lite").rglob("*.py")):
        name = str(path.relative_to(top))
        for line, seam, used in uses(ast.parse(path.read_text())):
            if (name, seam) not in PLACES:
                found.setdefault((name, seam), []).append(f"{name}:{line}: {used}: use {place(seam)}")
    return found


def place(seam: str) -> str:
    """Return the module of a seam."""
    return next(path for path, of in sorted(PLACES) if of == seam and path.endswith(f"{seam}.py"))


def listed(path: Path) -> Counter[tuple[str, str]]:
    """Return the numbers of a list, by file and seam."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return Counter({(name, seam): int(number) for name, seam, number in rows})


def main() -> int:
    """Print the findings, or shorten the list."""
    parser = argparse.ArgumentParser(description="Check the uses of time, randomness, ids and threads.")
    parser.add_argument("--write", action="store_true", help="remove from the list what is paid")
    found, allowed = debt(TOP), listed(LIST)
    if parser.parse_args().write:
        left = {key: min(len(found.get(key, ())), number) for key, number in allowed.items()}
        LIST.write_text("".join(f"{name} {seam} {number}\n" for (name, seam), number in sorted(left.items()) if number))
        allowed = listed(LIST)
    findings = [line for key, lines in found.items() if len(lines) > allowed[key] for line in lines]
    findings += [
        f"{name}: {seam}: the list has {number}, more than there are: run tools/seams.py --write"
        for (name, seam), number in allowed.items()
        if number > len(found.get((name, seam), ()))
    ]
    print("\n".join([*findings, f"{len(findings)} findings, {sum(allowed.values())} older uses"]), file=sys.stderr)
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
