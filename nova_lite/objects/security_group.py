"""Security groups: what may reach an instance's interfaces, and what they may reach."""

from __future__ import annotations

import datetime
import functools
import uuid

import msgspec

#: The group that each project has from the first; a server that names none is in it.
DEFAULT = "default"
DEFAULT_DESCRIPTION = "Default security group"

INGRESS, EGRESS = "ingress", "egress"
IPV4, IPV6 = "IPv4", "IPv6"

_NAMESPACE = uuid.UUID("6f1d6f2c-3c7e-5c1b-9a51-5d0f3b7c8e42")


class SecurityGroupRule(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What it matches is let through. ``direction``: `INGRESS` or `EGRESS`; ``ethertype``: `IPV4` or `IPV6`.

    ``protocol``: "tcp", "udp", "icmp", or None for all. The ports bound what it matches of TCP and UDP, as type and
    code of ICMP; None: all. The other side is in ``remote_ip_prefix``, or is an address of a member of the group
    ``remote_group_id``; if both are None it is anybody.
    """

    id: str
    security_group_id: str
    direction: str = INGRESS
    ethertype: str = IPV4
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None
    remote_group_name: str | None = None
    description: str | None = None


class SecurityGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Interfaces of its members let through what any rule of any of their groups matches, and answers to that; of the
    rest nothing. ``members``: addresses, told to hosts only."""

    id: str
    name: str
    description: str | None = None
    project_id: str = ""
    rules: list[SecurityGroupRule] = msgspec.field(default_factory=list)
    members: list[str] = msgspec.field(default_factory=list)
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class PortFilters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a host has to filter. ``groups``: by id, those of ``instances`` (uuid to ids of groups) and ``ports`` (id to
    ids of groups, of those interfaces that are not in their instance's), and those that their rules name. ``floating``:
    id of a port to the address that leads to it, on its host alone. ``peers``: of each network with a VNI that guests
    of the host are on, the addresses of the other hosts that have guests on it; None: nothing is said of them.
    ``read_at``: the database's time before any of it was read; None from conductors that do not tell."""

    groups: dict[str, SecurityGroup] = msgspec.field(default_factory=dict)
    instances: dict[str, list[str]] = msgspec.field(default_factory=dict)
    ports: dict[str, list[str]] = msgspec.field(default_factory=dict)
    floating: dict[str, str] = msgspec.field(default_factory=dict)
    peers: dict[str, list[str]] | None = None
    read_at: datetime.datetime | None = None


@functools.lru_cache(maxsize=1024)
def default_id(project_id: str | None) -> str:
    """The uuid of the project's default group, the same on every daemon, whether there is a row of it or not."""
    return str(uuid.uuid5(_NAMESPACE, project_id or ""))


def default_group(project_id: str) -> SecurityGroup:
    """The project's default group as it is before anybody changes it: members reach each other, and everybody."""
    group = SecurityGroup(
        id=default_id(project_id), name=DEFAULT, description=DEFAULT_DESCRIPTION, project_id=project_id
    )
    group.rules = [
        *outward_rules(group.id),
        *(
            SecurityGroupRule(
                id=_rule_id(group.id, INGRESS, ethertype),
                security_group_id=group.id,
                ethertype=ethertype,
                remote_group_id=group.id,
                remote_group_name=DEFAULT,
            )
            for ethertype in (IPV4, IPV6)
        ),
    ]
    return group


def outward_rules(group_id: str) -> list[SecurityGroupRule]:
    """What every new group has: its members reach everybody."""
    return [
        SecurityGroupRule(
            id=_rule_id(group_id, EGRESS, ethertype),
            security_group_id=group_id,
            direction=EGRESS,
            ethertype=ethertype,
        )
        for ethertype in (IPV4, IPV6)
    ]


@functools.lru_cache(maxsize=4096)
def _rule_id(group_id: str, direction: str, ethertype: str) -> str:
    return str(uuid.uuid5(uuid.UUID(group_id), f"{direction}/{ethertype}"))
