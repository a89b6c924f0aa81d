"""Fake RPC clients of `tests.support.fake_clients` accept what the protocol declares, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import ActionCommand, Flavor, InstanceFilters
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.support.control_plane import FLAVOR, FakeConductor, make_instance
from tests.support.fake_clients import FakeClient, _methods, default_of, fake_client

CONTEXT = get_admin_context()


@pytest.fixture
def client() -> Any:
    return fake_client(ConductorRPC)


@pytest.mark.parametrize("protocol", [ConductorRPC, ComputeRPC, SchedulerRPC])
def test_fake_client_default_results_are_of_the_declared_types(protocol: type) -> None:
    client = fake_client(protocol)
    methods = _methods(client.contract)
    for name, method in methods.items():
        arguments = {
            argument: default_of(method.arguments.get(argument, str))
            for argument, parameter in method.signature.parameters.items()
            if argument != "context" and parameter.default is parameter.empty
        }
        getattr(client, name)(CONTEXT, **arguments)
    assert len(client.calls) == len(methods) >= 3


def test_fake_client_unknown_method_fails(client: Any) -> None:
    with pytest.raises(AttributeError, match="flavor_fetch"):
        client.flavor_fetch(CONTEXT, "1")
    with pytest.raises(AttributeError, match="ConductorRPC has no method flavor_fetch"):
        client.script("flavor_fetch", FLAVOR)
    with pytest.raises(TypeError, match="ConductorRPC has no method flavor_fetch"):

        class Unknown(FakeConductor):
            def flavor_fetch(self, context: RequestContext, flavor_id: str) -> Flavor:
                return FLAVOR


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"flavor": "1"}, "flavor_get: missing a required argument: 'flavor_id'"),
        ({"flavor_id": "1", "name": "m1"}, "flavor_get: got an unexpected keyword argument 'name'"),
        ({"flavor_id": 1}, "flavor_id of flavor_get is 1: Expected `str`, got `int`"),
    ],
)
def test_fake_client_wrong_argument_fails(client: Any, arguments: dict[str, Any], cause: str) -> None:
    with pytest.raises(TypeError) as caught:
        client.flavor_get(CONTEXT, **arguments)
    assert cause in str(caught.value)
    assert client.calls == []


@pytest.mark.parametrize("host", [None, 7])
def test_fake_client_wrong_receiver_fails(host: Any) -> None:
    with pytest.raises(TypeError, match="host of get_console_output"):
        fake_client(ComputeRPC).get_console_output(CONTEXT, host, "uuid", None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("result", [None, "m1.tiny", {"name": "m1.tiny"}, [FLAVOR]])
def test_fake_client_wrong_result_fails(client: Any, result: Any) -> None:
    with pytest.raises(TypeError, match="result of flavor_get"):
        client.script("flavor_get", result)
    client.script("flavor_get", lambda context, flavor_id: result)
    with pytest.raises(TypeError, match="result of flavor_get"):
        client.flavor_get(CONTEXT, "1")


def test_fake_client_scripted_method_with_another_signature_fails() -> None:
    with pytest.raises(AssertionError):

        class Wrong(FakeClient, protocol=ConductorRPC):
            def flavor_get(self, context: RequestContext, flavor: str) -> Flavor:
                return FLAVOR


def test_fake_client_records_calls_with_defaults(client: Any) -> None:
    client.flavor_get(CONTEXT, flavor_id="1")
    client.instance_list(CONTEXT, InstanceFilters(), None, None, sort_keys=[], sort_dirs=[])
    assert client.calls == [
        ("flavor_get", ("1",)),
        ("instance_list", (InstanceFilters(), None, None, [], [])),
    ]
    assert client.of("flavor_get") == [("1",)]
    assert client.contexts == [CONTEXT, CONTEXT]


def test_fake_client_records_a_command_under_its_own_name() -> None:
    compute: Any = fake_client(ComputeRPC)
    command = default_of(ActionCommand)
    compute.run_command(CONTEXT, "host1", "stop_instance", command, version="1.2")
    assert compute.calls == [("stop_instance", ("host1", command))]


def test_fake_client_scripted_result_error_and_function_are_the_answers(client: Any) -> None:
    client.script("flavor_get", FLAVOR)
    assert client.flavor_get(CONTEXT, "1") == FLAVOR
    client.script("flavor_get", lambda context, flavor_id: msgspec.structs.replace(FLAVOR, flavorid=flavor_id))
    assert client.flavor_get(CONTEXT, "7").flavorid == "7"
    client.script("flavor_get", exceptions.FlavorNotFound(flavor_id="1"))
    with pytest.raises(exceptions.FlavorNotFound):
        client.flavor_get(CONTEXT, "1")


def test_fake_client_errors_are_raised_after_the_call_is_recorded(client: Any) -> None:
    client.errors = [exceptions.DatabaseUnavailable()]
    with pytest.raises(exceptions.DatabaseUnavailable):
        client.instance_tag_add(CONTEXT, "uuid", "tag")
    assert client.instance_tag_add(CONTEXT, "uuid", "tag") is False
    client.cast_error = exceptions.MessagingUnavailable(what="it")
    with pytest.raises(exceptions.MessagingUnavailable):
        client.build_instances(CONTEXT, ["uuid"])
    assert [name for name, _ in client.calls] == ["instance_tag_add", "instance_tag_add", "build_instances"]


def test_fake_client_shares_no_object_with_its_caller(client: Any) -> None:
    stored = make_instance()
    client.script("instance_get", stored)
    client.instance_get(CONTEXT, stored.uuid).metadata["a"] = "b"
    assert stored.metadata == {}
