"""Networks without guests are removed from the host. Networks in use stay."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nova_lite.objects import HostRouter, Network
from nova_lite.virt.libvirt.net import dhcp, realms, reservations
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.uses import NetworkUses
from tests.support.config_drives import make_conf
from tests.support.guests import make_network, make_vif
from tests.unit.virt.libvirt.net.kernel import Kernel, Libvirt

NETWORK, OTHER = make_network(id="net-1", bridge="br1"), make_network(id="net-2", bridge="br2", cidr="10.2.0.0/24")
NAME = "nova-lite-net-1"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def libvirtd() -> Any:
    return Libvirt()


@pytest.fixture
def host(kernel: Kernel, libvirtd: Any) -> HostNetworks:
    """Return a host on which a guest has used `NETWORK`."""
    made = HostNetworks(make_conf(), libvirtd, "h1")
    use(made, NETWORK)
    return made


def use(host: HostNetworks, network: Network, age: float = 700.0) -> None:
    """Let a guest use a network until ``age`` seconds ago."""
    vif = make_vif(network=network)
    assert host.plug(vif, "web")
    host.unplug(vif)
    os.utime(reservations.directory_for(network), (time.time() - age,) * 2)


def test_idle_network_is_removed_with_its_realm_and_files(host: HostNetworks, kernel: Kernel, libvirtd: Any) -> None:
    (kernel.net / "br1/brif/nlvx7").touch()  # a tunnel
    assert host.remove_idle(600.0) == ["net-1"]
    assert (list(kernel.net.iterdir()), kernel.namespaces, libvirtd.networks) == ([], set(), {})
    assert kernel.running == {dhcp.RESOLVER: None}
    assert [path.name for path in Path(dhcp.DIRECTORY).iterdir() if path.name.startswith(NAME)] == []
    assert host.remove_idle(600.0) == []
    use(host, NETWORK, 0.0)
    assert realms.realm_of("net-1") == "net-1", "the next guest starts it again"


def test_realm_of_a_router_stays_until_its_last_network_is_removed(host: HostNetworks, kernel: Kernel) -> None:
    host.set_routers([HostRouter(id="r", networks=[NETWORK, OTHER])])
    use(host, NETWORK)
    use(host, OTHER, 500.0)
    assert host.remove_idle(600.0) == ["net-1"]
    assert (kernel.namespaces, realms.realm_of("net-2")) == ({"nl-r"}, "r")
    os.utime(reservations.directory_for(OTHER), (0, 0))
    assert host.remove_idle(600.0) == ["net-2"]
    assert kernel.namespaces == set()


@pytest.mark.parametrize("reason", ["recent", "reservation", "withheld reservation", "guest", "being plugged"])
def test_network_in_use_stays(host: HostNetworks, kernel: Kernel, reason: str) -> None:
    directory = Path(reservations.directory_for(NETWORK))
    if reason == "recent":
        use(host, NETWORK, 500.0)
    elif reason == "reservation":
        (directory / "vif").touch()
        os.utime(directory, (0, 0))
    elif reason == "withheld reservation":
        withheld = Path(reservations.directory_for(NETWORK, is_served=False))
        withheld.mkdir(exist_ok=True)
        (withheld / "vif").touch()
        os.utime(withheld, (0, 0))
    elif reason == "guest":
        (kernel.net / "br1/brif/tap0").touch()
    else:
        with host._uses.use("net-1"):
            assert host.remove_idle(600.0) == []
        return
    assert host.remove_idle(600.0) == []
    assert (realms.realm_of("net-1"), kernel.running[NAME]) == ("net-1", "net-1")


def test_network_that_cannot_be_removed_is_tried_again(
    host: HostNetworks, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.broken = "link delete dev br1"
    assert host.remove_idle(600.0) == []
    assert f"Network {NAME} is not removed, although it is idle: " in caplog.text
    kernel.broken = None
    assert host.remove_idle(600.0) == ["net-1"]


def test_plugging_counts_as_use(host: HostNetworks) -> None:
    assert host.plug(make_vif(network=NETWORK), "web")
    host.unplug(make_vif(network=NETWORK))
    assert host.remove_idle(600.0) == []


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
