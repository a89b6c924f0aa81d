"""Alert rules and dashboards: Prometheus accepts them, and every metric and label in them exists."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from nova_lite.base import metrics

TOP = Path(__file__).resolve().parents[3]
RULES = TOP / "etc" / "prometheus" / "rules.yml"
RULES_TEST = Path(__file__).parent / "prometheus" / "alerts_test.yml"
DASHBOARDS = sorted((TOP / "etc" / "grafana").glob("*.json"))

#: Labels of the scrape configuration and of histograms, and metrics of Prometheus' client library.
TARGET_LABELS = {"job", "instance", "daemon", "machine"}
OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}

_MATCHED = re.compile(r"([a-z_]\w+)\{([^{}]*)\}")
_METRIC = re.compile(r"\b(?:nova_lite|process)_\w+|\bup\b")
_BY = re.compile(r"\b(?:by|without) \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield f"{path.stem}: {panel['title']}", panel


def expressions() -> Iterator[tuple[str, str, str]]:
    """Yield where each query is, the query, and the text that shows its labels."""
    for rule in rules():
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    for name, panel in panels():
        for target in panel["targets"]:
            yield name, target["expr"], target["legendFormat"]
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"][1:]:
            yield f"{path.stem}: ${variable['name']}", variable["definition"], ""


def labels_by_name() -> dict[str, set[str]]:
    """Return the labels of each series of the metrics page."""
    found: dict[str, set[str]] = {name: set(TARGET_LABELS) for name in OTHERS}
    for row in metrics.markdown_table().splitlines()[2:]:
        name, kind, labels = (cell.strip(" `") for cell in row.split("|")[1:4])
        own = {label.strip() for label in labels.split(",") if label.strip()} | TARGET_LABELS
        if kind == "histogram":
            found |= {f"{name}_bucket": own | {"le"}, f"{name}_count": own, f"{name}_sum": own}
        else:
            found[name] = own
    return found


ALL = list(expressions())
SERIES = labels_by_name()


@pytest.mark.parametrize(
    ("where", "expr", "shown"), ALL, ids=[f"{where} {place}" for place, (where, _, _) in enumerate(ALL)]
)
def test_metrics_and_labels_of_a_query_exist(where: str, expr: str, shown: str) -> None:
    used = set(_METRIC.findall(re.sub(r'"[^"]*"', "", expr)))
    assert used, "the query reads no metric of ours"
    assert used <= SERIES.keys()
    for name, matchers in _MATCHED.findall(expr):
        named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)))
        assert named <= SERIES[name], f"{name} has no label {named - SERIES[name]}"
    known = set.union(*(SERIES[name] for name in used))
    grouped = {label.strip() for text in _BY.findall(expr) for label in text.split(",")}
    assert grouped <= known
    named = set(re.findall(r"\{\{(?: \$labels\.)?(\w+) ?\}\}", shown))
    assert named <= (grouped if grouped else known), "the text names a label that the query has not"


def test_query_check_finds_metrics_and_labels_that_do_not_exist() -> None:
    for expr in ('nova_lite_hosts{stat="down"}', "max(nova_lite_host)", "sum by (hots) (nova_lite_host_down)"):
        with pytest.raises(AssertionError):
            test_metrics_and_labels_of_a_query_exist("", expr, "")


def promtool(*arguments: str) -> None:
    found = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=TOP)
    assert found.returncode == 0, found.stdout + found.stderr


def test_prometheus_accepts_the_rules() -> None:
    promtool("check", "rules", str(RULES))


def test_alerts_fire_as_in_their_test() -> None:
    promtool("test", "rules", str(RULES_TEST))


def test_every_alert_has_a_test_that_fires_it() -> None:
    text = RULES_TEST.read_text()
    assert [rule["alert"] for rule in rules() if rule["alert"] not in text] == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-") for heading in headings}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_names_its_section_of_the_documentation(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (TOP / "docs" / page).is_file()
    assert not anchor or anchor in anchors(TOP / "docs" / page)
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_page_on_metrics_names_every_alert() -> None:
    page = (TOP / "docs" / "howto" / "metrics.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in page] == []


# --- dashboards


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboards", TOP / "tools" / "dashboards.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["dashboards"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_of_dashboards_are_those_that_the_program_writes() -> None:
    made = program()
    assert {path.stem: path.read_text() for path in DASHBOARDS} == {
        dashboard.name: made.text(dashboard) for dashboard in made.DASHBOARDS
    }


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_are_complete_and_do_not_overlap(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == path.stem
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken
        taken |= cells
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
