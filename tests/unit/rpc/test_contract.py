"""Contracts: declarations are checked, and endpoints serve all methods of their Protocol."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Protocol

import pytest

from nova_lite import operations, rpc
from nova_lite.base import exceptions, structured_logs
from nova_lite.base.context import RequestContext
from nova_lite.objects import ActionCommand
from nova_lite.rpc.admission import Priority
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from nova_lite.scheduler.manager import SchedulerManager
from tests.support.guests import make_instance


@rpc.service("thing", version="2.2")
class ThingRPC(Protocol):
    def get(self, context: RequestContext, name: str, timeout: rpc.Timeout = None) -> int: ...

    @rpc.method(kind=rpc.CAST)
    def put(self, context: RequestContext, host: rpc.Receiver, name: str, value: int) -> None: ...

    @rpc.method(kind=rpc.CAST)
    def order(self, context: RequestContext, host: rpc.Receiver, method: rpc.MethodName, ticket: str) -> None: ...


class Things:
    def get(self, context: RequestContext, name: str) -> int:
        return len(name)

    def put(self, context: RequestContext, name: str, value: int) -> None: ...

    def helper(self, name: str) -> None:
        """Do nothing: without a context this is not an RPC method."""


def turn(context: RequestContext, ticket: str) -> None: ...


def test_endpoint_serves_fitting_functions() -> None:
    endpoint: Any = rpc.Endpoint(ThingRPC, Things(), commands={"turn": turn})
    assert (endpoint.topic, endpoint.target.version) == ("thing", "2.2")
    assert endpoint.get(RequestContext(), name="four") == 4
    assert endpoint.turn(RequestContext(), ticket="t") is None
    assert not hasattr(endpoint, "helper")


SERVER = "11111111-2222-3333-4444-555555555555"


@rpc.service("guest", version="2.0")
class GuestRPC(Protocol):
    def look(self, context: RequestContext, instance_uuid: str) -> str: ...

    def command(self, context: RequestContext, command: ActionCommand) -> str: ...


class Guests:
    """Return the instance that a line of the log would name now."""

    def look(self, context: RequestContext, instance_uuid: str) -> str:
        record = logging.LogRecord("x", logging.INFO, "", 0, "text", None, None)
        return structured_logs.fields(record).get("instance", "")

    def command(self, context: RequestContext, command: ActionCommand) -> str:
        return self.look(context, command.instance.uuid)


def test_records_of_a_method_name_the_instance_of_its_message() -> None:
    endpoint: Any = rpc.Endpoint(GuestRPC, Guests())
    assert endpoint.look(RequestContext(), instance_uuid=SERVER) == SERVER
    assert endpoint.look(RequestContext(), instance_uuid="no uuid") == ""
    instance = make_instance(uuid=SERVER)
    command = ActionCommand(action_id=1, action="stop", instance=instance, generation=1, host="h", request_id="req-1")
    assert endpoint.command(RequestContext(), command=rpc.to_plain(command)) == SERVER


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
def test_endpoint_refuses_functions_that_do_not_fit(targets: Any, orders: Any, told: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=told):
        rpc.Endpoint(ThingRPC, *targets, commands=orders)


def test_partial_endpoint_serves_some_methods() -> None:
    rpc.Endpoint(ThingRPC, Misses(), partial=True)
    with pytest.raises(exceptions.ConfigurationError):
        rpc.Endpoint(ThingRPC, OtherAnswer(), partial=True)


def protocol_of(function: Any) -> Any:
    """Return a Protocol at version 1.1 with this method."""
    return rpc.service("thing", version="2.1")(type("OneRPC", (), {"get": function, "__module__": __name__}))


def test_method_newer_than_its_protocol_is_refused() -> None:
    @rpc.method(since="2.2")
    def get(self: Any, context: RequestContext) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match=r"get was introduced in 2\.2; the Protocol is at 2\.1"):
        rpc.contract_of(protocol_of(get))


def test_later_argument_without_a_default_is_refused() -> None:
    def get(self: Any, context: RequestContext, name: Annotated[str, rpc.Since("2.1")]) -> int: ...  # type: ignore

    with pytest.raises(TypeError, match=r"name, which was added in 2\.1, needs a default"):
        rpc.contract_of(protocol_of(get))


def test_method_without_roles_beside_one_with_roles_is_refused() -> None:
    @rpc.service("thing", version="2.0")
    class MixedRPC(Protocol):
        @rpc.read(rpc.API)
        def get(self, context: RequestContext) -> int: ...

        @rpc.change()
        def put(self, context: RequestContext) -> None: ...

    with pytest.raises(TypeError, match="MixedRPC: no role may call put"):
        rpc.contract_of(MixedRPC)


def test_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="there is no role guest"):
        rpc.read("guest")


def test_own_that_names_no_argument_is_refused() -> None:
    @rpc.report(rpc.COMPUTE, own="report.host")
    def get(self: Any, context: RequestContext, host: str) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match=r"own='report\.host' names no argument"):
        rpc.contract_of(protocol_of(get))


def test_own_argument_with_two_names_is_refused() -> None:
    """A sender could put its own host under one name, and another host under the other."""

    @rpc.report(rpc.COMPUTE, own="host")
    def get(self: Any, context: RequestContext, host: Annotated[str, rpc.WireName("node")]) -> int: ...  # type: ignore

    with pytest.raises(TypeError, match="it cannot have a second name"):
        rpc.contract_of(protocol_of(get))


def test_wire_name_of_another_method_is_refused() -> None:
    @rpc.service("thing", version="2.0")
    class TwiceRPC(Protocol):
        def get(self, context: RequestContext) -> int: ...

        @rpc.method(wire_name="get")
        def fetch(self, context: RequestContext) -> int: ...

    with pytest.raises(TypeError, match="the wire names of fetch, get are taken"):
        rpc.contract_of(TwiceRPC)


@pytest.mark.parametrize(
    "fallback",
    [
        lambda client, context: 0,
        rpc.one_by_one("values", lambda client, context, name: 0),
        rpc.one_by_one("names", lambda client, host, name: 0),
    ],
)
def test_fallback_that_does_not_take_the_arguments_is_refused(fallback: Any) -> None:
    @rpc.method(fallback=fallback)
    def get(self: Any, context: RequestContext, names: list[str]) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match="get: the fallback does not take its arguments"):
        rpc.contract_of(protocol_of(get))


@pytest.mark.parametrize(
    ("declare", "priority", "replay_safe"),
    [
        (rpc.read, Priority.READ, True),
        (rpc.list_, Priority.LIST, True),
        (rpc.change, Priority.CHANGE, False),
        (rpc.delete, Priority.DELETE, False),
        (rpc.report, Priority.OWN, False),
        (rpc.method, Priority.CHANGE, False),
    ],
)
def test_class_of_methods_has_its_defaults(declare: Any, priority: Priority, replay_safe: bool) -> None:
    @declare(rpc.API)
    def get(self: Any, context: RequestContext) -> int: ...  # type: ignore[empty-body]

    contract = rpc.contract_of(protocol_of(get))
    assert contract.priority("get", {}, RequestContext(user_id="u")) == priority
    assert contract.priority("get", {}, RequestContext()) == Priority.OWN
    assert contract.is_replay_safe("get") is replay_safe
    assert not contract.is_replay_safe("unknown")


def test_scheduler_manager_serves_its_protocol() -> None:
    rpc.Endpoint(SchedulerRPC, SchedulerManager.__new__(SchedulerManager))


def test_commands_are_those_of_the_operations() -> None:
    order = rpc.contract_of(ComputeRPC).command
    assert order is not None and order.arguments == {"command": ActionCommand}
    assert not set(operations.command_methods()) & set(rpc.contract_of(ComputeRPC).methods)


def test_upgrade_levels_are_the_topics_of_the_services() -> None:
    topics = {rpc.contract_of(protocol).topic for protocol in (ConductorRPC, SchedulerRPC, ComputeRPC)}
    from nova_lite.conf import upgrade_levels

    assert topics == set(upgrade_levels.SERVICES)


def test_reads_alone_may_run_twice() -> None:
    """Reports that are safe to replay have another result the second time, such as a token that is used."""
    methods = rpc.contract_of(ConductorRPC).methods
    assert methods["flavor_get"].is_read
    assert methods["instance_list"].is_read
    for name in ("create_instances", "console_token_redeem", "report_service"):
        assert not methods[name].is_read
    assert {method.is_read for method in methods.values() if method.declared_priority == Priority.OWN} == {False}
