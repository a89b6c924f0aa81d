"""Rows of zones and record sets, and their transfer."""

from __future__ import annotations

import uuid

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.dns import recordsets, work, zones
from nova_lite.db.network import floating_ips
from nova_lite.dns.objects import DnsQuery, RecordSet, Zone
from nova_lite.objects import FloatingIp
from tests.support import make

ME = make.context()


def zone(db: Database, conf: cfg.ConfigOpts, name: str, project: str = "p1") -> Zone:
    wanted = Zone(id=str(uuid.uuid4()), project_id=project, name=name, email="a@example.org")
    return db.write(zones.create, conf, make.context(project=project), wanted)


def record(db: Database, conf: cfg.ConfigOpts, of: Zone, name: str, address: str) -> RecordSet:
    ids = {"id": str(uuid.uuid4()), "project_id": of.project_id, "zone_id": of.id}
    return db.write(recordsets.create, conf, ME, RecordSet(**ids, name=name, type="A", records=[address]))


def send(db: Database, conf: cfg.ConfigOpts, *refused: str) -> list[str]:
    """Send all that is pending, of which the server refuses some names. Return the names."""
    db.write(work.name_floating_ips, conf)
    found = db.read(work.pending)
    failed = [item for item in found if item.name in refused]
    db.write(work.sent, [item for item in found if item not in failed], failed)
    return [item.name for item in found]


def test_zone_with_an_underscore_is_no_pattern(db: Database, conf: cfg.ConfigOpts) -> None:
    zone(db, conf, "a.xb.org.")
    zone(db, conf, "_b.org.", "p2")
    with pytest.raises(exceptions.Conflict, match="has zones of another project"):
        zone(db, conf, "xb.org.", "p2")


def test_change_during_a_transfer_stays_pending(db: Database, conf: cfg.ConfigOpts) -> None:
    of = zone(db, conf, "example.org.")
    made = record(db, conf, of, "www.example.org.", "192.0.2.1")
    before = db.read(work.pending)
    db.write(recordsets.update, conf, ME, of.id, made.id, {"records": ["192.0.2.2"]})
    db.write(work.sent, before, [])
    assert send(db, conf) == ["www.example.org."]
    assert send(db, conf) == []
    shown = db.read(recordsets.get, ME, of.id, made.id)
    assert (shown.status, shown.records, shown.zone_ttl) == ("ACTIVE", ["192.0.2.2"], 3600)
    db.write(zones.update, conf, ME, of.id, {"ttl": 60})
    assert send(db, conf) == ["www.example.org."], "the record has the TTL of its zone"


def test_refused_record_set_is_an_error_until_the_server_accepts_it(db: Database, conf: cfg.ConfigOpts) -> None:
    of = zone(db, conf, "example.org.")
    for number in (1, 2):
        record(db, conf, of, f"h{number}.example.org.", f"192.0.2.{number}")
    assert len(send(db, conf, "h1.example.org.")) == 2
    assert db.read(zones.get, ME, of.id).status == "ERROR"
    assert send(db, conf) == ["h1.example.org."]
    assert db.read(zones.get, ME, of.id).status == "ACTIVE"
    db.write(zones.delete, conf, ME, of.id)
    assert len(send(db, conf)) == 2
    assert db.read(zones.list_, ME, DnsQuery()).items == []


def test_names_of_floating_addresses_follow_them(db: Database, conf: cfg.ConfigOpts) -> None:
    of, _ = zone(db, conf, "example.org."), zone(db, conf, "theirs.org.", "p2")
    db.write(floating_ips.create_pool, "public", "192.0.2.0/28")
    made = []
    for domain in ("example.org.", "theirs.org.", "example.org."):
        wanted = FloatingIp(id="", address="", pool="", project_id="p1", dns_name="www", dns_domain=domain)
        made.append(db.write(floating_ips.allocate, conf, ME, None, wanted))
    db.write(recordsets.set_pointer, ME, made[0].id, "www.example.org.")
    assert sorted(send(db, conf)) == sorted(
        ["www.example.org.", db.read(recordsets.pointers, ME, [made[0].id])[0].name]
    )
    (found,) = [item for item in db.read(recordsets.list_, ME, DnsQuery(), of.id).items if item.type == "A"]
    assert found.records == sorted([made[0].address, made[2].address]) and found.managed
    db.write(floating_ips.release, ME, made[0].id)
    assert len(send(db, conf)) == 2 and send(db, conf) == []
    db.write(floating_ips.release, ME, made[2].id)
    assert send(db, conf) == ["www.example.org."]
    assert [item.type for item in db.read(recordsets.list_, ME, DnsQuery(), of.id).items] == ["SOA"]
