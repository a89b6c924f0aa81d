"""Networks of older versions, with libvirt and a kernel in memory. The integration test has a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import dhcp, former_networks, namespaces
from tests.support.guests import make_network
from tests.unit.virt.libvirt.net.kernel import Kernel, Libvirt

NETWORK = make_network(id="net-1", bridge="br1")
NAME = "nova-lite-net-1"
XML = "<network><name>{}</name><forward mode='nat'/><bridge name='{}'/><ip address='10.76.0.1'/></network>"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def libvirtd(kernel: Kernel) -> Any:
    made = Libvirt()
    made.add(NAME, XML.format(NAME, "br1"))
    return made


def test_guests_of_a_former_network_follow_to_its_new_bridge(kernel: Kernel, libvirtd: Any) -> None:
    kernel.bridge("br1", "tap0", "tap1", "nlvx101")
    leases = Path(dhcp.DIRECTORY, "br1.status")
    leases.parent.mkdir()
    leases.write_text("[]")
    assert former_networks.take_over(libvirtd, NETWORK) == {"tap0", "tap1"}
    assert libvirtd.calls == ["destroy", "undefine"] and libvirtd.networks == {}
    assert kernel.tables == [(None, "delete table inet nova_lite_net_1\n")]
    assert not leases.exists()
    assert former_networks.take_over(libvirtd, NETWORK) == set()


def test_network_that_leads_to_the_bridge_stays(kernel: Kernel, libvirtd: Any) -> None:
    former_networks.take_over(libvirtd, NETWORK)
    libvirtd.calls.clear()
    former_networks.lead_to(libvirtd, NETWORK)
    former_networks.lead_to(libvirtd, NETWORK)
    assert libvirtd.calls == ["define", "create"]
    assert libvirtd.networks[NAME].isActive()
    assert '<forward mode="bridge" /><bridge name="br1" />' in libvirtd.networks[NAME].XMLDesc(0)
    assert former_networks.take_over(libvirtd, NETWORK) == set()
    former_networks.remove(libvirtd, lambda network_id: False)
    assert NAME in libvirtd.networks
    former_networks.forget(libvirtd, "net-1")
    former_networks.forget(libvirtd, "net-1")
    assert libvirtd.networks == {}


def test_definition_has_the_id_of_its_network_or_one_that_follows_from_it() -> None:
    network_id = make_network().id
    assert f"<uuid>{network_id}</uuid>" in former_networks.alias_xml(make_network())
    assert former_networks.alias_xml(NETWORK) == former_networks.alias_xml(make_network(id="net-1", bridge="br1"))
    assert former_networks._network_uuid("net-1") != former_networks._network_uuid("net-2")


def test_former_networks_without_guests_are_removed(kernel: Kernel, libvirtd: Any) -> None:
    for number in (2, 3, 4):
        libvirtd.add(f"nova-lite-net-{number}", XML.format(f"nova-lite-net-{number}", f"br{number}"))
    libvirtd.add("default", XML.format("default", "virbr0"))
    kernel.bridge("br2", "tap0")
    kernel.bridge("br3", "nlvx103")
    former_networks.remove(libvirtd, lambda network_id: network_id == "net-1")
    assert set(libvirtd.networks) == {NAME, "nova-lite-net-2", "default"}


def test_rules_of_routers_of_an_older_version_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    rules = {"-4": 2, "-6": 0}

    def run(*command: str) -> str:
        ran.append(" ".join(command))
        if command[0] == "ip6tables" or (command[0] == "ip" and not rules[command[1]]):
            raise exceptions.VirtDriverError(reason="it is not there")
        if command[0] == "ip":
            rules[command[1]] -= 1
        return ""

    monkeypatch.setattr(namespaces, "run", run)
    former_networks.remove_rules("host-a")
    chain = "NOVA_LITE_c151e392ca52"
    for table, parent in (("filter", "FORWARD"), ("nat", "POSTROUTING")):
        for program in ("iptables", "ip6tables"):
            at = ran.index(f"{program} --wait -t {table} -D {parent} -j {chain}")
            assert ran[at + 1 : at + 3] == [f"{program} --wait -t {table} {flag} {chain}" for flag in ("-F", "-X")]
    assert ran.count("ip -4 rule delete priority 29290") == 3 and ran.count("ip -6 rule delete priority 29290") == 1
