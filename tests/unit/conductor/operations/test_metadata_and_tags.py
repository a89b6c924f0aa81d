"""Metadata and tags of an instance."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database
from nova_lite.db.servers import instance_metadata, instances, server_groups
from nova_lite.objects import InstanceFilters, ServerGroup
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


def test_metadata(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance, metadata_={"a": "1"})
    context = make.context()
    assert conductor.instance_metadata_change(context, uuid, {"b": "2"}, replace=False) == {"a": "1", "b": "2"}
    conductor.instance_metadata_delete(context, uuid, "a")
    found = db.read(instances.get, context, uuid)
    assert (found.metadata, found.updated_at is not None) == ({"b": "2"}, True)
    assert conductor.instance_metadata_change(context, uuid, {"c": "3"}, replace=True) == {"c": "3"}
    with pytest.raises(exceptions.MetadataItemNotFound):
        conductor.instance_metadata_delete(context, uuid, "b")
    assert db.read(instances.get, context, uuid).metadata == {"c": "3"}


def test_metadata_is_bounded_by_the_quota_of_its_project(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance, metadata_={"a": "1"})
    db.write(quotas.set_limit, "p1", "metadata_items", 2)
    conductor.instance_metadata_change(make.ADMIN, uuid, {"b": "2"}, replace=False)
    with pytest.raises(exceptions.MetadataLimitExceeded):
        conductor.instance_metadata_change(make.ADMIN, uuid, {"c": "3"}, replace=False)
    conductor.instance_metadata_change(make.ADMIN, uuid, {"c": "3", "d": "4"}, replace=True)


def test_metadata_of_a_locked_instance_is_for_admins(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance, metadata_={"a": "1"}, locked=True)
    with pytest.raises(exceptions.InstanceIsLocked):
        conductor.instance_metadata_change(make.context(), uuid, {"b": "2"}, replace=False)
    with pytest.raises(exceptions.InstanceIsLocked):
        conductor.instance_metadata_delete(make.context(), uuid, "a")
    conductor.instance_metadata_delete(make.ADMIN, uuid, "a")


def test_tags(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance, tag_names=["a", "b"], locked=True)
    other = db.write(make.instance)
    context = make.context()
    assert conductor.instance_tags_replace(context, uuid, ["c", "b", "c"]) == ["b", "c"]
    assert (conductor.instance_tag_add(context, uuid, "d"), conductor.instance_tag_add(context, uuid, "d")) == (
        True,
        False,
    )
    conductor.instance_tag_delete(context, uuid, "b")
    with pytest.raises(exceptions.TagNotFound):
        conductor.instance_tag_delete(context, uuid, "b")
    assert db.read(instances.get, context, uuid).tags == ["c", "d"]
    for filters, found in (
        (InstanceFilters(tags=["c", "d"]), [uuid]),
        (InstanceFilters(tags=["b"]), []),
        (InstanceFilters(tags_any=["b", "c"]), [uuid]),
        (InstanceFilters(not_tags=["c", "d"]), [other]),
        (InstanceFilters(not_tags=["b", "c"]), [other, uuid]),
        (InstanceFilters(not_tags_any=["b", "c"]), [other]),
    ):
        assert [item.uuid for item in db.read(instances.list_, context, filters)] == found, filters


def test_fifty_first_tag_is_refused(conductor: ConductorRPC, db: Database) -> None:
    tags = [f"t{number}" for number in range(50)]
    uuid = db.write(make.instance)
    conductor.instance_tags_replace(make.context(), uuid, tags)
    with pytest.raises(exceptions.TagLimitExceeded):
        conductor.instance_tag_add(make.context(), uuid, "more")
    assert not conductor.instance_tag_add(make.context(), uuid, "t1")
    with pytest.raises(exceptions.TagLimitExceeded):
        conductor.instance_tags_replace(make.context(), uuid, [*tags, "more"])


def test_instance_shows_its_server_group(db: Database, conf: cfg.ConfigOpts) -> None:
    context = make.context()
    group = db.write(server_groups.create, conf, context, ServerGroup(name="g", policy="affinity"))
    inside, outside = (db.write(make.instance) for _ in range(2))
    db.write(server_groups.join, conf, context, "g", [inside])
    assert db.read(instances.get, context, inside).server_group == group.id
    assert db.write(instances.update, context, inside, {}).server_group == group.id
    assert db.read(instances.get, context, outside).server_group is None


def test_changes_of_building_or_missing_servers_are_refused(conductor: ConductorRPC, db: Database) -> None:
    building, gone = (db.write(make.instance, **values) for values in ({"vm_state": "building"}, {"deleted": True}))
    for uuid, context, error in (
        (building, make.context(), exceptions.InstanceInvalidState),
        (building, make.context("p2"), exceptions.InstanceNotFound),
        (gone, make.context(), exceptions.InstanceNotFound),
    ):
        with pytest.raises(error):
            conductor.instance_metadata_change(context, uuid, {}, replace=False)
        with pytest.raises(error):
            conductor.instance_tag_add(context, uuid, "a")


def test_posted_password_is_deleted(db: Database) -> None:
    uuid = db.write(make.instance, system_metadata={"password": "x", "image_os": "linux"})
    with pytest.raises(exceptions.InstanceNotFound):
        db.write(instance_metadata.clear_password, make.context("p2"), uuid)
    for _ in range(2):
        db.write(instance_metadata.clear_password, make.context(), uuid)
    assert db.read(instances.get, make.ADMIN, uuid).system_metadata == {"image_os": "linux"}
