"""Flavors, key pairs and images."""

from __future__ import annotations

import datetime

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models, quotas
from nova_lite.db.core.engine import Database
from nova_lite.db.image import images
from nova_lite.db.servers import flavors, keypairs
from nova_lite.objects import Image, ImageQuery, KeyPair
from tests.support import make

ME = make.context()

# --- flavors


def test_flavor_round_trip(db: Database) -> None:
    wanted = make.flavor(
        flavorid="é", swap=7, ephemeral_gb=2, rxtx_factor=1.5, description="d", extra_specs={"hw:x": "1"}
    )
    made = db.write(flavors.create, wanted)
    assert db.read(flavors.get, ME, "é") == made
    made.id = 0
    assert made == wanted


def test_flavor_without_id_gets_one(db: Database) -> None:
    assert len(db.write(flavors.create, make.flavor(flavorid="")).flavorid) == 36


def test_flavor_exists(db: Database) -> None:
    db.write(flavors.create, make.flavor())
    with pytest.raises(exceptions.FlavorExists, match="Flavor with ID 1 already exists"):
        db.write(flavors.create, make.flavor(name="other"))
    with pytest.raises(exceptions.FlavorExists, match="Flavor with name m1 already exists"):
        db.write(flavors.create, make.flavor(flavorid="2"))
    db.write(flavors.create, make.flavor(flavorid="2", name="M1"))


def test_flavor_list(db: Database) -> None:
    for flavorid, ram, disk, public in (("1", 512, 1, True), ("2", 64, 5, True), ("3", 2048, 9, False)):
        db.write(
            flavors.create,
            make.flavor(flavorid=flavorid, name=f"m{flavorid}", memory_mb=ram, root_gb=disk, is_public=public),
        )

    def listed(context: object = make.ADMIN, **arguments: object) -> list[str]:
        return [flavor.flavorid for flavor in db.read(flavors.list_, context, **arguments)]  # type: ignore[arg-type]

    assert listed() == ["1", "2", "3"]
    assert listed(ME) == listed(ME, is_public=None) == ["1", "2"]
    assert listed(ME, is_public=False) == ["1", "2"]
    assert listed(is_public=False) == ["3"]
    assert listed(min_ram=512) == ["1", "3"]
    assert listed(min_disk=5) == ["2", "3"]
    assert listed(sort_key="memory_mb", sort_dir="desc") == ["3", "1", "2"]
    assert listed(sort_key="memory_mb", limit=1, marker="2") == ["1"]
    with pytest.raises(exceptions.MarkerNotFound):
        listed(ME, marker="3")
    with pytest.raises(exceptions.InvalidSortKey):
        listed(sort_key="extra_specs")


def test_private_flavor_is_for_admins(db: Database) -> None:
    db.write(flavors.create, make.flavor(is_public=False))
    assert db.read(flavors.get, make.ADMIN, "1").name == "m1"
    with pytest.raises(exceptions.FlavorNotFound, match="Flavor 1 could not be found"):
        db.read(flavors.get, ME, "1")


def test_flavor_changes(db: Database) -> None:
    db.write(flavors.create, make.flavor(extra_specs={"a": "1"}))
    assert db.write(flavors.update, make.ADMIN, "1", "new").description == "new"
    assert db.write(flavors.update_extra_specs, make.ADMIN, "1", {"b": "2", "a": "3"}) == {"a": "3", "b": "2"}
    db.write(flavors.delete_extra_spec, make.ADMIN, "1", "a")
    assert db.read(flavors.get, ME, "1").extra_specs == {"b": "2"}
    with pytest.raises(exceptions.FlavorExtraSpecNotFound, match="with key a"):
        db.write(flavors.delete_extra_spec, make.ADMIN, "1", "a")
    db.write(flavors.delete, make.ADMIN, "1")
    with pytest.raises(exceptions.FlavorNotFound):
        db.write(flavors.delete, make.ADMIN, "1")


# --- key pairs


def key(name: str = "k", user: str = "u1") -> KeyPair:
    return KeyPair(name=name, user_id=user, public_key="ssh-ed25519 AAAA", fingerprint="aa:bb")


def test_keypairs_of_a_user(db: Database, conf: cfg.ConfigOpts) -> None:
    for name, user in (("b", "u1"), ("a", "u1"), ("c", "u1"), ("a", "u2")):
        db.write(keypairs.create, conf, make.context(user=user), key(name, user))
    assert [pair.name for pair in db.read(keypairs.list_, "u1")] == ["a", "b", "c"]
    assert [pair.name for pair in db.read(keypairs.list_, "u1", 1, "a")] == ["b"]
    assert db.read(keypairs.get, "u2", "a").public_key == "ssh-ed25519 AAAA"
    with pytest.raises(exceptions.KeypairExists, match="Key pair 'a' already exists"):
        db.write(keypairs.create, conf, ME, key("a"))
    with pytest.raises(exceptions.KeypairNotFound):
        db.read(keypairs.get, "u2", "b")
    with pytest.raises(exceptions.MarkerNotFound):
        db.read(keypairs.list_, "u2", None, "b")


def test_keypair_quota_is_per_user(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "key_pairs", 1)
    db.write(keypairs.create, conf, ME, key("a"))
    with pytest.raises(exceptions.KeypairLimitExceeded):
        db.write(keypairs.create, conf, ME, key("b"))
    db.write(keypairs.create, conf, make.context(user="u2"), key("b", "u2"))
    db.write(keypairs.delete, "u1", "a")
    db.write(keypairs.create, conf, ME, key("b"))
    with pytest.raises(exceptions.KeypairNotFound):
        db.write(keypairs.delete, "u1", "a")


def test_keypair_quota_of_one_user(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "key_pairs", 1, "u1")
    db.write(keypairs.create, conf, ME, key("a"))
    with pytest.raises(exceptions.KeypairLimitExceeded):
        db.write(keypairs.create, conf, ME, key("b"))
    for name in ("a", "b"):
        db.write(keypairs.create, conf, make.context(user="u2"), key(name, "u2"))
    assert db.read(quotas.get, conf, "p1", "u2").quotas["key_pairs"].used == 2


# --- images


def test_image_round_trip(db: Database) -> None:
    wanted = make.image(properties={"kernel_id": "k"}, min_disk=1, min_ram=2, size=2**40)
    made = db.write(images.create, wanted)
    assert made.created_at is not None and made.kernel_id == "k"
    assert db.read(images.get, ME, wanted.id) == made == db.read(images.by_id, wanted.id)
    with pytest.raises(exceptions.ImageExists):
        db.write(images.create, wanted)


def test_image_visibility_by_project(db: Database) -> None:
    for visibility in ("public", "community", "private", "shared"):
        for owner in (None, "p1", "p2"):
            db.write(images.create, make.image(name=f"{visibility}-{owner}", visibility=visibility, owner=owner))
    everyones = {f"{visibility}-{owner}" for visibility in ("public", "community") for owner in (None, "p1", "p2")}
    assert {image.name for image in db.read(images.list_, ME, ImageQuery())} == everyones | {"private-p1", "shared-p1"}
    assert len(db.read(images.list_, make.ADMIN, ImageQuery())) == 12
    hidden = db.read(images.list_, make.ADMIN, ImageQuery(filters={"name": ["private-p2"]}))[0]
    with pytest.raises(exceptions.ImageNotFound):
        db.read(images.get, ME, hidden.id)


def test_image_pages_and_filters(db: Database) -> None:
    ids = [db.write(images.create, make.image(name=name)).id for name in ("a", "b", "a")]
    everything = [image.id for image in db.read(images.list_, ME, ImageQuery())]
    assert sorted(everything) == sorted(ids)
    assert {image.id for image in db.read(images.list_, ME, ImageQuery(filters={"name": ["a"]}))} == {ids[0], ids[2]}
    assert db.read(images.list_, ME, ImageQuery(filters={"status": ["queued"]})) == []
    assert [image.id for image in db.read(images.list_, ME, ImageQuery(limit=1, marker=everything[0]))] == everything[
        1:2
    ]
    with pytest.raises(exceptions.MarkerNotFound):
        db.read(images.list_, ME, ImageQuery(marker="nope"))


def test_image_delete_is_allowed_to_owner_and_admin(db: Database) -> None:
    theirs = db.write(images.create, make.image(owner="p2"))
    mine = db.write(images.create, make.image(owner="p1"))
    with pytest.raises(exceptions.Forbidden):
        db.write(images.delete, ME, theirs.id)
    assert db.write(images.delete, ME, mine.id).id == mine.id
    db.write(images.delete, make.ADMIN, theirs.id)
    with pytest.raises(exceptions.ImageNotFound):
        db.write(images.delete, make.ADMIN, theirs.id)


def test_same_image(db: Database) -> None:
    image = db.write(images.create, make.image())
    assert db.read(images.find_same, "cirros", "abc") == image
    assert db.read(images.find_same, "cirros", "abd") is None
    assert db.read(images.find_same, "other", "abc") is None


def test_image_quota(db: Database, conf: cfg.ConfigOpts) -> None:
    """A project's own images count; those of others, or of no project, do not."""
    conf.set_override("image_count_total", 2, group="image")
    for owner in ("p2", None, "p1", "p1"):
        db.write(images.create, make.image(owner=owner))
    with pytest.raises(exceptions.ImageQuotaExceeded, match="2 images, of which 2 are used"):
        db.write(images.create, make.image(owner="p1"))
    db.write(images.create, make.image(owner=None))
    conf.set_override("image_count_total", -1, group="image")
    db.write(images.create, make.image(owner="p1"))


def test_image_quota_of_bytes(db: Database, conf: cfg.ConfigOpts) -> None:
    """An image's new size replaces its old one in the count."""
    conf.set_override("image_size_total", 3, group="image")
    image = db.write(images.create, make.image(owner="p1", size=1024**2))
    db.write(images.create, make.image(owner="p1", size=1024**2))
    db.write(images.update, make.context(), image.id, {"size": 2 * 1024**2})
    with pytest.raises(exceptions.ImageQuotaExceeded, match="3 MiB, of which 1 are used"):
        db.write(images.update, make.context(), image.id, {"size": 2 * 1024**2 + 1})
    db.write(images.update, make.context(), image.id, {"name": "it has its size already"})


def start_upload(db: Database, image_id: str, size: int) -> Image:
    return db.write(images.update, make.context(), image_id, {"status": "saving", "size": size}, "queued")


def test_image_quota_counts_uploads_that_are_under_way(db: Database, conf: cfg.ConfigOpts) -> None:
    """The announced size of an upload is reserved, so that two uploads cannot exceed the quota together."""
    conf.set_override("image_size_total", 3, group="image")
    first, second = (db.write(images.create, make.image(owner="p1", status="queued", size=0)) for _ in range(2))
    start_upload(db, first.id, 2 * 1024**2)
    with pytest.raises(exceptions.ImageQuotaExceeded, match="3 MiB, of which 2 are used"):
        start_upload(db, second.id, 2 * 1024**2)
    assert db.read(images.get, make.context(), second.id).status == "queued"
    db.write(images.update, make.context(), first.id, {"status": "queued", "size": 0}, "saving")
    start_upload(db, second.id, 2 * 1024**2)


def test_image_uploads_of_a_project_are_limited(db: Database, conf: cfg.ConfigOpts) -> None:
    conf.set_override("uploads_per_project", 2, group="image")
    made = [db.write(images.create, make.image(owner="p1", status="queued", size=0)) for _ in range(4)]
    others = db.write(images.create, make.image(owner="p2", status="queued", size=0))
    of_a_host = db.write(images.create, make.image(owner="p1", status="queued", size=0))
    db.write(images.update, make.context(), of_a_host.id, {"status": "saving"}, None)
    for image in made[:2]:
        start_upload(db, image.id, 5)
    with pytest.raises(exceptions.TooManyUploads, match="2 uploads of images under way"):
        start_upload(db, made[2].id, 5)
    db.write(images.update, make.context("p2"), others.id, {"status": "saving", "size": 5}, "queued")
    db.write(images.update, make.context(), made[0].id, {"size": 9}, "saving")
    db.write(images.update, make.context(), made[0].id, {"status": "active", "size": 9}, "saving")
    start_upload(db, made[2].id, 5)
    old = sa.update(models.Image).where(models.Image.id == made[1].id)
    db.write(lambda uow: uow.session.execute(old.values(updated_at=uow.now - datetime.timedelta(days=2))))
    start_upload(db, made[3].id, 5)
    conf.set_override("uploads_per_project", -1, group="image")
    start_upload(db, db.write(images.create, make.image(owner="p1", status="queued", size=0)).id, 5)


def test_image_update(db: Database) -> None:
    image = db.write(images.create, make.image(owner="p1", status="queued", properties={"a": "1", "b": "2"}))
    changed = db.write(images.update, ME, image.id, {"name": "new", "properties": {"a": None, "c": "3"}})
    assert (changed.name, changed.properties) == ("new", {"b": "2", "c": "3"})
    assert db.read(images.get, ME, image.id) == changed
    assert db.write(images.update, ME, image.id, {"id": "other", "created_at": None}).id == image.id


def test_image_update_expects_a_status(db: Database) -> None:
    image = db.write(images.create, make.image(owner="p1", status="queued"))
    assert db.write(images.update, ME, image.id, {"status": "saving"}, "queued").status == "saving"
    with pytest.raises(exceptions.ImageStatusConflict, match="is saving, where it has to be queued"):
        db.write(images.update, ME, image.id, {"status": "saving"}, "queued")


def test_image_update_is_for_its_owner(db: Database) -> None:
    public = db.write(images.create, make.image(owner="p2"))
    private = db.write(images.create, make.image(owner="p2", visibility="private"))
    with pytest.raises(exceptions.Forbidden):
        db.write(images.update, ME, public.id, {"name": "mine"})
    with pytest.raises(exceptions.ImageNotFound):
        db.write(images.update, ME, private.id, {"name": "mine"})
    assert db.write(images.update, make.ADMIN, private.id, {"name": "ours"}).name == "ours"


def test_tags_and_properties_of_images_are_merged_and_limited(db: Database) -> None:
    image = db.write(images.create, make.image(owner=make.context().project_id, tags=["a", "b"], properties={"p": "1"}))
    changed = db.write(images.update, make.context(), image.id, {}, None, {"a": False, "c": True, "b": True})
    assert (changed.tags, changed.properties) == (["b", "c"], {"p": "1"})
    for changes, tags in (
        ({"properties": {str(number): "v" for number in range(128)}}, None),
        ({}, {str(number): True for number in range(127)}),
    ):
        with pytest.raises(exceptions.InvalidInput, match="at most 128"):
            db.write(images.update, make.context(), image.id, changes, None, tags)
    assert db.read(images.get, make.context(), image.id).tags == ["b", "c"]
