"""Each service serves its Protocol, and what does not is refused before the daemon serves anything."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

import pytest

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import ActionCommand
from nova_lite.scheduler.manager import SchedulerManager
from nova_lite.scheduler.rpcapi import SchedulerRPC


@rpc.service("thing", version="1.2")
class ThingRPC(Protocol):
    def get(self, context: RequestContext, name: str, timeout: rpc.Timeout = None) -> int: ...

    @rpc.cast
    def put(self, context: RequestContext, host: rpc.Receiver, name: str, value: int) -> None: ...

    @rpc.cast
    def order(self, context: RequestContext, host: rpc.Receiver, method: rpc.MethodName, ticket: str) -> None: ...


class Things:
    def get(self, context: RequestContext, name: str) -> int:
        return len(name)

    def put(self, context: RequestContext, name: str, value: int) -> None: ...

    def helper(self, name: str) -> None:
        """No context: not an RPC method."""


def turn(context: RequestContext, ticket: str) -> None: ...


def test_what_fits_is_served() -> None:
    endpoint: Any = rpc.Endpoint(ThingRPC, Things(), orders={"turn": turn})
    assert (endpoint.topic, endpoint.target.version) == ("thing", "1.2")
    assert endpoint.get(RequestContext(), name="four") == 4
    assert endpoint.turn(RequestContext(), ticket="t") is None
    assert not hasattr(endpoint, "helper")


class Misses:
    def get(self, context: RequestContext, name: str) -> int: ...  # type: ignore[empty-body]


class OtherArgument(Things):
    def get(self, context: RequestContext, label: str) -> int:  # type: ignore[override]
        return 0


class OtherType(Things):
    def get(self, context: RequestContext, name: int) -> int:  # type: ignore[override]
        return 0


class OtherAnswer(Things):
    def get(self, context: RequestContext, name: str) -> str:  # type: ignore[override]
        return ""


class OneMore(Things):
    def delete(self, context: RequestContext, name: str) -> None: ...


@pytest.mark.parametrize(
    ("targets", "orders", "told"),
    [
        ((Misses(),), {}, "put is not served"),
        ((OtherArgument(),), {}, r"get is \(name: <class 'str'>\).* served as \(label"),
        ((OtherType(),), {}, "get is "),
        ((OtherAnswer(),), {}, "get is "),
        ((OneMore(),), {}, "delete is no method of it"),
        ((Things(), Misses()), {}, "get is served twice"),
        ((Things(),), {"turn": lambda context: None}, "turn is "),
    ],
)
def test_what_does_not_fit_is_refused(targets: Any, orders: Any, told: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=told):
        rpc.Endpoint(ThingRPC, *targets, orders=orders)


def test_a_part_may_be_played() -> None:
    rpc.Endpoint(ThingRPC, Misses(), partial=True)
    with pytest.raises(exceptions.ConfigurationError):
        rpc.Endpoint(ThingRPC, OtherAnswer(), partial=True)


def test_a_protocol_has_no_method_newer_than_itself() -> None:
    @rpc.service("late", version="1.1")
    class LateRPC(Protocol):
        @rpc.since("1.2")
        def get(self, context: RequestContext) -> int: ...

    @rpc.service("bare", version="1.1")
    class BareRPC(Protocol):
        def get(self, context: RequestContext, name: Annotated[str, rpc.Since("1.1")]) -> int: ...

    for protocol in (LateRPC, BareRPC):
        with pytest.raises(TypeError):
            rpc.contract_of(protocol)


def test_schedulers_serve_theirs() -> None:
    rpc.Endpoint(SchedulerRPC, SchedulerManager.__new__(SchedulerManager))


def test_orders_are_those_of_the_operations() -> None:
    order = rpc.contract_of(ComputeRPC).order
    assert order is not None and order.arguments == {"ticket": ActionCommand}
    assert not set(operations.command_methods()) & set(rpc.contract_of(ComputeRPC).methods)


def test_nobody_pins_what_there_is_not() -> None:
    topics = {rpc.contract_of(protocol).topic for protocol in (ConductorRPC, SchedulerRPC, ComputeRPC)}
    from nova_lite.conf import upgrade_levels

    assert topics == set(upgrade_levels.SERVICES)
