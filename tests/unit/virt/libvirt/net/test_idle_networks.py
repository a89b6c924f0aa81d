"""Networks without guests are removed from the host. Networks in use stay."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import dhcp, existing, networks, nft
from nova_lite.virt.libvirt.net.uses import NetworkUses
from tests.support.config_drives import make_conf
from tests.support.guests import make_network, make_vif

NETWORK = make_network()
NAME = f"nova-lite-{NETWORK.id}"
DIRECTORY = f"{NAME}.d"


class Libvirt:
    """libvirtd with one network. ``calls``: what was done with it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: exceptions.VirtDriverError | None = None

    def get(self) -> Libvirt:
        return self

    def networkLookupByName(self, name: str) -> Libvirt:
        assert name == NAME
        return self

    def bridgeName(self) -> str:
        return "nltest0"

    def destroy(self) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append("destroy")

    def undefine(self) -> None:
        self.calls.append("undefine")

    def call_unless(self, codes: tuple[int, ...], method: Any, *arguments: Any) -> Any:
        return method(*arguments)


class Host:
    """A host on which network `NETWORK` was last used ``age`` seconds ago."""

    def __init__(self, path: Path, age: float = 700.0) -> None:
        self.libvirt = Libvirt()
        self.networks = networks.HostNetworks(make_conf(), self.libvirt, "h1")  # type: ignore[arg-type]
        self.path = path / "dhcp"
        (self.path / DIRECTORY).mkdir(parents=True)
        for kind in ("options", "servers"):
            (self.path / f"{NAME}.{kind}").touch()
        self.use(age)
        self.interfaces = path / "nltest0/brif"
        self.interfaces.mkdir(parents=True)

    def use(self, age: float) -> None:
        os.utime(self.path / DIRECTORY, (time.time() - age,) * 2)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path / "dhcp"))
    monkeypatch.setattr(existing, "NET", str(tmp_path))
    monkeypatch.setattr(nft, "apply", lambda text: None)
    return Host(tmp_path)


def test_idle_network_is_removed_with_its_files(host: Host) -> None:
    (host.interfaces / "nlvx7").touch()  # a tunnel
    assert host.networks.remove_idle(600.0) == [NETWORK.id]
    assert host.libvirt.calls == ["destroy", "undefine"]
    assert list(host.path.iterdir()) == []
    assert host.networks.remove_idle(600.0) == []


@pytest.mark.parametrize("reason", ["recent", "reservation", "withheld reservation", "guest", "being plugged"])
def test_network_in_use_stays(host: Host, reason: str) -> None:
    if reason == "recent":
        host.use(500.0)
    elif reason == "reservation":
        (host.path / DIRECTORY / "vif").touch()
        host.use(700.0)
    elif reason == "withheld reservation":
        (host.path / f"{NAME}.off").mkdir()
        (host.path / f"{NAME}.off" / "vif").touch()
        os.utime(host.path / f"{NAME}.off", (0, 0))
    elif reason == "guest":
        (host.interfaces / "tap0").touch()
    else:
        with host.networks._uses.use(NETWORK.id):
            assert host.networks.remove_idle(600.0) == []
        return
    assert host.networks.remove_idle(600.0) == []
    assert host.libvirt.calls == []


def test_network_that_cannot_be_removed_is_tried_again(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.libvirt.error = exceptions.VirtDriverError(reason="it is busy")
    with caplog.at_level(logging.WARNING):
        assert host.networks.remove_idle(600.0) == []
    assert f"Network {NAME} is not removed, although it is idle" in caplog.text and "it is busy" in caplog.text
    host.libvirt.error = None
    assert host.networks.remove_idle(600.0) == [NETWORK.id]


def test_plugging_counts_as_use(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.networks, "_ensure", lambda network: bool(networks._touch(network)) or True)
    monkeypatch.setattr(dhcp, "release", lambda *arguments: None)
    assert host.networks.plug(make_vif(), "web")
    host.networks.unplug(make_vif())
    assert host.networks.remove_idle(600.0) == []


def test_guest_waits_until_its_network_is_removed() -> None:
    uses, order = NetworkUses(), []

    def plug() -> None:
        with uses.use("n1"):
            order.append("used")

    with uses.remove("n1") as is_free, uses.remove("n1") as is_free_again:
        assert (is_free, is_free_again) == (True, False)
        thread = threading.Thread(target=plug)
        thread.start()
        with uses.use("n2"):
            order.append("removed")
    thread.join(10)
    assert order == ["removed", "used"]
    with uses.use("n1"), uses.use("n1"), uses.remove("n1") as is_free:
        assert not is_free
    with uses.remove("n1") as is_free:
        assert is_free
