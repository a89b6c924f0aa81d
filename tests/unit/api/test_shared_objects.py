"""Views that requests share: no client can tell them from views that were made for one request alone."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.api import conductor_client, shared_objects
from nova_lite.api.http import deploy, wsgi
from nova_lite.api.http.microversions import MAXIMUM
from nova_lite.api.shared_objects import SharedFlavor, SharedInstance, SharedObjects
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ApiTiming
from nova_lite.compute.api import API
from nova_lite.image.driver import load_backend
from nova_lite.objects import BlockDevice, Flavor, Instance, InstanceFault
from nova_lite.operations import states
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import ADMIN, MEMBER, Client, make_client
from tests.support.control_plane import FLAVOR, NOW, FakeConductor, make_instance

OWNERS = (("demo", "alice"), ("demo", "bob"), ("other", "mallory"))
#: A member, another one of the same project, one of another project, and an admin.
CALLERS = (MEMBER, "bob:demo", "mallory:other", ADMIN)
ADDRESSES = ("http://cloud:8774", "https://other.example")
VOLUME = BlockDevice(
    uuid="b", source_type="volume", destination_type="volume", volume_id="v", delete_on_termination=True
)
STATES = (states.ACTIVE, states.BUILDING, states.STOPPED, states.ERROR, states.RESIZED, states.SHELVED)


class Texts:
    """The texts of what a fake conductor replies."""

    def __init__(self, conductor: FakeConductor) -> None:
        self._conductor = conductor

    def __getattr__(self, name: str) -> Any:
        def read(context: RequestContext, *arguments: Any) -> Any:
            reply = getattr(self._conductor, name)(context, *arguments)
            kind: Any = list[msgspec.Raw] if isinstance(reply, list) else msgspec.Raw
            return msgspec.json.decode(msgspec.json.encode(reply), type=kind)

        return read


class Pair:
    """Two APIs over one conductor: ``alone`` shares nothing, ``sharing`` does."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.alone = make_client(conf)
        self.conductor = self.alone.conductor
        client = conductor_client.connect(  # type: ignore[arg-type]
            self.conductor, ApiTiming(flavor_cache=0.0), texts=Texts(self.conductor)
        )
        api = API()
        api.connect(client, self.alone.compute, load_backend(conf, client))  # type: ignore[arg-type]
        app = deploy.load_app("osapi_compute", wsgi.ApiServices(conf, Policy(conf), api))
        self.sharing = Client(app, self.conductor, self.alone.compute)

    def both(self, path: str, **options: Any) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
        one, other = self.alone("GET", path, **options), self.sharing("GET", path, **options)
        return (one.status_int, one.body), (other.status_int, other.body)


@pytest.fixture
def pair(conf: cfg.ConfigOpts) -> Pair:
    return Pair(conf)


def random_server(pick: random.Random, **changes: Any) -> Instance:
    project, user = pick.choice(OWNERS)
    values: dict[str, Any] = {
        "project_id": project,
        "user_id": user,
        "display_name": pick.choice(("vm", 'quotes " and \\', "ünïcode \u2028", "")),
        "display_description": pick.choice((None, "text")),
        "vm_state": pick.choice(STATES),
        "task_state": pick.choice((None, "rebooting", "resize_prep")),
        "power_state": pick.choice((0, 1, 4)),
        "host": pick.choice((None, "compute1", "compute2")),
        "host_status": pick.choice((None, "UP", "DOWN")),
        "locked": pick.random() < 0.5,
        "locked_reason": pick.choice((None, "reason")),
        "key_name": pick.choice((None, "key")),
        "user_data": pick.choice((None, "ZGF0YQ==")),
        "image_ref": pick.choice(("", "70a599e0-31e7-49b7-b260-868f441e862b")),
        "metadata": pick.choice(({}, {"a": "b", "z": "ö"})),
        "system_metadata": pick.choice(({}, {"image_os": "linux"})),
        "tags": pick.choice(([], ["one", "two"])),
        "scheduler_hints": pick.choice(({}, {"group": "g"})),
        "server_group": pick.choice((None, "8ba3b3c4-5d6e-4f70-8192-a3b4c5d6e7f8")),
        "block_devices": pick.choice(([], [VOLUME])),
        "fault": pick.choice((None, InstanceFault(code=500, message="m", details="secret", created_at=NOW))),
        "flavor": msgspec.structs.replace(FLAVOR, extra_specs=pick.choice(({}, {"hw:cpu_policy": "dedicated"}))),
        "updated_at": pick.choice((None, NOW)),
    }
    if pick.random() < 0.3:
        values["vifs"] = []
    return make_instance(**(values | changes))


@pytest.mark.parametrize("seed", range(4))
def test_shared_view_of_a_random_server_equals_the_view_made_alone(pair: Pair, seed: int) -> None:
    pick = random.Random(seed)
    servers = [random_server(pick) for _ in range(4)]
    pair.conductor.instances = {server.uuid: server for server in servers}
    for _ in range(60):
        if pick.random() < 0.1:
            old = pick.choice(servers)
            changed = random_server(pick, uuid=old.uuid)
            servers[servers.index(old)] = pair.conductor.instances[old.uuid] = changed
        path = pick.choice(
            ("/servers/detail", "/servers/detail?all_tenants=1", "/servers", *(f"/servers/{s.uuid}" for s in servers))
        )
        version = f"2.{pick.choice((1, 3, 9, 16, 26, 47, 63, 71, 73, 75, 90, 96, 98, 100, MAXIMUM.minor))}"
        headers = {"Host": pick.choice(("cloud:8774", "other.example"))}
        one, other = pair.both(path, version=version, token=pick.choice(CALLERS), headers=headers)
        assert one == other, (path, version)


@pytest.mark.parametrize("version", ["2.1", "2.55", "2.61", "2.75", "latest"])
def test_shared_view_of_flavors_equals_the_view_made_alone(pair: Pair, version: str) -> None:
    for _ in range(2):
        for token in CALLERS:
            one, other = pair.both("/flavors/detail", version=version, token=token)
            assert one == other
            assert one[0] == 200


def test_shared_server_is_shown_to_an_admin_and_a_member_differently(pair: Pair) -> None:
    server = pair.conductor.add(fault=InstanceFault(code=500, message="m", details="secret", created_at=NOW))
    server.vm_state = states.ERROR
    path = f"/servers/{server.uuid}"
    for token, sees in ((ADMIN, True), (MEMBER, False), (ADMIN, True), (MEMBER, False)):
        shown = pair.sharing.json("GET", path, version="latest", token=token)["server"]
        assert ("OS-EXT-SRV-ATTR:host" in shown) is sees
        assert ("details" in shown["fault"]) is sees
    assert pair.sharing("GET", path, token="mallory:other").status_int == 404


def test_shared_server_that_a_caller_may_no_longer_see_is_not_found(pair: Pair) -> None:
    server = pair.conductor.add()
    path = f"/servers/{server.uuid}"
    assert pair.sharing("GET", path).status_int == 200
    del pair.conductor.instances[server.uuid]
    assert pair.sharing("GET", path).status_int == 404


def test_view_of_a_shared_server_is_made_once_for_equal_requests(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    server = pair.conductor.add()
    made: list[Any] = []
    encode = msgspec.json.encode

    class Json:
        @staticmethod
        def encode(value: Any) -> bytes:
            made.append(value)
            return encode(value)

    class Msgspec:
        json, Raw = Json, msgspec.Raw

    monkeypatch.setattr(shared_objects, "msgspec", Msgspec)
    for _ in range(3):
        pair.sharing.json("GET", f"/servers/{server.uuid}")
    assert len(made) == 1


def text(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def test_shared_objects_of_equal_texts_are_one_object() -> None:
    objects = SharedObjects(SharedFlavor, 10**6)
    first, second = objects.get(text(FLAVOR)), objects.get(text(FLAVOR))
    other = objects.get(text(msgspec.structs.replace(FLAVOR, name="other")))
    assert first is second
    assert other is not first
    assert json.loads(msgspec.json.encode(first)) == json.loads(msgspec.json.encode(FLAVOR))


def test_shared_objects_beyond_their_memory_are_dropped_oldest_first() -> None:
    objects = SharedObjects(SharedFlavor, 3 * 6000)
    flavors = [msgspec.structs.replace(FLAVOR, name=f"f{number}") for number in range(4)]
    first = objects.get(text(flavors[0]))
    for flavor in flavors[1:3]:
        objects.get(text(flavor))
    assert objects.get(text(flavors[0])) is first
    objects.get(text(flavors[3]))
    assert objects.get(text(flavors[0])) is first
    assert len(objects) < 4


def test_shared_object_larger_than_the_memory_is_not_kept() -> None:
    objects = SharedObjects(SharedInstance, 1000)
    assert objects.get(text(make_instance(user_data="x" * 5000))).user_data == "x" * 5000
    assert len(objects) == 0


def test_shared_object_cannot_be_changed() -> None:
    shared = SharedObjects(SharedInstance, 10**6).get(text(make_instance()))
    with pytest.raises(AttributeError):
        shared.display_name = "other"  # type: ignore[misc]


def test_view_of_an_object_in_many_forms_keeps_few_of_them() -> None:
    shared = SharedObjects(SharedFlavor, 10**6).get(text(FLAVOR))

    def make(flavor: Flavor, form: int) -> dict[str, Any]:
        return {"form": form}

    for form in range(20):
        assert bytes(shared_objects.view(shared, form, make)) == b'{"form":%d}' % form
    assert len(shared.__dict__["views"]) <= shared_objects.MAX_FORMS
