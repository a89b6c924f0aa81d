"""A transport in the process of a test, whose messages can be lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[rpc.Transport]:
    """Provide a transport within this process."""
    file = tmp_path / "bus.conf"
    file.write_text("[DEFAULT]\ntransport_url = fake:/\n[rpc]\nself_check_interval = 1\nself_check_misses = 2\n")
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_files=[])
    transport = rpc.Transport(conf)
    yield transport
    transport.cleanup()
    conf.reset()


@pytest.fixture
def no_answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the transport lose all further messages."""

    def lose() -> None:
        def call(*_: Any, **__: Any) -> None:
            raise exceptions.MessagingUnavailable(what="echo")

        monkeypatch.setattr(rpc.Transport, "call", call)

    return lose
