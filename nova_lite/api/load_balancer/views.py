"""Responses of the load balancer API in Octavia's form."""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

import msgspec

from nova_lite.load_balancer.objects import (
    AnyPart,
    HealthMonitor,
    Kind,
    Listener,
    LoadBalancer,
    Member,
    Part,
    Pool,
    Provisioning,
)

View: TypeAlias = dict[str, Any]


def part(balancer: LoadBalancer, found: Part) -> View:
    """Return a load balancer, or a part of it."""
    shown = msgspec.structs.asdict(found) | {
        "project_id": balancer.project_id,
        "created_at": _time(found.created_at),
        "updated_at": _time(found.updated_at),
    }
    if isinstance(found, LoadBalancer):
        for name in ("version", "problem", "host", "standby_host"):
            del shown[name]
        return shown | {
            "listeners": _ids(found.listeners),
            "pools": _ids(found.pools),
            "additional_vips": [],
            "availability_zone": None,
            "vip_qos_policy_id": None,
        }
    if isinstance(found, Member):
        return shown
    if isinstance(found, HealthMonitor):
        return shown | {"pools": [{"id": pool.id} for pool in balancer.pools if pool.healthmonitor is found]}
    shown["loadbalancers"] = [{"id": balancer.id}]
    if isinstance(found, Listener):
        del shown["certificates"]
        return shown | {
            "insert_headers": found.insert_headers or None,
            "l7policies": [],
        }
    if isinstance(found, Pool):
        del shown["healthmonitor"]
        return shown | {
            "healthmonitor_id": found.healthmonitor.id if found.healthmonitor is not None else None,
            "listeners": _ids([one for one in balancer.listeners if one.default_pool_id == found.id]),
            "members": _ids(found.members),
            "tls_enabled": False,
        }
    raise TypeError(f"{type(found).__name__} is no part of a load balancer")


#: Attributes for filters of lists only, which responses do not have.
OWNERS = frozenset({"loadbalancer_id", "load_balancer_id", "listener_id", "pool_id"})


def owners(balancer: LoadBalancer, pool: Pool | None, found: Part) -> View:
    """Return the values of `OWNERS`."""
    listeners = [one.id for one in balancer.listeners if one.default_pool_id == found.id]
    return {
        "loadbalancer_id": balancer.id,
        "load_balancer_id": balancer.id,
        "listener_id": listeners,
        "pool_id": None if pool is None else pool.id,
    }


def _ids(parts: list[Any]) -> list[dict[str, str]]:
    return [{"id": found.id} for found in parts]


def _time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")


#: Attributes by kind: lists are filtered by them.
_EXAMPLE = LoadBalancer(
    id="",
    project_id="",
    listeners=[Listener(id="", protocol="", protocol_port=0)],
    pools=[
        Pool(
            id="",
            protocol="",
            lb_algorithm="",
            members=[Member(id="", address="", protocol_port=0)],
            healthmonitor=HealthMonitor(id="", type="", delay=0, timeout=0, max_retries=0),
        )
    ],
)
ATTRIBUTES: dict[Kind, set[str]] = {
    Kind.LOAD_BALANCER: set(part(_EXAMPLE, _EXAMPLE)),
    **{kind: set(part(_EXAMPLE, found)) for kind, found, _ in _EXAMPLE.parts()},
}


def tree(balancer: LoadBalancer) -> View:
    """Return the states of a load balancer and its parts."""
    pools = {
        pool.id: _state(pool, "name")
        | {
            "healthmonitor": _state(pool.healthmonitor, "name", "type") if pool.healthmonitor is not None else {},
            "members": [_state(member, "name", "address", "protocol_port") for member in pool.members],
        }
        for pool in balancer.pools
        if pool.provisioning_status != Provisioning.PENDING_DELETE
    }
    listeners = [
        _state(one, "name") | {"pools": [pools[one.default_pool_id]] if one.default_pool_id in pools else []}
        for one in balancer.listeners
    ]
    return {"loadbalancer": _state(balancer, "name") | {"listeners": listeners}}


def _state(found: AnyPart, *names: str) -> View:
    return {name: getattr(found, name) for name in ("id", "provisioning_status", "operating_status", *names)}
