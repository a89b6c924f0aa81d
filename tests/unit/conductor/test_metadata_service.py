"""Queries of the metadata service to the conductor."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import instances
from nova_lite.network.driver import Addresses
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


def at(uow: UnitOfWork, network: str, address: str, mac_address: str, **values: object) -> str:
    made = (
        builtin_networks.create(uow, make.network(network)) if network else builtin_networks.list_(uow, make.ADMIN)[0]
    )
    uuid = make.instance(uow, **values)
    assert builtin_networks.Store(uow).add_port(uuid, made.id, 0, Addresses(address, mac_address), None)
    return uuid


def test_instances_are_found_by_address_in_every_network(conductor: ConductorRPC, db: Database) -> None:
    one = db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", user_data="eA==", key_name="k", key_data="ssh-ed25519 A")
    db.write(at, "", "10.0.0.3", "fa:16:3e:00:00:02")
    twin = db.write(at, "two", "10.0.0.2", "fa:16:3e:00:00:03", project_id="p2")
    found = conductor.instances_at_address(make.ADMIN, "10.0.0.2")
    assert [item.uuid for item in found] == [one, twin]
    assert [item.vifs[0].mac_address for item in found] == ["fa:16:3e:00:00:01", "fa:16:3e:00:00:03"]
    assert (found[0].user_data, found[0].key_name, found[0].key_data) == ("eA==", "k", "ssh-ed25519 A")
    assert conductor.instances_at_address(make.ADMIN, "10.0.0.4") == []
    for instance in found:
        assert conductor.instances_at_address(make.ADMIN, "10.0.0.2", instance.vifs[0].network.id) == [instance]
    assert conductor.instances_at_address(make.ADMIN, "10.0.0.2", "no") == []


def test_deleted_instance_is_not_found(conductor: ConductorRPC, db: Database) -> None:
    db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", deleted=True)
    assert conductor.instances_at_address(make.ADMIN, "10.0.0.2") == []


def test_password_is_stored_only_once(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance, system_metadata={"image_x": "y"})
    conductor.instance_password_set(make.context(), uuid, "c2VjcmV0")
    kept = {"image_x": "y", POSTED_PASSWORD: "c2VjcmV0"}
    assert db.read(instances.get, make.ADMIN, uuid).system_metadata == kept
    with pytest.raises(exceptions.PasswordAlreadySet):
        conductor.instance_password_set(make.context(), uuid, "another")
    assert db.read(instances.get, make.ADMIN, uuid).system_metadata == kept
    conductor.instance_password_clear(make.context(), uuid)
    conductor.instance_password_set(make.context(), uuid, "another")
    with pytest.raises(exceptions.InstanceNotFound):
        conductor.instance_password_set(make.context(project="p2"), uuid, "x")


# --- guests of one host


def test_guests_of_a_host_are_found_by_address_and_uuid(conductor: ConductorRPC, db: Database) -> None:
    mine = db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", host="h1")
    other = db.write(at, "two", "10.0.0.2", "fa:16:3e:00:00:03", host="h2")

    def found(host: str, address: str | None, uuid: str | None) -> list[str]:
        return [item.uuid for item in conductor.metadata_instances(make.ADMIN, host, address, uuid)]

    assert [found(host, "10.0.0.2", None) for host in ("h1", "h2", "h3")] == [[mine], [other], []]
    assert [found("h1", None, uuid) for uuid in (mine, other, "no")] == [[mine], [], []]
    assert found("h1", None, None) == []
    (network_id,) = {vif.network.id for vif in db.read(instances.get, make.ADMIN, mine).vifs}
    for host, uuids in (("h1", [mine]), ("h2", [])):
        met = conductor.metadata_instances(make.ADMIN, host, "10.0.0.2", None, network_id)
        assert [item.uuid for item in met] == uuids


def test_guest_is_found_at_the_destination_of_its_move(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", host="h1")

    conductor.register_host(make.ADMIN, make.report("h2"))

    def claim(uow: UnitOfWork) -> None:
        node = uow.session.scalars(sa.select(models.ComputeNode.id)).one()
        claimed = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1}
        uow.session.add(
            models.Allocation(instance_uuid=uuid, compute_node_id=node, generation=2, created_at=uow.now, **claimed)
        )

    db.write(claim)
    assert [item.uuid for item in conductor.metadata_instances(make.ADMIN, "h2", "10.0.0.2", None)] == [uuid]


def test_deleted_guest_of_a_host_is_not_found(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", host="h1", deleted=True)
    for place in (("10.0.0.2", None), (None, uuid)):
        assert conductor.metadata_instances(make.ADMIN, "h1", *place) == []


def test_password_of_a_guest_is_stored_only_from_its_host(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(at, "one", "10.0.0.2", "fa:16:3e:00:00:01", host="h1")
    with pytest.raises(exceptions.InstanceNotFound):
        conductor.metadata_password_set(make.ADMIN, "h2", uuid, "forged")
    conductor.metadata_password_set(make.ADMIN, "h1", uuid, "c2VjcmV0")
    with pytest.raises(exceptions.PasswordAlreadySet):
        conductor.metadata_password_set(make.ADMIN, "h1", uuid, "another")
    assert db.read(instances.get, make.ADMIN, uuid).system_metadata[POSTED_PASSWORD] == "c2VjcmV0"
