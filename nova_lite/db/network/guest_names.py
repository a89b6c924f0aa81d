"""Names of guests in DNS, as hosts publish them to the guests that reach each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, Network, Port
from nova_lite.db.network import member_versions
from nova_lite.db.network.member_versions import MemberCache, Members
from nova_lite.db.servers import interfaces
from nova_lite.objects.security_group import NAMES, NetworkMembers

_DOMAIN: Any = sa.func.coalesce(sa.func.nullif(Port.dns_domain, ""), Network.dns_domain)
#: Guests on networks of their own project. On another one, their names would reach guests of another project.
_NAMES = (
    sa.select(
        Instance.project_id,
        Port.network_id,
        sa.func.coalesce(sa.func.nullif(Port.dns_name, ""), Instance.hostname),
        _DOMAIN,
        Port.address,
        Port.address6,
        interfaces.FURTHER,
    )
    .join(Instance, Instance.uuid == Port.instance_uuid)
    .join(Network, Network.id == Port.network_id)
    .where(
        Instance.project_id.in_(sa.bindparam("projects", expanding=True)),
        Instance.deleted == sa.false(),
        Network.project_id == Instance.project_id,
    )
)


def by_project(uow: UnitOfWork, projects: Collection[str], cache: MemberCache | None = None) -> dict[str, Members]:
    """Return the sorted names of the guests of these projects, by project and network. ``cache``: may know them."""
    return member_versions.through(uow, projects, cache, _read)


def on_networks(
    found: Mapping[str, Members], projects: Iterable[str], networks: Collection[str]
) -> dict[str, NetworkMembers]:
    """Return the names of the guests of these projects on these networks."""
    return {
        network_id: NetworkMembers(members=members)
        for project_id in projects
        for network_id, members in found[project_id][NAMES].items()
        if network_id in networks
    }


def _read(uow: UnitOfWork, projects: Collection[str]) -> dict[str, Members]:
    found: dict[str, dict[str, list[str]]] = {project_id: {} for project_id in projects}
    for project_id, network_id, name, domain, *addresses in uow.rows(_NAMES, {"projects": projects}).all():
        members = found[project_id].setdefault(network_id, [])
        members += [f"{address} {name} {domain}" for text in addresses if text for address in text.split(" ")]
    for by_network in found.values():
        for members in by_network.values():
            members.sort()
    return {project_id: {NAMES: by_network} for project_id, by_network in found.items()}
