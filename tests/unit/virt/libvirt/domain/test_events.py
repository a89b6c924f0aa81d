from __future__ import annotations

import threading
import types

import libvirt
import pytest

from nova_lite.base import concurrency
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import IncidentKind
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.domain import domains
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.domain.events import EventRelay
from tests.support.waiting import wait_for


def domain(name: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(UUIDString=lambda: name)


def test_relevant_events_are_relayed_despite_a_failing_callback() -> None:
    delivered: list[tuple[str, IncidentKind | None]] = []
    done = threading.Event()

    def callback(uuid: str, incident: IncidentKind | None) -> None:
        delivered.append((uuid, incident))
        if uuid == "bad":
            raise RuntimeError(uuid)
        if uuid == "last":
            done.set()

    relay = EventRelay(is_relevant=lambda uuid: uuid != "foreign")
    relay.start(callback)
    for name, event in (
        ("a", libvirt.VIR_DOMAIN_EVENT_STARTED),
        ("a", libvirt.VIR_DOMAIN_EVENT_DEFINED),
        ("foreign", libvirt.VIR_DOMAIN_EVENT_STOPPED),
        ("bad", libvirt.VIR_DOMAIN_EVENT_STOPPED),
        ("last", libvirt.VIR_DOMAIN_EVENT_CRASHED),
    ):
        relay._on_event(None, domain(name), event, 0, None)
    assert done.wait(10)
    assert delivered == [("a", None), ("bad", None), ("last", IncidentKind.PANIC)]


@pytest.mark.parametrize(
    ("action", "incident"),
    [
        (libvirt.VIR_DOMAIN_EVENT_WATCHDOG_RESET, IncidentKind.WATCHDOG_RESET),
        (libvirt.VIR_DOMAIN_EVENT_WATCHDOG_SHUTDOWN, IncidentKind.WATCHDOG_POWEROFF),
    ],
)
def test_watchdogs_action_is_relayed_as_an_incident(action: int, incident: IncidentKind) -> None:
    delivered: list[IncidentKind | None] = []
    done = threading.Event()

    def callback(_: str, kind: IncidentKind | None) -> None:
        delivered.append(kind)
        done.set()

    relay = EventRelay(is_relevant=lambda uuid: True)
    relay.start(callback)
    relay._on_watchdog(None, domain("a"), libvirt.VIR_DOMAIN_EVENT_WATCHDOG_DEBUG, None)
    relay._on_watchdog(None, domain("a"), action, None)
    assert done.wait(10)
    assert delivered == [incident]


def test_event_wakes_a_waiting_thread_at_once() -> None:
    relay = EventRelay(is_relevant=lambda uuid: True)
    relay.start(lambda uuid, incident: None)
    with relay.watch("a") as changed:
        relay._on_event(None, domain("b"), libvirt.VIR_DOMAIN_EVENT_STOPPED, 0, None)
        assert not changed.wait(0.05)
        relay._on_event(None, domain("a"), libvirt.VIR_DOMAIN_EVENT_STOPPED, 0, None)
        assert changed.wait(10)


def test_events_during_a_slow_callback_do_not_stop_the_loop_of_libvirt() -> None:
    """More events than its socket takes: the loop must continue, since it answers libvirtd's keepalives."""
    delivered: list[str] = []
    may_go_on, done = threading.Event(), threading.Event()

    def callback(uuid: str, incident: IncidentKind | None) -> None:
        assert may_go_on.wait(60)
        delivered.append(uuid)
        if uuid == "last":
            done.set()

    relay = EventRelay(is_relevant=lambda uuid: True)
    relay.start(callback)
    names = [*map(str, range(5000)), "last"]
    is_sent = concurrency.native("threading").Event()

    def loop() -> None:
        for name in names:
            relay._on_event(None, domain(name), libvirt.VIR_DOMAIN_EVENT_STOPPED, 0, None)
        is_sent.set()

    concurrency.native_thread(loop, "libvirt-loop")
    wait_for("the loop continues", is_sent.is_set, 30)
    assert delivered == []
    may_go_on.set()
    assert done.wait(60)
    assert delivered == names


def test_shutdown_is_noticed_before_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread sleeps, and an event that has happened needs no wait."""
    monkeypatch.setattr(domains.time, "sleep", lambda seconds: pytest.fail("it slept"))
    made = Domains(None, "h", LibvirtTiming(shutdown_poll=60.0))  # type: ignore[arg-type]
    states = [PowerState.RUNNING, PowerState.SHUTDOWN]
    monkeypatch.setattr(made, "state", lambda uuid: states.pop(0))
    monkeypatch.setattr(made, "_press_power_button", lambda domain: changed.set())
    changed = threading.Event()
    assert made.shut_down(None, "a", 120.0, changed)
    assert states == []


class Clock(threading.Event):
    """A clock that waiting turns on. It is the event that wakes the wait, too, and that never happens."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        return False


def test_shutdown_request_is_repeated_at_nova_s_interval_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest ignores requests early in its boot."""
    clock, pressed = Clock(), list[float]()
    monkeypatch.setattr(domains.time, "monotonic", lambda: clock.now)
    made = Domains(None, "h", LibvirtTiming(shutdown_poll=1.0))  # type: ignore[arg-type]
    monkeypatch.setattr(made, "state", lambda uuid: PowerState.RUNNING)
    monkeypatch.setattr(made, "_press_power_button", lambda domain: pressed.append(clock.now - 1000.0))
    assert not made.shut_down(None, "a", 35.0, clock)
    assert pressed == [0.0, 10.0, 20.0, 30.0]
    assert clock.now == 1035.0
