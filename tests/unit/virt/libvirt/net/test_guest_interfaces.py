"""Changes of interfaces of running guests: a failed one keeps no other guest or network from its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, PortFilters
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from tests.support.guests import make_network, make_vif

ONE, TWO = make_network(id="net-1", bridge="br1"), make_network(id="net-2", bridge="br2")


class Host:
    """Records, networks and filters of a host. ``broken``: ids of what cannot be changed."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.vifs = {
            "first": [make_vif(1, ONE, port_security_enabled=True)],
            "second": [make_vif(2, TWO, port_security_enabled=True)],
        }
        self.plugged: list[str] = []
        self.updated: list[str] = []

    def _fail(self, what: str) -> None:
        if what in self.broken:
            raise exceptions.VirtDriverError(reason=f"{what} is broken")

    def instances(self) -> list[str]:
        return sorted(self.vifs)

    def read_interfaces(self, instance_uuid: str) -> list[VIF]:
        return self.vifs[instance_uuid]

    def write_interfaces(self, instance_uuid: str, vifs: list[VIF]) -> None:
        self._fail(instance_uuid)
        self.vifs[instance_uuid] = vifs

    def managed(self, vifs: list[VIF]) -> set[str]:
        return {vif.network.id for vif in vifs}

    def plug(self, instance_uuid: str, *rest: Any) -> None:
        self.plugged.append(instance_uuid)

    def restore(self) -> None:
        pass

    def update(self, network: Any) -> None:
        self._fail(network.id)
        self.updated.append(network.id)

    def update_options(self, vif: VIF) -> None:
        self._fail(vif.id)
        self.updated.append(vif.id)


def filters(host: Host) -> PortFilters:
    unfiltered = sorted(vif.id for vifs in host.vifs.values() for vif in vifs)
    return PortFilters(networks={"net-1": ONE, "net-2": TWO}, pairs={}, unfiltered=unfiltered)


def test_broken_guest_and_network_keep_no_others_from_their_changes(caplog: pytest.LogCaptureFixture) -> None:
    host = Host("first", "net-1")
    anything: Any = host
    interfaces = GuestInterfaces(anything, anything, anything, anything)
    wanted = filters(host)
    interfaces.update(wanted)
    assert (host.plugged, host.updated) == (["second"], ["net-2"])
    assert "do not reach instance first on this host" in caplog.text
    assert "do not reach network net-1 on this host" in caplog.text
    host.broken.clear()
    interfaces.update(wanted)
    assert (host.plugged, host.updated) == (["second", "first"], ["net-2", "net-1", "net-2"])
    interfaces.update(wanted)
    assert len(host.updated) == 3, "there is nothing left to do"


def test_changed_dhcp_options_are_tried_until_the_host_has_them() -> None:
    """Options of other ports stay as they are. A conductor of an older version names none."""
    host = Host()
    anything: Any = host
    interfaces = GuestInterfaces(anything, anything, anything, anything)
    first, second = host.vifs["first"][0].id, host.vifs["second"][0].id
    option = {"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}
    base = msgspec.structs.replace(filters(host), networks=None)
    host.broken.add(first)
    wanted = msgspec.structs.replace(base, dhcp_options={first: [option]})
    interfaces.update(wanted)
    assert host.vifs["first"][0].dhcp_options is None
    host.broken.clear()
    interfaces.update(wanted)
    assert (host.updated, host.vifs["first"][0].dhcp_options) == ([first], [option])
    interfaces.update(base)
    assert host.vifs["first"][0].dhcp_options == [option]
    interfaces.update(msgspec.structs.replace(base, dhcp_options={}))
    assert (host.updated, host.vifs["first"][0].dhcp_options) == ([first, first], None)
    assert second not in host.updated
