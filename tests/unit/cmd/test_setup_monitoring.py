"""Files for Prometheus that ``nova-lite-setup`` writes."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from nova_lite.base import exceptions
from nova_lite.cmd.setup import machine, monitoring
from nova_lite.cmd.setup.settings import Settings
from nova_lite.conf.metrics import PORTS

WANTED = Settings("127.0.0.1", "sqlite", "RegionOne", "mine", "10.64.0.0/10", "controller1")


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """Directories of the configuration and of the files for Prometheus."""
    (tmp_path / "api.conf").write_text(machine.ini({"api": {"workers": "2"}}))
    return tmp_path, tmp_path / "prometheus" / "nova-lite"


def test_every_daemon_of_the_controller_is_scraped_at_its_port(place: tuple[Path, Path]) -> None:
    assert monitoring.write(WANTED, *place) is True
    found = yaml.safe_load((place[1] / "scrape.yml").read_text())
    static, discovered = found["scrape_configs"]
    targets = {item["labels"]["daemon"]: item["targets"] for item in static["static_configs"]}
    assert targets["api"] == ["127.0.0.1:9780", "127.0.0.1:9781"]
    assert targets["conductor"] == ["127.0.0.1:9770"]
    assert {f"nova-lite-{daemon}" for daemon in targets} == PORTS.keys() - {"nova-lite-compute"}
    assert {item["labels"]["machine"] for item in static["static_configs"]} == {"controller1"}
    assert discovered["http_sd_configs"][0]["url"] == "http://127.0.0.1:9770/targets"


def test_prometheus_accepts_the_configuration_and_its_rules(place: tuple[Path, Path]) -> None:
    monitoring.write(WANTED, *place)
    found = subprocess.run(
        ["promtool", "check", "config", str(place[1] / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "1 rule files found" in found.stdout


def test_other_users_may_read_the_files_and_every_dashboard_is_there(place: tuple[Path, Path]) -> None:
    monitoring.write(WANTED, *place)
    written = [path for path in place[1].rglob("*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in written)
    names = {path.name for path in (machine.FILES / "grafana").iterdir()}
    assert {path.name for path in (place[1] / "dashboards").iterdir()} == names != set()


def test_changes_of_an_operator_stay_and_rules_are_those_of_this_version(place: tuple[Path, Path]) -> None:
    monitoring.write(WANTED, *place)
    (place[1] / "scrape.yml").write_text("mine")
    (place[1] / "rules.yml").write_text("groups: []")
    assert monitoring.write(WANTED, *place) is False
    assert (place[1] / "scrape.yml").read_text() == "mine"
    assert "NovaLiteHostDown" in (place[1] / "rules.yml").read_text()


def test_removal_leaves_the_files_of_prometheus_itself(place: tuple[Path, Path]) -> None:
    monitoring.write(WANTED, *place)
    own = place[1].parent / "prometheus.yml"
    own.write_text("")
    monitoring.remove(place[1])
    assert [path.name for path in place[1].parent.iterdir()] == ["prometheus.yml"]
    own.unlink()
    monitoring.remove(place[1])
    assert not place[1].parent.exists()


@pytest.mark.parametrize("workers", ["many", "0", "1000"])
def test_number_of_workers_that_makes_no_ports_is_named(place: tuple[Path, Path], workers: str) -> None:
    (place[0] / "api.conf").write_text(machine.ini({"api": {"workers": workers}}))
    with pytest.raises(exceptions.ConfigurationError, match=r"\[api\] workers = .* is not a number from 1 to 256"):
        monitoring.write(WANTED, *place)
