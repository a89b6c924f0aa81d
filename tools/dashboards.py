#!/usr/bin/env python3
"""Writes the Grafana dashboards of ``etc/grafana``, in Grafana's classic JSON model. ``tools/pages`` runs it.

A dashboard is a list of rows of panels below. A unit test compares the files with this program, and the metrics and
labels of each query with the ones of the daemons.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).resolve().parents[1] / "etc" / "grafana"

#: Version of the JSON model: Grafana 10.4. Newer versions of Grafana convert it.
SCHEMA_VERSION = 39
WIDTH = 24

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Query(NamedTuple):
    """PromQL, and the legend of its series: ``{{label}}`` stands for a label's value."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """A graph, or with ``kind`` ``stat`` a number. ``unit``: one of Grafana's. ``red``: value from which a number is
    red.
    """

    title: str
    queries: tuple[Query, ...]
    text: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    red: float | None = None
    stacked: bool = False


class Dashboard(NamedTuple):
    """``rows``: panels that share a row equally. ``variables``: name, and query of its values."""

    name: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]
    variables: tuple[tuple[str, str], ...] = ()


def graph(title: str, *queries: tuple[str, str], unit: str = "short", text: str = "", stacked: bool = False) -> Panel:
    return Panel(title, tuple(Query(*query) for query in queries), text, unit, stacked=stacked)


def number(title: str, expr: str, red: float | None = None, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, (Query(expr),), text, unit, "stat", red)


def _p95(metric: str, *labels: str, matcher: str = "") -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile(0.95, sum by ({by}) (rate({metric}_bucket{matcher}[$__rate_interval])))"


def _rate(metric: str, *labels: str, matcher: str = "") -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{matcher}[$__rate_interval]))"


_DAEMON = "{{daemon}} {{machine}}"

CLOUD = Dashboard(
    "nova-lite-cloud",
    "nova_lite: cloud",
    (
        (
            number("Hosts up", 'max(nova_lite_hosts{state="up"})'),
            number("Hosts down", 'max(nova_lite_hosts{state="down"})', red=1),
            number("Open operations", "sum(max by (action, step) (nova_lite_actions_open)) or vector(0)"),
            number("Past their deadline", "max(nova_lite_actions_past_deadline)", red=1),
            number("Daemons that are not ready", "count(nova_lite_ready == 0) or vector(0)", red=1),
            number(
                "Failed requests",
                'sum(rate(nova_lite_api_request_seconds_count{status=~"5.."}[5m])) '
                "/ sum(rate(nova_lite_api_request_seconds_count[5m])) or vector(0)",
                red=0.05,
                unit="percentunit",
            ),
        ),
        (
            graph(
                "Requests of the compute API",
                (_rate("nova_lite_api_request_seconds_count", "status"), "{{status}}"),
                unit="reqps",
                stacked=True,
            ),
            graph(
                "Time of requests, 95th percentile",
                (f"topk(8, {_p95('nova_lite_api_request_seconds', 'method', 'route')})", "{{method}} {{route}}"),
                unit="s",
            ),
        ),
        (
            graph(
                "Open operations by kind",
                ("sum by (action) (max by (action, step) (nova_lite_actions_open))", "{{action}}"),
                stacked=True,
            ),
            graph(
                "Operations that ended, per minute",
                (f"60 * {_rate('nova_lite_actions_ended_total', 'action', 'result')}", "{{action}} {{result}}"),
            ),
            graph(
                "Builds per minute",
                (f"60 * {_rate('nova_lite_builds_total', 'outcome')}", "{{outcome}}"),
                (f"60 * {_rate('nova_lite_builds_failed_total', 'reason')}", "ERROR: {{reason}}"),
            ),
        ),
        (
            graph(
                "Due operations that wait",
                ("max(nova_lite_action_oldest_due_seconds)", "oldest"),
                unit="s",
                text="Above a minute: no conductor continues with an operation.",
            ),
            graph(
                "Repeated work per minute",
                (f"60 * {_rate('nova_lite_action_retries_total', 'action')}", "retry of {{action}}"),
                ("60 * sum(rate(nova_lite_db_transaction_retries_total[$__rate_interval]))", "transaction"),
                ("60 * sum(rate(nova_lite_action_leases_lost_total[$__rate_interval]))", "lost lease"),
            ),
            graph(
                "Oldest heartbeats",
                ("max by (binary) (nova_lite_heartbeat_oldest_seconds)", "{{binary}}"),
                unit="s",
            ),
        ),
        (
            graph(
                "Messages that wait",
                ("max by (queue) (nova_lite_queue_messages)", "broker: {{queue}}"),
                ("sum by (daemon) (nova_lite_rpc_waiting)", "in the {{daemon}}"),
                ("sum by (daemon) (nova_lite_api_waiting)", "requests in the {{daemon}}"),
            ),
            graph(
                "Refused for want of time",
                (_rate("nova_lite_api_refused_total", "priority"), "API: {{priority}}"),
                (_rate("nova_lite_rpc_refused_total", "priority"), "conductor: {{priority}}"),
                (_rate("nova_lite_rpc_expired_total", "daemon"), "expired in the {{daemon}}"),
                unit="reqps",
            ),
            graph(
                "Time of RPC methods, 95th percentile",
                (f"topk(8, {_p95('nova_lite_rpc_seconds', 'daemon', 'method')})", "{{daemon}} {{method}}"),
                unit="s",
            ),
        ),
        (
            graph(
                "Connections to the database",
                ("sum by (machine) (nova_lite_db_pool_used)", "used, {{machine}}"),
                ("sum by (machine) (nova_lite_db_pool_size)", "most, {{machine}}"),
            ),
            graph(
                "Waits for a connection, 95th percentile", (_p95("nova_lite_db_pool_wait_seconds"), "wait"), unit="s"
            ),
            graph(
                "Backups of servers by policies",
                (f"3600 * {_rate('nova_lite_server_backups_total', 'result')}", "{{result}} per hour"),
                ("sum(max by (policy) (nova_lite_backup_policy_unmet))", "servers without their last one"),
            ),
            graph(
                "Notifications",
                ("max by (channel) (nova_lite_notifications_waiting)", "wait for the {{channel}}"),
                (f"60 * {_rate('nova_lite_notifications_sent_total', 'channel')}", "sent to the {{channel}}"),
                (f"60 * {_rate('nova_lite_notifications_failed_total', 'channel')}", "failed: {{channel}}"),
                (f"60 * {_rate('nova_lite_notifications_dropped_total', 'channel', 'reason')}", "lost: {{reason}}"),
            ),
        ),
        (
            graph(
                "CPU of daemons",
                (
                    "sum by (daemon, machine) (rate(process_cpu_seconds_total[$__rate_interval]))",
                    "{{daemon}} {{machine}}",
                ),
                text="In CPUs. Compute hosts are on the dashboard of hosts.",
            ),
            graph(
                "Memory of daemons",
                ("sum by (daemon, machine) (process_resident_memory_bytes)", _DAEMON),
                unit="bytes",
            ),
        ),
    ),
)

_HOST = '{daemon="compute", machine=~"$machine"}'

HOSTS = Dashboard(
    "nova-lite-hosts",
    "nova_lite: compute hosts",
    (
        (
            number("Hypervisors that answer", f"sum(nova_lite_hypervisor_up{_HOST})"),
            number("Hypervisors that do not", f"count(nova_lite_hypervisor_up{_HOST} == 0) or vector(0)", red=1),
            number(
                "Hosts without metrics",
                'count(up{daemon="compute", machine=~"$machine"} == 0) or vector(0)',
                red=1,
            ),
            number("Next end of a certificate", f"min(nova_lite_certificate_end_seconds{_HOST}) - time()", unit="s"),
        ),
        (
            graph("Builds and operations", (f"sum by (machine, kind) (nova_lite_jobs{_HOST})", "{{machine}} {{kind}}")),
            graph(
                "Builds that may run at a time",
                (f"sum by (machine) (nova_lite_build_slots{_HOST})", "{{machine}}"),
                text="Fewer on a hypervisor that is slow.",
            ),
        ),
        (
            graph(
                "Time of calls to libvirt, 95th percentile",
                (f"topk(10, {_p95('nova_lite_hypervisor_call_seconds', 'call', matcher=_HOST)})", "{{call}}"),
                unit="s",
            ),
            graph(
                "Calls to libvirt",
                (f"topk(10, {_rate('nova_lite_hypervisor_call_seconds_count', 'call', matcher=_HOST)})", "{{call}}"),
                unit="ops",
            ),
            graph(
                "Broken connections to libvirt",
                (_rate("nova_lite_hypervisor_breaks_total", "machine", "call", matcher=_HOST), "{{machine}} {{call}}"),
                unit="ops",
            ),
        ),
        (
            graph(
                "Time of images, 95th percentile",
                (_p95("nova_lite_image_fetch_seconds", "machine", matcher=_HOST), "{{machine}}"),
                unit="s",
            ),
            graph(
                "Invalid filters",
                (f"sum by (machine, kind) (nova_lite_filters_skipped_total{_HOST})", "{{machine}} {{kind}}"),
            ),
            graph(
                "Memory of the daemon",
                ('process_resident_memory_bytes{daemon="compute", machine=~"$machine"}', "{{machine}}"),
                unit="bytes",
            ),
        ),
    ),
    (("machine", 'label_values(up{daemon="compute"}, machine)'),),
)

_SERVER = '{project=~"$project", server=~"$server"}'


def _servers(metric: str) -> str:
    return f"topk(20, {_rate(metric, 'server', matcher=_SERVER)})"


SERVERS = Dashboard(
    "nova-lite-servers",
    "nova_lite: servers",
    (
        (
            number("Running servers with metrics", f"count(nova_lite_server_memory_limit_bytes{_SERVER}) or vector(0)"),
            number("CPUs in use", f"sum(rate(nova_lite_server_cpu_seconds_total{_SERVER}[$__rate_interval]))"),
            number("Memory in use", f"sum(nova_lite_server_memory_bytes{_SERVER})", unit="bytes"),
            number("Servers left out", "sum(nova_lite_servers_left_out)", red=1, text="Raise [metrics] servers."),
            number("Age of these figures", "max(nova_lite_server_metrics_age_seconds)", red=60, unit="s"),
        ),
        (
            graph("CPUs", (_servers("nova_lite_server_cpu_seconds_total"), "{{server}}"), text="The first 20."),
            graph(
                "Memory of the host",
                (f"topk(20, sum by (server) (nova_lite_server_memory_bytes{_SERVER}))", "{{server}}"),
                unit="bytes",
            ),
        ),
        (
            graph("Read", (_servers("nova_lite_server_disk_read_bytes_total"), "{{server}}"), unit="Bps"),
            graph("Written", (_servers("nova_lite_server_disk_written_bytes_total"), "{{server}}"), unit="Bps"),
            graph(
                "Requests of disks",
                (_servers("nova_lite_server_disk_reads_total"), "{{server}} reads"),
                (_servers("nova_lite_server_disk_writes_total"), "{{server}} writes"),
                unit="iops",
            ),
        ),
        (
            graph("Received", (_servers("nova_lite_server_network_received_bytes_total"), "{{server}}"), unit="Bps"),
            graph("Sent", (_servers("nova_lite_server_network_sent_bytes_total"), "{{server}}"), unit="Bps"),
            graph("Dropped packets", (_servers("nova_lite_server_network_dropped_total"), "{{server}}"), unit="pps"),
        ),
    ),
    (
        ("project", "label_values(nova_lite_server_memory_limit_bytes, project)"),
        ("server", 'label_values(nova_lite_server_memory_limit_bytes{project=~"$project"}, server)'),
    ),
)

DASHBOARDS = (CLOUD, HOSTS, SERVERS)


def model(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        height = 4 if row[0].kind == "stat" else 8
        width = WIDTH // len(row)
        for place, panel in enumerate(row):
            position = {"x": place * width, "y": top, "w": width, "h": height}
            panels.append(_panel(len(panels) + 1, panel, position))
        top += height
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["nova_lite"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [
            {
                "title": "nova_lite",
                "type": "dashboards",
                "tags": ["nova_lite"],
                "asDropdown": True,
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_source_variable(), *(_variable(*variable) for variable in dashboard.variables)]},
        "panels": panels,
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "current": {},
        "options": [],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "current": {},
        "options": [],
    }


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "mappings": [],
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "stat":
        options: dict[str, Any] = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
        }
    else:
        options = {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults["min"] = 0
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def text(dashboard: Dashboard) -> str:
    return json.dumps(model(dashboard), indent=2) + "\n"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        (DIRECTORY / f"{dashboard.name}.json").write_text(text(dashboard))


if __name__ == "__main__":
    main()
