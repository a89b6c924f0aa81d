"""Floating addresses of the built-in backend."""

from __future__ import annotations

import datetime

import msgspec


class FloatingIpPool(msgspec.Struct, kw_only=True):
    """Addresses that lead to this cloud's hosts: those of ``cidr``, all of them."""

    id: str
    name: str
    cidr: str


class FloatingIp(msgspec.Struct, kw_only=True):
    """An address that a project has, as long as it wants. ``port_id``, ``fixed_address`` and ``instance_uuid``: of the
    interface that it leads to, if any."""

    id: str
    address: str
    pool: str
    project_id: str
    pool_id: str = ""
    description: str | None = None
    created_at: datetime.datetime | None = None
    port_id: str | None = None
    fixed_address: str | None = None
    instance_uuid: str | None = None
