"""Names of floating addresses in zones, and what the name server does not have yet."""

from __future__ import annotations

import uuid
from collections.abc import Collection

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import DnsRecordSet as Row
from nova_lite.db.core.models import DnsZone, FloatingIp, Instance, Network, Port
from nova_lite.db.dns import recordsets, zones
from nova_lite.dns.objects import ACTIVE, CREATE, DELETE, ERROR, NONE, PENDING, UPDATE, RecordSet

#: The name of a floating address: its own, or else that of its port.
_NAME = sa.case(
    (FloatingIp.dns_name != "", FloatingIp.dns_name),
    (Port.dns_name != "", Port.dns_name),
    else_=sa.func.coalesce(Instance.hostname, ""),
)
_DOMAIN = sa.case(
    (FloatingIp.dns_name != "", FloatingIp.dns_domain),
    (Port.dns_domain != "", Port.dns_domain),
    else_=sa.func.coalesce(Network.dns_domain, ""),
)
_NAMED = (
    sa.select(DnsZone.id, DnsZone.name, _NAME, FloatingIp.address)
    .select_from(FloatingIp)
    .outerjoin(Port, Port.id == FloatingIp.port_id)
    .outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    .outerjoin(Network, Network.id == Port.network_id)
    .join(DnsZone, (DnsZone.name == _DOMAIN) & (DnsZone.project_id == FloatingIp.project_id))
    .where(DnsZone.action != DELETE, _NAME != "")
)
#: Names for addresses that their project has no more.
_LOST = (
    sa.select(Row.id)
    .outerjoin(FloatingIp, (FloatingIp.id == Row.id) & (FloatingIp.project_id == Row.project_id))
    .where(Row.zone_id.is_(None), FloatingIp.id.is_(None), Row.action != DELETE)
)


def name_floating_ips(uow: UnitOfWork, conf: cfg.ConfigOpts) -> None:
    """Give zones the names of their project's floating addresses, as managed record sets of type A.

    A user's own record set of that name stays, and the address is not in it.
    """
    recordsets.forget(uow, uow.session.scalars(_LOST).all())
    wanted: dict[tuple[str, str], list[str]] = {}
    for zone_id, domain, name, address in uow.session.execute(_NAMED):
        full = name.lower() if name.endswith(".") else f"{name.lower()}.{domain}"
        if full.endswith(f".{domain}"):
            wanted.setdefault((zone_id, full), []).append(address)
    present = {
        (row.zone_id or "", row.name): row
        for row in uow.session.scalars(sa.select(Row).where(Row.managed, Row.type == "A", Row.action != DELETE))
    }
    changed = [key for key, row in present.items() if sorted(wanted.get(key, [])) != sorted(row.records)]
    new = [key for key in wanted if key not in present]
    for zone_id in sorted({key[0] for key in (*changed, *new)}):
        zone = uow.session.get_one(DnsZone, zone_id, with_for_update=True, populate_existing=True)
        is_changed = False
        for key in (key for key in changed if key[0] == zone_id):
            row, is_changed = present[key], True
            row.records = sorted(wanted.get(key, row.records))
            recordsets.set_pending(uow, row, UPDATE if key in wanted else DELETE)
        for key in (key for key in new if key[0] == zone_id):
            if recordsets.types_at(uow, *key):
                continue
            is_changed = True
            values = {"id": str(uuid.uuid4()), "zone_id": zone_id, "project_id": zone.project_id, "name": key[1]}
            texts = {"type": "A", "records": sorted(wanted[key]), "status": PENDING, "action": CREATE}
            uow.session.add(Row(**values, **texts, managed=True, version=1, created_at=uow.now))
        if is_changed:
            zones.touch(uow, conf, zone)


def pending(uow: UnitOfWork) -> list[RecordSet]:
    """Return the record sets that the name server does not have yet. Refused ones are among them."""
    return recordsets.to_objects(uow, recordsets.QUERY.where(Row.action != NONE).order_by(Row.name, Row.type))


def sent(uow: UnitOfWork, accepted: Collection[RecordSet], refused: Collection[RecordSet]) -> None:
    """Record the reply of the name server. Record sets that have changed meanwhile stay pending."""
    for item in accepted:
        same = (Row.id == item.id, Row.version == item.version)
        if item.action == DELETE:
            uow.change(sa.delete(Row).where(*same))
        else:
            uow.change(sa.update(Row).where(*same).values(status=ACTIVE, action=NONE))
    for item in refused:
        uow.change(sa.update(Row).where(Row.id == item.id, Row.version == item.version).values(status=ERROR))
    has = sa.select(Row.id).where(Row.zone_id == DnsZone.id, Row.action != NONE)
    uow.change(sa.delete(DnsZone).where(DnsZone.action == DELETE, ~sa.exists(has)))
    uow.change(sa.update(DnsZone).where(DnsZone.action != NONE, ~sa.exists(has)).values(status=ACTIVE, action=NONE))
    failed = sa.select(Row.id).where(Row.zone_id == DnsZone.id, Row.status == ERROR)
    uow.change(sa.update(DnsZone).where(DnsZone.action != NONE, sa.exists(failed)).values(status=ERROR))
