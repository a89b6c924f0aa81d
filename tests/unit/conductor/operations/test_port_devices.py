"""Ports that have devices of their hosts: what the conductor claims, sends, and refuses."""

from __future__ import annotations

import uuid as uuids
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks, ports
from nova_lite.network import factory
from nova_lite.objects import ActionCommand, NetworkRequest, PCIDevice, Port
from nova_lite.objects.pci import TYPE_PF, TYPE_VF
from tests.support.conductor_world import World, heartbeat
from tests.support.world_interfaces import attach, detach, report

CARD = "0000:c1:00.0"
FUNCTIONS = ["0000:c1:01.0", "0000:c1:01.1"]


class Cards(World):
    """A world whose hosts have a network card with two virtual functions, and another card."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for host in ("host1", "host2"):
            told = heartbeat(host)
            told.inventories[0].pci = [
                *(device(address, TYPE_VF, parent=CARD) for address in FUNCTIONS),
                device("0000:c2:00.0", TYPE_PF),
                device("0000:c3:00.0", TYPE_VF, network="another"),
            ]
            self.db.write(hosts.report_state, self.conf, told)
        network = factory.new_network("physical", "10.9.0.0/24")
        network.physical_network, network.vlan = "physnet1", 42
        self.network = self.db.write(builtin_networks.create, network)

    def port(self, vnic_type: str = "direct") -> str:
        wanted = Port(
            id=str(uuids.uuid4()), network_id=self.network.id, vnic_type=vnic_type, port_security_enabled=None
        )
        return self.db.write(ports.create, self.conf, self.context(), wanted).id

    def devices(self, uuid: str) -> list[str]:
        return [item.address for item in self.instance(uuid).pci or ()]

    def used(self) -> dict[str, list[str]]:  # type: ignore[override]
        columns = (models.ComputeNode.host, models.ComputeNode.pci_used)
        return self.db.read(lambda uow: {host: used or [] for host, used in uow.session.execute(sa.select(*columns))})

    def claims(self) -> list[str]:
        return self.db.read(lambda uow: sorted(uow.session.scalars(sa.select(models.PCIClaim.address))))


def device(address: str, kind: str, network: str = "physnet1", parent: str | None = None) -> PCIDevice:
    return PCIDevice(
        address=address, vendor_id="8086", product_id="1889", dev_type=kind, physical_network=network, parent=parent
    )


@pytest.fixture
def world(tmp_path: Path) -> Cards:
    return Cards(tmp_path)


def with_port(port_id: str) -> dict[str, list[NetworkRequest]]:
    return {"networks": [NetworkRequest(port_id=port_id)]}


def test_server_with_a_port_gets_a_virtual_function_of_its_physical_network(world: Cards) -> None:
    port_id = world.port()
    uuid, host, _ = world.built(**with_port(port_id))
    assert (world.devices(uuid), world.used()[host], world.claims()) == (FUNCTIONS[:1], FUNCTIONS[:1], FUNCTIONS[:1])
    ((_, build),) = world.compute.builds
    (given,) = build.instance.pci or ()
    (vif,) = world.instance(uuid).vifs
    assert (given.alias, given.dev_type) == (f"port:{port_id}", TYPE_VF)
    assert (vif.vif_type, vif.vnic_type, vif.network.vlan, vif.is_remote) == ("hw_veb", "direct", 42, False)
    (spec,) = world.scheduler.specs
    assert [(request.alias, request.kinds[0].physical_network) for request in spec.pci] == [
        (f"port:{port_id}", "physnet1")
    ]


def test_whole_card_is_claimed_for_a_physical_port(world: Cards) -> None:
    uuid, _, _ = world.built(**with_port(world.port("direct-physical")))
    assert world.devices(uuid) == ["0000:c2:00.0"]
    assert world.instance(uuid).vifs[0].vif_type == "hostdev_physical"


def test_server_that_finds_no_function_goes_to_the_alternate(world: Cards) -> None:
    placed = [world.built(**with_port(world.port("macvtap")))[1] for _ in range(3)]
    assert placed == ["host1", "host1", "host2"]


def test_delete_releases_the_device_and_keeps_the_port(world: Cards) -> None:
    port_id = world.port()
    uuid, _, _ = world.built(**with_port(port_id))
    report(world, world.lifecycle.accept_action(world.context(), uuid, "delete", {}))
    assert (world.claims(), world.used()) == ([], {"host1": [], "host2": []})
    assert world.db.read(ports.get, world.context(), port_id).instance_uuid is None


def test_cold_migration_claims_a_device_of_the_destination(world: Cards) -> None:
    port_id = world.port()
    uuid, _, _ = world.built(**with_port(port_id))
    world.lifecycle.accept_action(world.context(), uuid, "migrate", {})
    world.let_time_pass(3)
    world.reconciler.sweep()
    (there,) = world.compute.commands[-1].payload["destination"]["pci"]
    assert (there["address"], there["alias"]) == (FUNCTIONS[0], f"port:{port_id}")
    assert world.used() == {"host1": FUNCTIONS[:1], "host2": FUNCTIONS[:1]}


def test_live_migration_is_refused_because_of_the_device(world: Cards) -> None:
    uuid, _, _ = world.built(**with_port(world.port()))
    with pytest.raises(exceptions.HardwareRefused, match="has a device of its host, which cannot be migrated") as error:
        world.lifecycle.accept_action(world.context(admin=True), uuid, "live-migration", {})
    assert error.value.code == 400
    with pytest.raises(exceptions.HasPCIDevices):
        world.lifecycle.accept_action(world.context(), uuid, "suspend", {})


def attached(world: Cards, uuid: str, port_id: str) -> ActionCommand:
    command = attach(world, uuid, port_id=port_id)
    assert [item.alias for item in command.instance.pci or ()] == [f"port:{port_id}"]
    return command


def test_attach_claims_a_device_and_detach_releases_it(world: Cards) -> None:
    uuid, host, _ = world.built()
    port_id = world.port()
    report(world, attached(world, uuid, port_id))
    assert (world.devices(uuid), world.used()[host], world.claims()) == (FUNCTIONS[:1], FUNCTIONS[:1], FUNCTIONS[:1])
    command = detach(world, uuid, port_id)
    assert [item.address for item in command.instance.pci or ()] == FUNCTIONS[:1], "the guest still has it"
    report(world, command)
    assert (world.devices(uuid), world.used()[host], world.claims()) == ([], [], [])


def test_failed_attach_releases_its_device(world: Cards) -> None:
    uuid, host, _ = world.built()
    command = attached(world, uuid, world.port())
    report(world, command, "no slot left")
    undo = world.compute.commands[-1]
    assert (undo.method, [item.address for item in undo.instance.pci or ()]) == (
        "rollback_attach_interface",
        FUNCTIONS[:1],
    )
    report(world, undo)
    assert (world.devices(uuid), world.used()[host], world.claims()) == ([], [], [])


def test_attach_without_a_free_device_is_refused_and_leaves_nothing(world: Cards) -> None:
    uuid, host, _ = world.built()
    for _ in FUNCTIONS:
        report(world, attach(world, uuid, port_id=world.port()))
    port_id = world.port()
    with pytest.raises(exceptions.InterfaceAttachPciClaimFailed, match=f"PCI device for port {port_id}") as error:
        attach(world, uuid, port_id=port_id)
    assert (error.value.code, world.instance(uuid).task_state, world.used()[host]) == (400, None, FUNCTIONS)
    assert world.db.read(ports.get, world.context(), port_id).instance_uuid is None


def test_network_of_hosts_is_not_given_without_a_port_for_it(world: Cards) -> None:
    request = [NetworkRequest(network_id=world.network.id)]
    with pytest.raises(exceptions.InvalidInput, match="which only ports with binding:vnic_type direct or macvtap"):
        world.create(networks=request)
    no_default = sa.update(models.Network).values(is_default=False)
    world.db.write(lambda uow: uow.session.execute(no_default))
    uuid, _, _ = world.built()
    assert [vif.network.physical_network for vif in world.instance(uuid).vifs] == [None], "it is never the default"
    with pytest.raises(exceptions.InvalidInput, match="it is the physical network physnet1"):
        attach(world, uuid, network_id=world.network.id)
