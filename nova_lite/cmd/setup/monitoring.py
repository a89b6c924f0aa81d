"""Files for Prometheus and Grafana: what to scrape, alert rules, dashboards.

They are in a directory that Prometheus' user can read. Prometheus itself is neither installed nor configured here.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import yaml

from nova_lite.base import exceptions
from nova_lite.base.trees import Left
from nova_lite.cmd.setup import directories, machine
from nova_lite.cmd.setup.settings import Settings
from nova_lite.conf.metrics import PORTS

DIRECTORY = Path("/etc/prometheus/nova-lite")

JOB, HOSTS_JOB = "nova-lite", "nova-lite-hosts"

_HEADER = "# {text}\n# Written by nova-lite-setup, which never changes this file again. See docs/howto/metrics.md.\n"
_MODE = 0o644


def write(wanted: Settings, configuration: Path, directory: Path) -> bool:
    """Write what is missing, and replace the rules and dashboards by those of this version.

    Returns whether a file was missing.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    scraped = {"scrape_configs": scrape_configs(wanted.host, _workers(configuration / "api.conf"))}
    whole = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(directory / "rules.yml")],
        **scraped,
    }
    machine.replace(directory / "rules.yml", (machine.FILES / "prometheus" / "rules.yml").read_text(), _MODE)
    for source in sorted((machine.FILES / "grafana").glob("*.json")):
        machine.replace(directory / "dashboards" / source.name, source.read_text(), _MODE)
    written = _write_once(directory / "scrape.yml", "Endpoints of the cloud, for scrape_config_files.", scraped)
    return written | _write_once(directory / "prometheus.yml", "A configuration of Prometheus for this cloud.", whole)


def remove(directory: Path) -> list[Left]:
    """Remove the files, and the directory above if nothing else is there. Return what stays."""
    left = directories.remove(directory)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
    return left


def scrape_configs(machine_name: str, workers: int) -> list[dict[str, Any]]:
    """Return the daemons of this controller, and the discovery of all compute hosts by its conductor."""
    static = []
    for binary, (_, port) in PORTS.items():
        daemon = binary.removeprefix("nova-lite-")
        if daemon != "compute":
            ports = range(port, port + (workers if daemon == "api" else 1))
            targets = [f"127.0.0.1:{number}" for number in ports]
            static.append({"targets": targets, "labels": {"daemon": daemon, "machine": machine_name}})
    url = f"http://127.0.0.1:{PORTS['nova-lite-conductor'][1]}/targets"
    return [
        {"job_name": JOB, "static_configs": static},
        {"job_name": HOSTS_JOB, "http_sd_configs": [{"url": url, "refresh_interval": "60s"}]},
    ]


def _workers(path: Path) -> int:
    """Return the number of processes of the API, each of which has a port. Raises `ConfigurationError`."""
    text = machine.setting(path, "api", "workers") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise exceptions.ConfigurationError(
            reason=f"{path}: [api] workers = {text[:64]} is not a number from 1 to 256."
        )
    return int(text)


def _write_once(path: Path, text: str, content: dict[str, Any]) -> bool:
    return machine.write_once(path, _HEADER.format(text=text) + yaml.safe_dump(content, sort_keys=False), mode=_MODE)
