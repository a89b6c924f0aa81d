"""The daemon when the broker is away: one line per attempt, no traceback, and it can be stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import exceptions
from nova_lite.cmd import scheduler
from tests.support.waiting import wait_for

COMMAND = [sys.executable, "-c", "import sys; from nova_lite.cmd.scheduler import main; sys.exit(main())"]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("mode", ["threading", "eventlet"])
def test_daemon_without_broker_logs_one_line_per_attempt(mode: str, tmp_path: Path) -> None:
    config = tmp_path / "nova-lite.conf"
    config.write_text(
        f"[DEFAULT]\ntransport_url = rabbit://guest:guest@127.0.0.1:{closed_port()}/\n[metrics]\nenabled = false\n"
    )
    output = tmp_path / "output"
    with output.open("w") as stream:
        daemon = subprocess.Popen(
            [*COMMAND, "--config-file", str(config)],
            stdout=stream,
            stderr=stream,
            env=os.environ | {"NOVA_LITE_CONCURRENCY": mode},
        )
        try:
            wait_for("two lines", lambda: output.read_text().count("\n") >= 2, 30)
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(10) == 0
        finally:
            daemon.kill()
            daemon.wait()
    *attempts, last = output.read_text().splitlines()
    assert len(attempts) >= 2
    for line in attempts:
        assert "nova-lite-scheduler cannot start yet: The message broker cannot be reached: 127.0.0.1:" in line
        assert line.endswith("Trying again in 2 s.")
    assert last.endswith("nova-lite-scheduler is stopping")


def test_attempts_to_connect_share_one_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport holds connections and threads; one for each attempt would add up while the broker is away."""
    made = []

    class Broken(scheduler.rpc.Transport):
        def __init__(self, conf: cfg.ConfigOpts, role: str | None = None, host: str | None = None) -> None:
            made.append(self)

        def cleanup(self) -> None:
            made.append("cleaned up")

    def unavailable(*arguments: object, **named: object) -> None:
        raise exceptions.MessagingUnavailable(what="serving")

    monkeypatch.setattr(scheduler.SchedulerDaemon, "serve_rpc", unavailable)
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([], default_config_files=[])
    daemon = scheduler.SchedulerDaemon(conf, connect=Broken)
    for _ in range(3):
        with pytest.raises(exceptions.MessagingUnavailable):
            daemon.prepare()
    daemon.cleanup()
    assert len(made) == 2
    assert made[-1] == "cleaned up"


def test_unknown_filter_ends_the_daemon_with_one_line(tmp_path: Path) -> None:
    config = tmp_path / "nova-lite.conf"
    config.write_text(
        f"[DEFAULT]\nlog_file = {tmp_path / 'log'}\n[scheduler]\nenabled_filters = RamFilter, NoSuchFilter\n"
    )
    ended = subprocess.run(
        [*COMMAND, "--config-file", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("nova-lite-scheduler: [scheduler] enabled_filters: unknown NoSuchFilter. Known are ")
