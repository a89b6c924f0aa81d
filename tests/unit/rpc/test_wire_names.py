"""Renamed RPC methods and arguments, between a daemon of this version and daemons of the versions around it."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest
from oslo_messaging._drivers import common

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.rpcapi import ComputeRPC, send_command
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import ActionCommand
from nova_lite.rpc.client import Message
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS
from nova_lite.scheduler.rpcapi import SchedulerRPC
from tests.support.control_plane import make_instance
from tests.support.rpc_conf import make_conf

CONTEXT = RequestContext(user_id="u", project_id="p", request_id="req-1")


@rpc.service("scheduler", version="1.0")
class OldRPC(Protocol):
    """The names of the previous version, in which nothing is renamed."""

    def fetch(self, context: RequestContext, what: str) -> str: ...


@rpc.service("scheduler", version="1.0")
class RenamedRPC(Protocol):
    """The names of this version: it sends the old names."""

    @rpc.method(wire_name="fetch")
    def get(self, context: RequestContext, name: Annotated[str, rpc.WireName("what")]) -> str: ...


@rpc.service("scheduler", version="1.0")
class NextRPC(Protocol):
    """The names of the next version, which sends the new names."""

    def get(self, context: RequestContext, name: str) -> str: ...


class Old:
    def fetch(self, context: RequestContext, what: str) -> str:
        return what.upper()


class New:
    def get(self, context: RequestContext, name: str) -> str:
        return name.upper()


def serve(tmp_path: Path, protocol: type, target: Any) -> rpc.InProcess:
    transport = rpc.InProcess(make_conf(tmp_path))
    transport.serve(rpc.Endpoint(protocol, target))
    return transport


@pytest.mark.parametrize(("server", "target"), [(OldRPC, Old()), (RenamedRPC, New())])
def test_renamed_method_is_sent_under_its_old_name(tmp_path: Path, server: type, target: Any) -> None:
    assert rpc.proxy(RenamedRPC, serve(tmp_path, server, target)).get(CONTEXT, name="a") == "A"


def test_renamed_method_is_served_under_both_names(tmp_path: Path) -> None:
    transport = serve(tmp_path, RenamedRPC, New())
    assert rpc.proxy(OldRPC, transport).fetch(CONTEXT, what="a") == "A"
    assert rpc.proxy(NextRPC, transport).get(CONTEXT, name="a") == "A"


def test_renamed_method_has_one_declaration_under_both_names() -> None:
    contract = rpc.contract_of(ConductorRPC)
    endpoint = rpc.Endpoint(ConductorRPC, partial=True)
    assert endpoint.access is not None
    for name in ("is_command_current", "order_is_wanted"):
        assert endpoint.access[name].roles == {rpc.COMPUTE}
        assert contract.is_replay_safe(name)
        assert contract.priority(name, {}, CONTEXT) == contract.priority("finish_action", {}, CONTEXT)


@pytest.mark.parametrize(
    ("protocol", "wire_names"),
    [
        (
            ConductorRPC,
            {
                "console_token_redeem": "console_token_take",
                "create_instances_batch": "create_instances_together",
                "is_command_current": "order_is_wanted",
                "is_command_open": "order_is_open",
                "volume_created": "volume_made",
            },
        ),
        (SchedulerRPC, {"select_destinations_batch": "select_for_several"}),
        (ComputeRPC, {}),
    ],
)
def test_wire_names_are_those_of_the_previous_version(protocol: type, wire_names: dict[str, str]) -> None:
    methods = rpc.contract_of(protocol).methods.values()
    assert {method.name: method.wire_name for method in methods if method.name != method.wire_name} == wire_names


def test_argument_wire_names_are_those_of_the_previous_version() -> None:
    conductor, compute = rpc.contract_of(ConductorRPC), rpc.contract_of(ComputeRPC)
    renamed = {name: method.argument_wire_names for name, method in conductor.methods.items()}
    assert {name: names for name, names in renamed.items() if names} == {
        "finish_action": {"sequence": "position"},
        "floating_ip_create": {"request": "wanted"},
        "instances_get": {"queries": "questions"},
        "interfaces_active": {"refresh": "ask"},
        "is_command_current": {"sequence": "position"},
        "is_command_open": {"sequence": "position"},
        "live_migration_progress": {"sequence": "position"},
    }
    assert compute.command is not None and compute.command.argument_wire_names == {"command": "ticket"}


# --- commands

RENAMED_STEPS = {
    "resize_instance_same_host": "set_aside_instance",
    "rollback_attach_interface": "take_back_interface",
    "rollback_detach_interface": "give_back_interface",
}


def test_command_methods_have_both_names() -> None:
    steps = operations.command_methods()
    renamed = {step.method: step.wire_method for step in steps.values() if step.method != step.wire_method}
    assert renamed == RENAMED_STEPS
    for name, wire_name in renamed.items():
        assert steps[name] == steps[wire_name]


class Host:
    """Serves `ComputeRPC.run_command` under every name, and records what arrives."""

    def __init__(self) -> None:
        self.received: list[tuple[str, int]] = []
        self.commands = {name: self._receiver(name) for name in operations.command_methods()}

    def _receiver(self, name: str) -> Any:
        def receive(context: RequestContext, command: ActionCommand) -> None:
            self.received.append((name, command.action_id))

        return receive


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def bus(tmp_path: Path, host: Host) -> rpc.InProcess:
    transport = rpc.InProcess(make_conf(tmp_path), hold_casts=True)
    transport.serve(rpc.Endpoint(ComputeRPC, host, commands=host.commands, partial=True), "h1")
    return transport


@pytest.mark.parametrize("method", [*RENAMED_STEPS, *RENAMED_STEPS.values()])
def test_command_is_sent_under_the_old_names(bus: rpc.InProcess, host: Host, method: str) -> None:
    command = ActionCommand(
        action_id=7, action="resize", method=method, instance=make_instance(), generation=1, host="h1", request_id="r"
    )
    send_command(rpc.proxy(ComputeRPC, bus), CONTEXT, command)
    (sent,) = bus.casts
    wire_name = RENAMED_STEPS.get(method, method)
    assert (sent.method, list(sent.arguments)) == (wire_name, ["ticket"])
    bus.deliver()
    assert host.received == [(wire_name, 7)]


@pytest.mark.parametrize("argument", ["ticket", "command"])
@pytest.mark.parametrize("method", [*RENAMED_STEPS, *RENAMED_STEPS.values()])
def test_command_is_received_under_all_names(bus: rpc.InProcess, host: Host, method: str, argument: str) -> None:
    command = ActionCommand(
        action_id=7, action="resize", instance=make_instance(), generation=1, host="h1", request_id="r"
    )
    bus.cast(Message("compute", method, CONTEXT, "h1", arguments={argument: rpc.to_plain(command)}))
    bus.deliver()
    assert host.received == [(method, 7)]


# --- errors


@pytest.mark.parametrize(
    "error",
    [kind for kind in vars(exceptions).values() if inspect.isclass(kind) and issubclass(kind, Exception)],
)
def test_error_crosses_the_bus_under_the_module_name_of_older_daemons(error: type[Exception]) -> None:
    """Older daemons define the errors in ``nova_lite.exception``, and send and accept that name alone."""
    assert error.__module__ == exceptions.WIRE_MODULE == "nova_lite.exception"


def test_error_of_an_older_daemon_arrives_as_our_class() -> None:
    wire = (
        '{"class": "InstanceNotFound", "module": "nova_lite.exception", "message": "Instance i1 could not be found.",'
        ' "tb": [], "args": [], "kwargs": {"instance_id": "i1"}}'
    )
    error = common.deserialize_remote_exception(wire, ALLOWED_REMOTE_EXMODS)
    assert isinstance(error, exceptions.InstanceNotFound)
    assert (error.code, error.message) == (404, "Instance i1 could not be found.")


def test_error_of_ours_is_sent_as_the_class_of_older_daemons() -> None:
    try:
        raise exceptions.InstanceNotFound(instance_id="i1")
    except exceptions.InstanceNotFound:
        wire = json.loads(common.serialize_remote_exception(sys.exc_info()))
    assert (wire["module"], wire["class"]) == ("nova_lite.exception", "InstanceNotFound")
    assert wire["kwargs"] == {"instance_id": "i1"}
