#!/usr/bin/env python3
"""Draws the dashboards of ``etc/grafana`` as web pages, with the values of a Prometheus.

    tools/draw_dashboards.py http://127.0.0.1:9090 DIRECTORY [--minutes 30] [--set server=REGEX]

Each panel's query is drawn with real values, so that the dashboards can be looked at without Grafana. The pictures of
the documentation are made so. ``chromium --headless --screenshot=PNG PAGE`` makes a picture of a page.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import requests

DIRECTORY = Path(__file__).resolve().parents[1] / "etc" / "grafana"

#: Pixels of a column and of a row of Grafana's grid, and points of a graph.
COLUMN, ROW, POINTS = 58, 34, 120
COLORS = ("#1f78c1", "#629e51", "#e5ac0e", "#ba43a9", "#e24d42", "#0a9396", "#705da0", "#967302", "#58140c", "#447ebc")

_STYLE = """
body {{ margin: 0; background: #f4f5f5; font: 12px sans-serif; width: {width}px }}
h1 {{ font-size: 18px; margin: 10px 12px }}
main {{ position: relative; height: {height}px }}
section {{ position: absolute; box-sizing: border-box; background: #fff; border: 1px solid #dde; padding: 6px 8px }}
section {{ overflow: hidden }}
h2 {{ font-size: 12px; margin: 0 0 4px }}
.number {{ font-size: 30px; text-align: center; margin-top: 14px }}
.legend span {{ margin-right: 10px; white-space: nowrap }}
"""

Series = tuple[str, list[tuple[float, float]]]


class Prometheus:
    """Queries between ``start`` and ``end``. ``variables``: regular expressions by the name of a variable."""

    def __init__(self, url: str, start: float, end: float, variables: dict[str, str]) -> None:
        self._url = url
        self._variables = variables
        self.start = start
        self.end = end

    def range(self, target: dict[str, Any]) -> list[Series]:
        step = max(1, round((self.end - self.start) / POINTS))
        found = self._get("query_range", target, start=self.start, end=self.end, step=step)
        return [
            (_legend(target, item["metric"]), [(float(when), float(value)) for when, value in item["values"]])
            for item in found
        ]

    def value(self, target: dict[str, Any]) -> float | None:
        found = self._get("query", target, time=self.end)
        return float(found[0]["value"][1]) if found else None

    def _get(self, kind: str, target: dict[str, Any], **parameters: float) -> list[dict[str, Any]]:
        expr = target["expr"].replace("$__rate_interval", "1m")
        expr = re.sub(r"\$(\w+)", lambda found: self._variables.get(found[1], ".*"), expr)
        reply = requests.get(f"{self._url}/api/v1/{kind}", params={"query": expr, **parameters}, timeout=60)
        reply.raise_for_status()
        result: list[dict[str, Any]] = reply.json()["data"]["result"]
        return result


def _legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    if target["legendFormat"] == "__auto":
        return ", ".join(f"{name}={value}" for name, value in labels.items()) or target["expr"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def shown(value: float | None, unit: str) -> str:
    """Return a value with its unit, in a few characters."""
    if value is None or math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.1f} %"
    if unit == "s":
        return _seconds(value)
    base, suffix = (1024, {"bytes": "B", "Bps": "B/s"}[unit]) if unit in ("bytes", "Bps") else (1000, "")
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < base or prefix == "T":
            digits = 0 if value == round(value) else 2 if abs(value) < 10 else 1
            return f"{value:.{digits}f} {prefix}{suffix}".strip()
        value /= base
    raise AssertionError("unreachable")


def _seconds(value: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value * 1000:.0f} ms"


def graph(panel: dict[str, Any], series: list[Series], prometheus: Prometheus, width: int, height: int) -> str:
    """Return an SVG of lines, stacked if the panel says so, and its legend."""
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["custom"]["stacking"]["mode"] == "normal":
        series = _stacked(series)
    top = max([value for _, points in series for _, value in points if not math.isnan(value)], default=0.0) or 1.0
    left, bottom, span = 58, height - 16, prometheus.end - prometheus.start

    def place(when: float, value: float) -> str:
        x = left + (when - prometheus.start) / span * (width - left - 6)
        return f"{x:.1f},{bottom - value / top * (bottom - 8):.1f}"

    parts = []
    for part in range(5):
        y = bottom - part / 4 * (bottom - 8)
        parts.append(f'<line x1="{left}" x2="{width - 6}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e5ea"/>')
        parts.append(
            f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{shown(top * part / 4, defaults["unit"])}</text>'
        )
        when = prometheus.start + part / 4 * span
        anchor = {0: "start", 4: "end"}.get(part, "middle")
        label = time.strftime("%H:%M", time.gmtime(when))
        parts.append(f'<text x="{place(when, 0).split(",")[0]}" y="{height - 2}" text-anchor="{anchor}">{label}</text>')
    for number, (_, points) in enumerate(series):
        color = COLORS[number % len(COLORS)]
        for piece in _pieces(points, 1.5 * span / POINTS):
            line = " ".join(place(when, value) for when, value in piece)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    legend = "".join(
        f'<span style="color:{COLORS[number % len(COLORS)]}">&#9644; {html.escape(name)}</span>'
        for number, (name, _) in enumerate(series[:14])
    )
    svg = f'<svg width="{width}" height="{height}" font-size="10" fill="#555">{"".join(parts)}</svg>'
    return f'{svg}<div class="legend">{legend}</div>'


def _pieces(points: list[tuple[float, float]], gap: float) -> list[list[tuple[float, float]]]:
    """Return the points in pieces, between which values are missing for longer than ``gap``."""
    found: list[list[tuple[float, float]]] = []
    last = -math.inf
    for when, value in points:
        if math.isnan(value):
            continue
        if when - last > gap:
            found.append([])
        found[-1].append((when, value))
        last = when
    return found


def _stacked(series: Iterable[Series]) -> list[Series]:
    sums: dict[float, float] = {}
    found = []
    for name, points in series:
        for when, value in points:
            sums[when] = sums.get(when, 0.0) + value
        found.append((name, [(when, sums[when]) for when, _ in points]))
    return found


def page(dashboard: dict[str, Any], prometheus: Prometheus) -> str:
    sections = []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        width, height = place["w"] * COLUMN - 8, place["h"] * ROW - 8
        style = f"left:{place['x'] * COLUMN + 8}px;top:{place['y'] * ROW}px;width:{width}px;height:{height}px"
        if panel["type"] == "stat":
            value = prometheus.value(panel["targets"][0])
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            color = [step["color"] for step in steps if step["value"] is None or (value or 0) >= step["value"]][-1]
            text = shown(value, panel["fieldConfig"]["defaults"]["unit"])
            inside = f'<div class="number" style="color:{color}">{text}</div>'
        else:
            series = [item for target in panel["targets"] for item in prometheus.range(target)]
            inside = graph(panel, series, prometheus, width - 18, height - 62)
        sections.append(f'<section style="{style}"><h2>{html.escape(panel["title"])}</h2>{inside}</section>')
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    style = _STYLE.format(width=24 * COLUMN + 16, height=bottom * ROW)
    title = html.escape(dashboard["title"])
    head = f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
    return f"{head}<h1>{title}</h1><main>{''.join(sections)}</main>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus", metavar="URL")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--end", type=float, default=time.time())
    parser.add_argument("--set", action="append", default=[], metavar="NAME=REGEX", help="value of a variable")
    args = parser.parse_args()
    variables = dict(item.split("=", 1) for item in args.set)
    prometheus = Prometheus(args.prometheus, args.end - args.minutes * 60, args.end, variables)
    args.directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(DIRECTORY.glob("*.json")):
        target = args.directory / f"{path.stem}.html"
        target.write_text(page(json.loads(path.read_text()), prometheus))
        print(target)


if __name__ == "__main__":
    main()
