"""Pictures of what `benchmarks/api.py --json` has written: one result, or two and more beside each other.

::

    pip install .[benchmarks]
    benchmarks/plots.py new.json --directory plots
    benchmarks/plots.py old.json new.json --directory plots     # in this order

Writes ``reads.png`` (requests a second, and CPU of the daemons a request), ``servers.png`` (seconds until servers are
ACTIVE and gone, and CPU of the daemons for each) and ``memory.png`` (MB by daemon). A result is known by its file's
name.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

Row = dict[str, Any]
Results = dict[str, dict[str, Row]]
#: Bars: a label, and a value for each result that has one.
Bars = dict[str, list[float]]

MEMORY = "memory, MB"


def of_daemons(values: dict[str, float]) -> float:
    """Return the CPU without the client's."""
    return sum(value for name, value in values.items() if name != "client")


def bars_of(results: Results, wanted: Any) -> Bars:
    """Return the bars of ``wanted(name, row)``: labels and values that every result has."""
    found = [dict(pair for name, row in rows.items() for pair in wanted(name, row)) for rows in results.values()]
    return {label: [item[label] for item in found] for label in found[0] if all(label in item for item in found)}


def draw(path: Path, names: list[str], panels: dict[str, Bars]) -> None:
    """Draw a panel for each unit, with a group of bars for each label."""
    panels = {title: bars for title, bars in panels.items() if bars}
    if not panels:
        return
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(7 * len(panels), 1.5 + 0.4 * max(map(len, panels.values()))), squeeze=False
    )
    height = 0.8 / len(names)
    for axes, (title, bars) in zip(all_axes[0], panels.items(), strict=True):
        for number, name in enumerate(names):
            places = [index + number * height for index in range(len(bars))]
            drawn = axes.barh(places, [values[number] for values in bars.values()], height, label=name)
            axes.bar_label(drawn, fmt="%.4g", padding=3, fontsize=8)
        axes.set_yticks([index + 0.4 - height / 2 for index in range(len(bars))], list(bars))
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(title)
    if len(names) > 1:
        all_axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(path)


def plots(results: Results, directory: Path) -> None:
    names = list(results)
    directory.mkdir(parents=True, exist_ok=True)
    reads: dict[str, Bars] = {
        "requests a second": bars_of(
            results, lambda name, row: [(name, row["per_second"])] if "per_second" in row else []
        ),
        "ms of CPU a request": bars_of(
            results, lambda name, row: [(name, of_daemons(row["cpu_ms"]))] if "per_second" in row else []
        ),
    }
    draw(directory / "reads.png", names, reads)

    def seconds(name: str, row: Row) -> list[tuple[str, float]]:
        if "active_ms" in row:
            return [(f"{name}: ACTIVE", row["active_ms"] / 1000), (f"{name}: gone", row["gone_ms"] / 1000)]
        return [(f"{name}: ACTIVE", row["active_s"]), (f"{name}: gone", row["gone_s"])] if "active_s" in row else []

    def cpu(name: str, row: Row) -> list[tuple[str, float]]:
        kinds = {"cpu_ms": "boot", "delete_cpu_ms": "delete"} if "active_s" in row else {}
        return [(f"{name}: {kind}", of_daemons(row[key])) for key, kind in kinds.items()]

    servers = {"seconds": bars_of(results, seconds), "ms of CPU a server": bars_of(results, cpu)}
    draw(directory / "servers.png", names, servers)
    memory = bars_of(results, lambda name, row: list(row.items()) if name == MEMORY else [])
    draw(directory / "memory.png", names, {"MB (PSS)": memory})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the pictures go")
    options = parser.parse_args()
    if len({file.stem for file in options.results}) < len(options.results):
        parser.error("results are known by their files' names, which have to differ")
    plots({file.stem: json.loads(file.read_text()) for file in options.results}, options.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
