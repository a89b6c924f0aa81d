"""Configuration and values for tests of messages."""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import objects

FLAVOR = objects.Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=64, root_gb=1, extra_specs={"a": "b"})


def make_conf(tmp_path: Path, text: str = "") -> cfg.ConfigOpts:
    file = tmp_path / "bus.conf"
    file.write_text(f"[DEFAULT]\ntransport_url = fake:/\nrpc_response_timeout = 10\n{text}")
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_files=[])
    return conf
