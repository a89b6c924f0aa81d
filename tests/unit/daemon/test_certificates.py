"""Certificates of a host or proxy: the metric of their end, and the lines in time."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path

import pytest

from nova_lite.base import host_certificates, metrics
from nova_lite.base.host_certificates import Authority
from nova_lite.daemon.certificates import CertificateWatch


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(str(tmp_path / "authority"))
    made.create()
    return made


def lines(directory: Path, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    caplog.clear()
    CertificateWatch(str(directory)).check()
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_end_of_each_certificate_is_a_metric(authority: Authority, tmp_path: Path) -> None:
    directory = tmp_path / "host-1"
    made = authority.issue("host-1", ["192.0.2.1"], str(directory), 90)
    consoles = authority.issue_console("host-1", ["192.0.2.1"], str(directory / "consoles"))
    values = {labels: value for _, (labels, value) in CertificateWatch(str(directory)).samples()}
    assert values[(f"{directory}/server-cert.pem",)] == made.not_valid_after_utc.timestamp()
    assert values[(f"{directory}/consoles/server-cert.pem",)] == consoles.not_valid_after_utc.timestamp()
    names = ("ca-cert.pem", "server-cert.pem", "client-cert.pem", "consoles/ca-cert.pem", "consoles/server-cert.pem")
    assert values.keys() == {(f"{directory}/{name}",) for name in names}
    assert metrics.GAUGES[metrics.CERTIFICATE_END].labels == ("file",)


@pytest.mark.parametrize(("days", "level"), [(29, "WARNING"), (31, None)])
def test_certificate_that_ends_soon_is_a_warning(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, level: str | None
) -> None:
    authority.issue_proxy("proxy", str(tmp_path / "proxy"), days)
    found = lines(tmp_path / "proxy", caplog)
    assert [name for name, _ in found] == ([level] if level else [])
    if level:
        assert f"Certificate {tmp_path}/proxy/client-cert.pem ends at " in found[0][1]


def test_certificate_that_has_ended_is_an_error(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_certificates, "SKEW", datetime.timedelta(days=3))
    authority.issue_proxy("proxy", str(tmp_path / "proxy"), -1)
    ((level, line),) = lines(tmp_path / "proxy", caplog)
    assert level == "ERROR" and f"Certificate {tmp_path}/proxy/client-cert.pem ended at " in line


def test_file_that_is_no_certificate_is_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "server-cert.pem").write_text("what")
    ((level, line),) = lines(tmp_path, caplog)
    assert level == "ERROR" and "server-cert.pem is no certificate" in line


def test_host_without_certificates_has_nothing_to_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert lines(tmp_path / "none", caplog) == []
    assert CertificateWatch(str(tmp_path / "none")).samples() == []


def test_single_files_are_watched_besides_the_directory(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue_service("api", ["192.0.2.1"], str(tmp_path / "api"), 20)
    path = str(tmp_path / "api" / "server-cert.pem")
    watch = CertificateWatch(str(tmp_path / "none"), [path])
    ((name, (labels, _)),) = watch.samples()
    assert (name, labels) == (metrics.CERTIFICATE_END, (path,))
    watch.check()
    assert f"Certificate {path} ends at " in caplog.text
    caplog.clear()
    Path(path).unlink()
    watch.check()
    assert path in caplog.text
