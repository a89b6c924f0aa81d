"""Both sides of each service's bus say the same: every rpcapi method has its manager method, types included."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

from nova_lite import operations
from nova_lite.compute.manager import ComputeManager
from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor import domains
from nova_lite.conductor.endpoints import (
    flavors,
    hosts,
    images,
    instances,
    keypairs,
    networks,
    placement,
    quotas,
    server_parts,
    usage,
)
from nova_lite.conductor.operations import building, create, engine
from nova_lite.conductor.rpcapi import ConductorAPI
from nova_lite.operations import order_methods
from nova_lite.scheduler.manager import SchedulerManager
from nova_lite.scheduler.rpcapi import SchedulerAPI

CONDUCTOR = (
    create.Create,
    engine.Engine,
    building.Building,
    domains.Domains,
    instances.Instances,
    server_parts.ServerParts,
    flavors.Flavors,
    keypairs.Keypairs,
    images.Images,
    networks.Networks,
    quotas.Quotas,
    usage.Usage,
    hosts.Hosts,
    placement.Placement,
)

#: Arguments of a client method that choose the receiver or the patience, and are not sent.
LOCAL = {"host", "timeout"}


def rpc_methods(*classes: type) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for owner in classes:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            parameters = list(inspect.signature(method).parameters)
            if not name.startswith("_") and parameters[1:2] == ["context"]:
                assert name not in found, f"{name} is served twice"
                found[name] = method
    return found


def types_of(method: Callable[..., Any], without: set[str]) -> dict[str, Any]:
    hints = typing.get_type_hints(method)
    return {name: hint for name, hint in hints.items() if name not in without}


@pytest.mark.parametrize(
    ("client", "servers", "local"),
    [
        (ConductorAPI, CONDUCTOR, {"timeout"}),
        (SchedulerAPI, (SchedulerManager,), set()),
        (ComputeAPI, (ComputeManager,), LOCAL),
    ],
)
def test_client_and_server_agree(client: type, servers: tuple[type, ...], local: set[str]) -> None:
    asked, served = rpc_methods(client), rpc_methods(*servers)
    if client is ComputeAPI:
        assert set(served).isdisjoint(order_methods())
        asked = {name: method for name, method in asked.items() if name not in order_methods()}
    assert set(asked) == set(served)
    for name, method in asked.items():
        assert types_of(method, local) == types_of(served[name], set()), name


def test_every_order_has_a_message() -> None:
    for method in operations.order_methods():
        assert hasattr(ComputeAPI, method)
