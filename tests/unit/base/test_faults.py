"""Seams: each fault happens where it is armed, and nothing is wrapped unless failpoints are on."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading
import typing
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions, failpoints, faults, files
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.compute.manager import ComputeManager
from nova_lite.conf import neutron as neutron_conf
from nova_lite.conf import service_client
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.errors import is_away
from nova_lite.image import driver as image_driver
from nova_lite.image import store
from nova_lite.image.driver import ImageCall
from nova_lite.network import driver as network_driver
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import Image, VolumeVerb, VolumeWork
from nova_lite.operations import ImageVerb
from nova_lite.rpc.client import Message
from nova_lite.virt import driver as virt_driver
from nova_lite.volume import driver as volume_driver
from nova_lite.volume.cinder_client import CinderClient
from tests.support import make
from tests.support.api_client import make_conf
from tests.support.cinder import Cinder
from tests.support.database import conf, empty_database
from tests.support.failpoints import Rules, rules
from tests.support.neutron import FakeNeutron
from tests.support.waiting import wait_for

__all__ = ["conf", "empty_database", "rules"]

CONTEXT = RequestContext(user_id="u", project_id="p", request_id="req-1")
UUID = "11111111-1111-4111-8111-111111111111"


def around(*names: str) -> list[str]:
    return [f"{name}/{where}" for name in names for where in ("before", "after")]


def fetch(image: Image, target: str) -> None:
    Path(target).write_bytes(b"image")


# --- functions and methods


class Backend:
    def __init__(self) -> None:
        self.done: list[str] = []

    def work(self, what: str) -> str:
        self.done.append(what)
        return what.upper()


def test_call_and_methods_are_unchanged_without_failpoints() -> None:
    backend = Backend()
    work = backend.work
    assert faults.call("work", work) is work
    assert faults.methods(backend, {"work": "work"}) is backend
    assert "work" not in vars(backend)


def test_call_passes_its_points_with_the_name_of_its_arguments(rules: Rules) -> None:
    backend = faults.methods(Backend(), {"work": lambda what: f"work/{what}", "absent": "absent"})
    assert backend.work("a") == "A"
    assert rules.passed() == around("work/a")
    assert not hasattr(backend, "absent")


@pytest.mark.parametrize(("where", "done"), [("before", []), ("after", ["a"])])
def test_call_refused_by_a_test_raises_the_error_of_its_seam(rules: Rules, where: str, done: list[str]) -> None:
    backend = faults.methods(Backend(), {"work": "work"}, exceptions.NetworkServiceUnavailable)
    rules.arm(f"work/{where}", failpoints.ERROR)
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        backend.work("a")
    assert backend.done == done
    assert backend.work("b") == "B"


def test_failed_call_does_not_pass_its_second_point(rules: Rules) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        faults.call("fail", fail)()
    assert rules.passed() == ["fail/before"]


@pytest.mark.parametrize("effect", [failpoints.HOLD, failpoints.DELAY])
def test_call_waits_at_its_point(rules: Rules, effect: str) -> None:
    backend = faults.methods(Backend(), {"work": "work"})
    rules.arm("work/before", effect, seconds=60.0 if effect == failpoints.HOLD else 0.3)
    thread = threading.Thread(target=backend.work, args=("a",), daemon=True)
    thread.start()
    wait_for("the point is reached", rules.has_fired, 5)
    assert backend.done == []
    rules.release()
    thread.join(5)
    assert backend.done == ["a"]


WORK = "import sys, pathlib; from nova_lite.base import faults; "
WORK += "faults.call('work', pathlib.Path(sys.argv[1]).touch)()"


@pytest.mark.parametrize(("where", "done"), [("before", False), ("after", True)])
def test_daemon_with_the_environment_of_a_fault_test_is_killed_at_its_point(
    tmp_path: Path, rules: Rules, where: str, done: bool
) -> None:
    rules.arm(f"work/{where}", failpoints.KILL)
    environment = {**os.environ, failpoints.ENVIRONMENT: str(rules.path)}
    target = tmp_path / "target"
    ended = subprocess.run([sys.executable, "-c", WORK, str(target)], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert target.exists() is done


# --- messages


@rpc.service("scheduler", version="2.2")
class OfficeRPC(Protocol):
    @rpc.method(wire_name="question")
    def ask(self, context: RequestContext, what: str) -> str: ...

    def ask_later(self, context: RequestContext, what: str) -> str: ...

    @rpc.method(kind=rpc.CAST)
    def tell(self, context: RequestContext, host: rpc.Receiver, what: str) -> None: ...

    @rpc.method(kind=rpc.CAST)
    def order(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        method: rpc.MethodName,
        ticket: int,
        version: rpc.Version = "2.0",
    ) -> None: ...


class Office:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.later: ResponseFuture[str] = ResponseFuture()

    def ask(self, context: RequestContext, what: str) -> str:
        self.heard.append(what)
        return what.upper()

    def ask_later(self, context: RequestContext, what: str) -> ResponseFuture[str] | str:
        self.heard.append(what)
        return self.later

    def tell(self, context: RequestContext, what: str) -> None:
        self.heard.append(what)


def stop_server(context: RequestContext, ticket: int) -> None:
    assert ticket == 7


class Bus(rpc.InProcess):
    """Records which messages get to it."""

    def __init__(self, conf: cfg.ConfigOpts, office: Office) -> None:
        super().__init__(conf)
        self.sent: list[str] = []
        self.serve(rpc.Endpoint(OfficeRPC, office, commands={"stop_server": stop_server}))

    def call(self, message: Message) -> Any:
        self.sent.append(message.method)
        return super().call(message)

    def cast(self, message: Message) -> None:
        self.sent.append(message.method)
        super().cast(message)


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def bus(rules: Rules, conf: cfg.ConfigOpts, office: Office) -> Bus:
    return Bus(conf, office)


@pytest.fixture
def client(bus: Bus) -> OfficeRPC:
    return rpc.proxy(OfficeRPC, bus)


def test_client_and_endpoint_are_unchanged_without_failpoints(conf: cfg.ConfigOpts, office: Office) -> None:
    bus = Bus(conf, office)
    client: Any = rpc.proxy(OfficeRPC, bus)
    assert client._transport is bus
    endpoint = bus._served["scheduler"]["server"]
    dispatch: Any = endpoint.ask  # type: ignore[attr-defined]
    inside = [cell.cell_contents for cell in dispatch.__closure__]
    functions = [item for call in inside if callable(call) and call.__closure__ for item in call.__closure__]
    assert office.ask in [cell.cell_contents for cell in functions]


def test_call_passes_points_of_sender_and_handler_by_its_own_name(rules: Rules, client: OfficeRPC) -> None:
    assert client.ask(CONTEXT, "a") == "A"
    assert rules.passed() == ["send/ask/before", *around("handle/ask"), "send/ask/after"]


def test_command_passes_points_by_the_name_of_the_command(rules: Rules, client: OfficeRPC) -> None:
    client.order(CONTEXT, "server", "stop_server", 7)
    assert rules.passed() == ["send/stop_server/before", *around("handle/stop_server"), "send/stop_server/after"]


@pytest.mark.parametrize(
    ("effect", "sent"), [(failpoints.DROP, []), (failpoints.DUPLICATE, ["tell"] * 2), (failpoints.FULL, ["tell"])]
)
def test_cast_is_dropped_or_doubled(rules: Rules, client: OfficeRPC, bus: Bus, effect: str, sent: list[str]) -> None:
    rules.arm("send/tell/before", effect, seconds=0.0)
    client.tell(CONTEXT, "server", "a")
    assert rules.has_fired()
    assert bus.sent == sent
    client.tell(CONTEXT, "server", "b")
    assert bus.sent == [*sent, "tell"]


@pytest.mark.parametrize(("where", "sent"), [("before", []), ("after", ["question"])])
def test_refused_call_is_as_if_the_broker_were_away(
    rules: Rules, client: OfficeRPC, bus: Bus, where: str, sent: list[str]
) -> None:
    rules.arm(f"send/ask/{where}", failpoints.ERROR)
    with pytest.raises(exceptions.MessagingUnavailable):
        client.ask(CONTEXT, "a")
    assert bus.sent == sent


def test_refused_cast_is_not_sent(rules: Rules, client: OfficeRPC, bus: Bus) -> None:
    rules.arm("send/tell/before", failpoints.ERROR)
    with pytest.raises(exceptions.MessagingUnavailable):
        client.tell(CONTEXT, "server", "a")
    assert bus.sent == []


def test_handler_of_a_later_response_passes_its_second_point_with_the_response(
    rules: Rules, client: OfficeRPC, office: Office
) -> None:
    thread = threading.Thread(target=client.ask_later, args=(CONTEXT, "a"), daemon=True)
    thread.start()
    wait_for("the call is heard", lambda: office.heard, 5)
    assert rules.passed() == ["send/ask_later/before", "handle/ask_later/before"]
    office.later.set_result(lambda: "late")
    thread.join(5)
    assert rules.passed()[2:] == ["handle/ask_later/after", "send/ask_later/after"]


# --- transactions


@pytest.fixture
def db(rules: Rules, conf: cfg.ConfigOpts) -> Iterator[Database]:
    database = Database(conf)
    yield database
    database.close()


def _add_aggregate(uow: UnitOfWork, name: str, hook: Callable[[], None] = lambda: None) -> str:
    uow.session.add(models.Aggregate(uuid=str(uuid.uuid4()), name=name, created_at=uow.now))
    uow.after_commit(hook)
    return name


def aggregates(uow: UnitOfWork) -> list[str]:
    return list(uow.session.scalars(sa.select(models.Aggregate.name)))


def test_database_is_unchanged_without_failpoints(conf: cfg.ConfigOpts) -> None:
    database = Database(conf)
    assert "write" not in vars(database)
    assert database.subscriptions == []
    database.close()


def test_write_passes_its_points_around_the_commit(rules: Rules, conf: cfg.ConfigOpts) -> None:
    seen: list[str] = []

    def note(what: str) -> None:
        seen.extend([*rules.passed(), what])

    db = Database(conf)
    db.subscribe(lambda uow: note("announced"), always=True)
    assert db.write(_add_aggregate, "a", lambda: note("hook")) == "a"
    assert seen == ["announced", *around("commit/add_aggregate"), "hook"]
    assert db.read(aggregates) == ["a"]
    db.close()


def test_refused_commit_changes_nothing_and_counts_as_a_lost_database(rules: Rules, db: Database) -> None:
    hooks: list[str] = []
    rules.arm("commit/add_aggregate/before", failpoints.ERROR)
    with pytest.raises(sa.exc.OperationalError) as caught:
        db.write(_add_aggregate, "a", lambda: hooks.append("called"))
    assert is_away(caught.value)
    assert (db.read(aggregates), hooks, rules.passed()) == ([], [], ["commit/add_aggregate/before"])
    assert db.write(_add_aggregate, "a") == "a"
    assert db.read(aggregates) == ["a"]


def test_failed_transaction_passes_no_point(rules: Rules, db: Database) -> None:
    def fail(uow: UnitOfWork) -> None:
        raise exceptions.InvalidInput(reason="no")

    with pytest.raises(exceptions.InvalidInput):
        db.write(fail)
    assert rules.passed() == []


def test_writes_by_other_ways_pass_their_points(rules: Rules, db: Database) -> None:
    def add_all(uow: UnitOfWork, names: list[str]) -> list[str]:
        return [_add_aggregate(uow, name) for name in names]

    assert db.write_together(add_all, ["a", "b"]) == ["a", "b"]
    assert db.write_once_more(_add_aggregate, "c") == "c"
    assert rules.passed() == around("commit/add_all", "commit/add_aggregate")


# --- drivers and backends


def load_driver(path: Path) -> virt_driver.ComputeDriver:
    conf = make.conf("sqlite://", path)
    conf.set_override("compute_driver", "fake")
    return virt_driver.load_compute_driver(conf, "h1", fetch)


def test_drivers_and_backends_are_unchanged_without_failpoints(tmp_path: Path) -> None:
    conf = make.conf("sqlite://", tmp_path)
    conductor: Any = None
    for loaded, points in (
        *((getattr(load_driver(tmp_path), ability), points) for ability, points in virt_driver.POINTS.items()),
        (image_driver.load_backend(conf, conductor), image_driver.POINTS),
        (network_driver.load_backend(conf), {"call": ""}),
        (volume_driver.load_backend(conf, fetch), volume_driver.POINTS),
    ):
        assert vars(loaded).keys() & points.keys() == set()


def test_driver_passes_its_points_and_keeps_its_abilities(tmp_path: Path, rules: Rules) -> None:
    loaded = load_driver(tmp_path)
    loaded.init_host()
    loaded.guests.destroy(UUID)
    assert rules.passed() == around("domain/destroy")
    assert loaded.snapshots and loaded.consoles and not loaded.shared_disks
    with pytest.raises(exceptions.DomainNotFound):
        loaded.snapshots.take(UUID, str(tmp_path / "image"), lambda: None)
    assert rules.passed()[2:] == ["snapshot/before"]


def test_full_disk_at_a_driver_fails_its_next_write(tmp_path: Path, rules: Rules) -> None:
    loaded = load_driver(tmp_path)
    loaded.init_host()
    rules.arm("domain/destroy/after", failpoints.FULL)
    loaded.guests.destroy(UUID)
    with pytest.raises(OSError) as caught:
        files.write_atomically(str(tmp_path / "file"), b"data")
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("ability", virt_driver.POINTS)
def test_points_of_the_driver_are_its_methods(ability: str) -> None:
    kind = typing.get_type_hints(virt_driver.ComputeDriver)[ability]
    assert all(hasattr(kind, name) for name in virt_driver.POINTS[ability])


@pytest.mark.parametrize("name", volume_driver.POINTS)
def test_points_of_the_volume_backend_are_its_methods(name: str) -> None:
    assert hasattr(volume_driver.VolumeBackend, name)


def test_points_of_the_image_backend_are_all_calls_of_conductors_and_the_upload() -> None:
    assert {verb.value: f"image/{verb}" for verb in ImageVerb} | {"upload": "upload"} == image_driver.POINTS
    assert all(hasattr(image_driver.ImageBackend, name) for name in image_driver.POINTS)


@pytest.mark.parametrize("where", ["before", "after"])
def test_refused_call_of_the_image_backend_is_as_if_it_were_away(tmp_path: Path, rules: Rules, where: str) -> None:
    conductor: Any = None
    backend = image_driver.load_backend(make.conf("sqlite://", tmp_path), conductor)
    rules.arm(f"image/discard/{where}", failpoints.ERROR)
    with pytest.raises(exceptions.ServiceUnavailable):
        backend.discard(ImageCall(image_id=UUID))
    backend.discard(ImageCall(image_id=UUID))


@pytest.mark.parametrize(("where", "held"), [("before", []), ("after", [UUID])])
def test_refused_call_of_the_network_backend_is_done_or_not(
    tmp_path: Path, rules: Rules, where: str, held: list[str]
) -> None:
    conf = make.conf("sqlite://", tmp_path)
    conf.set_override("backend", "fake", "network")
    backend = network_driver.load_backend(conf)
    rules.arm(f"network/allocate/{where}", failpoints.ERROR)
    call = NetworkCall(method=NetworkMethod.ALLOCATE, context=CONTEXT, instance_uuid=UUID)
    with pytest.raises(exceptions.ServiceUnavailable):
        backend.call(call)
    assert [path.name for path in (tmp_path / "network-service").glob("*")] == held


def test_volume_backend_passes_its_points(tmp_path: Path, rules: Rules) -> None:
    conf = make.conf("sqlite://", tmp_path)
    conf.set_override("store_path", str(tmp_path / "volumes"), "volume")
    backend = volume_driver.load_backend(conf, fetch)
    rules.arm("volume/create/before", failpoints.FULL)
    work = VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=UUID, size=1)
    with pytest.raises(exceptions.VirtDriverError, match="No space left"):
        backend.create(work)
    assert list((tmp_path / "volumes").iterdir()) == []
    rules.time.ahead = 10.0
    backend.create(work)
    backend.create_snapshot(UUID, UUID)
    backend.extend(UUID, 2)
    backend.delete_snapshot(UUID)
    backend.delete(UUID)
    verbs = ["create", "snapshot", "extend", "delete_snapshot", "delete"]
    assert rules.passed() == ["volume/create/before", *around(*(f"volume/{verb}" for verb in verbs))]
    # An upload passes the points of the image backend instead.
    own = set(VolumeVerb) - {VolumeVerb.UPLOAD}
    assert {f"volume/{verb}" for verb in own} <= set(volume_driver.POINTS.values())


# --- requests to other services


@pytest.mark.parametrize(
    ("url", "point"),
    [
        ("http://h:9696/v2.0/ports", "x/post/ports"),
        (f"http://h:9696/v2.0/ports/{UUID}", "x/post/ports"),
        ("http://h:9696/network/v2.0/security-groups?fields=id", "x/post/security-groups"),
        (f"http://h/volume/v3/{UUID.replace('-', '')}/volumes/{UUID}/action", "x/post/action"),
        ("http://h/v3/demo/volumes/detail?all_tenants=1", "x/post/detail"),
    ],
)
def test_request_has_the_name_of_its_subject(url: str, point: str) -> None:
    assert service_client._point("x", url, "POST", json={}) == point


def test_adapter_is_unchanged_without_failpoints(tmp_path: Path) -> None:
    conf = make_conf(tmp_path, FakeNeutron.options_of("http://127.0.0.1:1"))
    neutron_conf.register_opts(conf)
    assert "request" not in vars(service_client.load_adapter(conf, neutron_conf.GROUP, "test"))


@pytest.mark.parametrize(("where", "done"), [("before", False), ("after", True)])
def test_refused_request_to_neutron_is_done_or_not(tmp_path: Path, rules: Rules, where: str, done: bool) -> None:
    neutron = FakeNeutron()
    try:
        neutron.network("private", "p", shared=True)
        backend = network_driver.load_backend(make_conf(tmp_path, neutron.options()))
        call = NetworkCall(method=NetworkMethod.NETWORKS, context=CONTEXT)
        rules.arm(f"neutron/get/networks/{where}", failpoints.ERROR)
        with pytest.raises(exceptions.NetworkServiceUnavailable):
            backend.call(call)
        assert bool(neutron.asked) is done
        assert backend.call(call)
    finally:
        neutron.stop()


@pytest.mark.parametrize(("where", "done"), [("before", 0), ("after", 1)])
def test_refused_request_to_cinder_is_done_or_not(tmp_path: Path, rules: Rules, where: str, done: int) -> None:
    cinder = Cinder()
    try:
        volume_id = cinder.volume("p1")
        client = CinderClient(make_conf(tmp_path, cinder.options()))
        rules.arm(f"cinder/post/attachments/{where}", failpoints.ERROR)
        with pytest.raises(exceptions.VolumeServiceUnavailable):
            client.reserve(volume_id, UUID)
        assert len(cinder.attachments) == done
    finally:
        cinder.stop()


# --- durable files


def test_fencing_tokens_pass_their_points(tmp_path: Path, rules: Rules) -> None:
    conductor: Any = None
    images: Any = image_driver.load_backend(make.conf("sqlite://", tmp_path), conductor)
    driver = load_driver(tmp_path)
    driver.init_host()
    fencing = ComputeManager(make.conf("sqlite://", tmp_path), "h1", driver, conductor, images).host.fencing
    rules.arm("fence/before", failpoints.FULL)
    with pytest.raises(OSError) as caught:
        fencing.revoke(UUID, 3)
    assert caught.value.errno == errno.ENOSPC
    assert not fencing.get(UUID).is_revoked(3)
    rules.time.ahead = 10.0
    fencing.revoke(UUID, 3)
    assert fencing.get(UUID).is_revoked(3)
    assert rules.passed() == ["fence/before", *around("fence")]


def test_fencing_tokens_are_written_directly_without_failpoints(tmp_path: Path) -> None:
    conductor: Any = None
    images: Any = image_driver.load_backend(make.conf("sqlite://", tmp_path), conductor)
    driver = load_driver(tmp_path)
    driver.init_host()
    manager = ComputeManager(make.conf("sqlite://", tmp_path), "h1", driver, conductor, images)
    assert manager.host.fencing._write_file is files.write_atomically


def test_full_disk_refuses_durable_files_and_leaves_none(tmp_path: Path, rules: Rules) -> None:
    rules.arm("fence/before", failpoints.FULL)
    failpoints.reach("fence", "before")
    directory = tmp_path / "files"
    directory.mkdir()
    path = str(directory / "file")
    for write in (
        lambda: files.write_atomically(path, b"data"),
        lambda: files.large_part(str(directory), "part-").__enter__(),
        lambda: store.add(str(directory), UUID, io.BytesIO(b"data")),
    ):
        with pytest.raises(OSError) as caught:
            write()
        assert caught.value.errno == errno.ENOSPC
        assert list(directory.iterdir()) == []
    files.write_atomically(path, b"data", durable=False)
    assert Path(path).read_bytes() == b"data"
