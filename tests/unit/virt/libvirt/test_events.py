from __future__ import annotations

import threading
import types

import libvirt

from nova_lite.virt.libvirt.events import EventRelay


def domain(name: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(UUIDString=lambda: name)


def test_power_changes_of_wanted_domains_are_passed_on_and_a_failing_callback_stops_nothing() -> None:
    heard: list[str] = []
    done = threading.Event()

    def callback(uuid: str) -> None:
        heard.append(uuid)
        if uuid == "bad":
            raise RuntimeError(uuid)
        if uuid == "last":
            done.set()

    relay = EventRelay(wanted=lambda uuid: uuid != "foreign")
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
    assert heard == ["a", "bad", "last"]
