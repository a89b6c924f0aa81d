"""`nova_lite.compute.api`: retries of calls, and wake-ups that fail."""

from __future__ import annotations

import oslo_messaging as messaging
import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.image.local import LocalImages
from nova_lite.objects import CreateRequest
from tests.support.config_drives import make_conf
from tests.support.control_plane import FakeCompute, FakeConductor


def unanswered(cause: Exception | None) -> exceptions.MessagingUnavailable:
    error = exceptions.MessagingUnavailable(what="create_instances")
    error.__cause__ = cause
    return error


def flaky(*errors: Exception) -> FakeConductor:
    """Return a conductor whose first calls fail with the given errors."""
    conductor = FakeConductor()
    conductor.errors = list(errors)
    return conductor


def make(conductor: FakeConductor) -> tuple[API, FakeCompute, RequestContext]:
    api, compute = API(), FakeCompute()
    api.connect(conductor, compute, LocalImages(make_conf(), conductor))  # type: ignore[arg-type]
    return api, compute, RequestContext(user_id="u", project_id="demo", overwrite=False)


REQUEST = CreateRequest(name="vm", flavor_id="1")


def test_create_after_timeout_is_repeated_with_the_same_request_id() -> None:
    conductor = flaky(unanswered(messaging.MessagingTimeout("late")))
    api, _, context = make(conductor)
    assert len(api.create(context, REQUEST).instances) == 1
    assert [name for name, _ in conductor.calls] == ["create_instances", "create_instances", "build_instances"]
    assert {called.request_id for called in conductor.contexts} == {context.request_id}


def test_create_is_repeated_only_once() -> None:
    conductor = flaky(*(unanswered(messaging.MessagingTimeout("late")) for _ in range(9)))
    api, _, context = make(conductor)
    with pytest.raises(exceptions.MessagingUnavailable):
        api.create(context, REQUEST)
    assert len(conductor.calls) == 2


@pytest.mark.parametrize("error", [unanswered(ConnectionRefusedError()), exceptions.DatabaseUnavailable()])
def test_create_is_not_repeated_if_broker_or_database_is_unavailable(error: Exception) -> None:
    conductor = flaky(error)
    api, _, context = make(conductor)
    with pytest.raises(exceptions.ServiceUnavailable):
        api.create(context, REQUEST)
    assert len(conductor.calls) == 1


def test_action_after_timeout_is_repeated() -> None:
    conductor = flaky(unanswered(messaging.MessagingTimeout("late")))
    api, compute, context = make(conductor)
    instance = conductor.add()
    api.accept(context, instance.uuid, "stop", {})
    assert len(conductor.calls) == 2
    assert [name for name, _ in compute.calls] == ["stop_instance"]


def test_refused_action_sends_no_wake_up() -> None:
    conductor = flaky(exceptions.InstanceIsLocked(instance_id="x"))
    api, compute, context = make(conductor)
    with pytest.raises(exceptions.InstanceIsLocked):
        api.accept(context, conductor.add().uuid, "delete", {})
    assert compute.calls == []
