"""Typed values over a bus that only knows plain ones."""

from __future__ import annotations

import datetime
import json
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging._drivers import common

from nova_lite import exception, objects, rpc
from nova_lite.context import RequestContext

CONTEXT = RequestContext(user_id="u", project_id="p", auth_token="secret", request_id="req-1")


class Manager:
    def echo(self, context: RequestContext, flavor: objects.Flavor, when: datetime.datetime) -> list[Any]:
        assert isinstance(flavor, objects.Flavor)
        assert isinstance(when, datetime.datetime)
        return [flavor, when]

    def refuse(self, context: RequestContext) -> None:
        raise exception.InstanceNotFound(instance_id="i1")

    def lose_the_database(self, context: RequestContext) -> None:
        raise ConnectionError("gone")

    def helper(self, flavor: objects.Flavor) -> None:
        """No context: not an RPC method."""


def endpoint() -> Any:
    def translate(error: Exception) -> Exception:
        return exception.DatabaseUnavailable() if isinstance(error, ConnectionError) else error

    return rpc.Endpoint(Manager(), "1.0", translate)


def test_arguments_are_typed_for_the_method_and_plain_on_the_wire() -> None:
    flavor = objects.Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=64, root_gb=1, extra_specs={"a": "b"})
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    wire = json.loads(json.dumps({"flavor": rpc.to_plain(flavor), "when": rpc.to_plain(when)}))
    answer = json.loads(json.dumps(endpoint().echo(CONTEXT, **wire)))
    assert answer == [rpc.to_plain(flavor), "2026-01-02T03:04:05.000006"]


def test_only_methods_with_a_context_are_served() -> None:
    assert not hasattr(endpoint(), "helper")


def test_unknown_fields_of_a_newer_sender_are_ignored() -> None:
    wire = {"flavorid": "1", "name": "m1", "vcpus": 1, "memory_mb": 64, "root_gb": 1, "from_the_future": True}
    endpoint().echo(CONTEXT, flavor=wire, when="2026-01-02T03:04:05")


def test_our_errors_cross_the_bus_as_themselves() -> None:
    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        endpoint().refuse(CONTEXT)
    wire = common.serialize_remote_exception(caught.value.exc_info)
    back = common.deserialize_remote_exception(wire, rpc.ALLOWED_REMOTE_EXMODS)
    assert isinstance(back, exception.InstanceNotFound)
    assert back.message == "Instance i1 could not be found."
    assert back.code == 404


def test_a_library_error_is_translated() -> None:
    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        endpoint().lose_the_database(CONTEXT)
    assert isinstance(caught.value.exc_info[1], exception.DatabaseUnavailable)


def test_a_token_never_travels() -> None:
    wire = rpc.ContextSerializer().serialize_context(CONTEXT)
    assert "secret" not in json.dumps(wire)
    back = rpc.ContextSerializer().deserialize_context(wire)
    assert (back.user_id, back.project_id, back.request_id) == ("u", "p", "req-1")


@pytest.mark.parametrize(
    "error", [value for value in vars(exception).values() if isinstance(value, type) and issubclass(value, Exception)]
)
def test_every_error_has_a_status_and_a_format(error: type[exception.NovaLiteException]) -> None:
    assert 400 <= error.code < 600
    assert error("a sentence").message == "a sentence"
    assert error.__doc__ or error.msg_fmt
