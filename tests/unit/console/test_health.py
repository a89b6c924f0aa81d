"""Health endpoint of a console proxy, and the files that it serves."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.exceptions import ConfigurationError
from nova_lite.console.daemon import SERIAL, SPICE, ConsoleProxy
from tests.support.ports import free_port


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    file = tmp_path / "proxy.conf"
    console = f"[serial_console]\nserialproxy_host = 127.0.0.1\nserialproxy_port = {free_port()}\n"
    file.write_text(f"[DEFAULT]\ntransport_url = fake:/\n{console}[metrics]\nserialproxy_port = {free_port()}\n")
    made = cfg.ConfigOpts()
    configuration.register_opts(made)
    made(["--config-file", str(file)], project="nova-lite", default_config_files=[])
    return made


def test_proxy_serves_health_and_metrics(conf: cfg.ConfigOpts) -> None:
    daemon = ConsoleProxy(conf, SERIAL)
    daemon.prepare()
    try:
        daemon.health.mark_alive()
        for page, content in (("healthz", "ok"), ("metrics", "nova_lite_")):
            url = f"http://127.0.0.1:{conf.metrics.serialproxy_port}/{page}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
                assert content in answer.read().decode()
    finally:
        daemon.stop()


def test_spice_proxy_serves_the_files_of_its_own_client_by_default(conf: cfg.ConfigOpts) -> None:
    ConsoleProxy(conf, SPICE)
    assert conf.web == "/usr/share/spice-html5"
    conf.set_override("web", "/nowhere")
    with pytest.raises(ConfigurationError, match=r"no spice_auto\.html\)\. Debian has them in the package spice-html5"):
        ConsoleProxy(conf, SPICE).prepare()
