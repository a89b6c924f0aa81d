"""Notifications: off by default, and never blocking."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.daemon import notifications
from nova_lite.daemon.notifications import Notifications
from nova_lite.scheduler.manager import SchedulerManager
from tests.unit.scheduler.builders import flavor, host, spec

CONTEXT = get_admin_context()


def configured(path: Path, driver: str = "") -> cfg.ConfigOpts:
    """Return the options of a process with this notification driver."""
    file = path / "nova-lite.conf"
    file.write_text(f"[DEFAULT]\ntransport_url = fake:/\n[oslo_messaging_notifications]\ndriver = {driver}\n")
    options = cfg.ConfigOpts()
    configuration.register_opts(options)
    options(["--config-file", str(file)], default_config_files=[])
    return options


class Slow:
    """A notifier that blocks until a test releases it."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.sent: list[str] = []

    def info(self, context: Any, event_type: str, payload: dict[str, Any]) -> None:
        assert self.may.wait(10)
        self.sent.append(event_type)
        if event_type == "bad":
            raise OSError("broker away")


def test_notifications_are_off_by_default(tmp_path: Path) -> None:
    notify = Notifications(configured(tmp_path), "nova-scheduler.h1")
    notify.emit(CONTEXT, "event", {})
    assert "notifications" not in {thread.name for thread in threading.enumerate() if thread.is_alive()}
    notify.close()


def test_notifications_of_a_slow_or_failing_broker_do_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    monkeypatch.setattr(notifications.messaging, "Notifier", lambda *arguments, **options: slow)
    monkeypatch.setattr(notifications, "BACKLOG", 3)
    notify = Notifications(configured(tmp_path, "messagingv2"), "nova-scheduler.h1")
    for name in ("bad", "a", "b", "c", "d", "e"):
        notify.emit(CONTEXT, name, {})
    assert slow.sent == []
    slow.may.set()
    notify.close()
    assert slow.sent[0] == "bad"
    assert 3 <= len(slow.sent) <= 5, "the rest did not find room, and was dropped"


def test_notifications_of_scheduling_decisions_are_sent(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    manager = SchedulerManager(
        configured(tmp_path), None, notify=lambda context, event, payload: told.append((event, payload))
    )  # type: ignore[arg-type]
    manager._hosts.apply([host(1)])
    manager._ready = manager._is_current = True
    manager.select_destinations(CONTEXT, spec())
    with pytest.raises(exceptions.NoValidHost):
        manager.select_destinations(CONTEXT, spec(flavor=flavor(memory_mb=9999)))
    assert [event for event, _ in told] == [f"scheduler.select_destinations.{part}" for part in ("start", "end") * 2]
    assert told[1][1]["hosts"] == ["host1"]
    assert "RamFilter" in told[3][1]["reason"]
