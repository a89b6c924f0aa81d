"""Daemons of the last release beside those of this one: servers come, stop, start and go, and none is lost.

`NOVA_LITE_LONG=1` makes 200 operations of each pair of neighbours, otherwise it is a tenth of that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from tests.functional import older_code
from tests.functional.cloud import IMAGE_BYTES, NETWORK, ROOT, Cloud
from tests.support.code_versions import LAST_RELEASE
from tests.support.waiting import wait_for

LONG = os.environ.get("NOVA_LITE_LONG") == "1"

#: Servers of one mix, each of which is created, stopped, started and deleted: half of them on the old host.
SERVERS = 100 if LONG else 10
AT_ONCE = 8


@pytest.fixture(scope="session")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the code of `LAST_RELEASE`, with the metadata by which its plugins are found."""
    return older_code.extract(LAST_RELEASE, tmp_path_factory.mktemp("old"))


class MixedCloud(Cloud):
    """Daemons of two versions, over a database with the conductor's schema.

    ``old``: the daemons that run the code of ``tree``.
    """

    def __init__(self, path: Path, tree: Path, old: tuple[str, ...]) -> None:
        # A host that lists its domains before a stop, and tells it after, has the server ACTIVE till the next time.
        super().__init__(path, computes=2, vcpus=200, extra_config="[compute]\nreconcile_interval = 600\n")
        self.tree = tree
        self.old = old
        self.prefixes = {name: older_code.prefix(tree) for name in old}

    def _write_config(self, name: str) -> None:
        super()._write_config(name)
        if name in self.old:
            file = self.path / f"{name}.conf"
            file.write_text(file.read_text().replace(f"{ROOT}/etc", f"{self.tree}/etc"))

    def _fill_database(self) -> None:
        """Fill the database with the conductor's own tool: the other version may have another schema."""
        self.manage("db", "sync")
        self.manage("flavor", "create", "m1.nano", "--id", "1", "--vcpus", "1", "--ram", "8", "--disk", "1")
        options = [f"--{name}={NETWORK[name]}" for name in ("gateway", "bridge", "start", "end")]
        self.manage("network", "create", "private", NETWORK["cidr"], "--default", *options)
        image = self.path / "image.raw"
        image.write_bytes(IMAGE_BYTES)
        self.image_id = self.manage("image", "import", str(image), "--name=cirros", "--disk-format=raw").strip()

    def is_old(self, name: str) -> bool:
        """Check whether the running daemon's code is from ``tree``."""
        return os.readlink(f"/proc/{self.processes[name].pid}/cwd") == str(self.tree)


@pytest.fixture
def mixed(old_tree: Path, tmp_path: Path) -> Iterator[Callable[..., MixedCloud]]:
    made: list[MixedCloud] = []

    def make(*old: str) -> MixedCloud:
        cloud = MixedCloud(tmp_path, old_tree, old)
        made.append(cloud)
        cloud.make()
        cloud.start_all()
        assert [name for name in cloud.names if cloud.is_old(name)] == [name for name in cloud.names if name in old]
        return cloud

    yield make
    for cloud in made:
        cloud.destroy()


def live(cloud: Cloud, number: int) -> None:
    """Create, stop, start and delete one server on one of the hosts."""
    host = cloud.computes[number % len(cloud.computes)]
    name = f"vm-{number}-{uuid.uuid4().hex[:6]}"
    server = {"name": name, "imageRef": cloud.image_id, "flavorRef": "1", "availability_zone": f"nova:{host}"}
    answer = cloud.request("POST", "/servers", {"server": server | {"networks": "auto"}}, version="2.37")
    assert answer.status_code == 202, answer.text
    server_id = answer.json()["server"]["id"]

    def in_state(status: str) -> dict[str, Any] | None:
        found = cloud.show(server_id)
        assert found is not None, f"{server_id} is lost"
        return found if found["status"] in (status, "ERROR") and not found["OS-EXT-STS:task_state"] else None

    became = []
    for status, act in (("ACTIVE", None), ("SHUTOFF", "os-stop"), ("ACTIVE", "os-start")):
        if act is not None:
            answer = cloud.action(server_id, {act: None})
            assert answer.status_code == 202, f"{act} of {server_id}: {answer.text}"
        found = wait_for(f"{server_id} is {status}", functools.partial(in_state, status))
        became.append((found["status"], found["OS-EXT-SRV-ATTR:host"]))
    assert became == [("ACTIVE", host), ("SHUTOFF", host), ("ACTIVE", host)], server_id
    assert cloud.domains()[server_id] == host
    events = cloud.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    told = [(event["action"], event["message"]) for event in events]
    assert told == [("start", None), ("stop", None), ("create", None)]
    assert cloud.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for(f"{server_id} is gone", lambda: cloud.show(server_id) is None)


@rpc.service("compute", version="2.99")
class LaterComputeRPC(Protocol):
    """Protocol of a hypothetical next version of a host."""

    @rpc.method(since="2.99")
    def ask(self, context: RequestContext, host: rpc.Receiver) -> str: ...

    @rpc.method(kind=rpc.CAST)
    def run_command(
        self, context: RequestContext, host: rpc.Receiver, method: rpc.MethodName, version: rpc.Version
    ) -> None: ...


@contextlib.contextmanager
def transport_of(cloud: Cloud) -> Iterator[rpc.Transport]:
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(cloud.config_arguments("api"), project="nova-lite", default_config_files=[])
    transport = rpc.Transport(conf, rpc.API)
    yield transport
    transport.cleanup()
    conf.reset()


def check_what_comes_later_is_refused(cloud: Cloud) -> None:
    """Check that hosts of both versions refuse newer methods with a sentence, not silently."""
    with transport_of(cloud) as transport:
        later = rpc.proxy(LaterComputeRPC, transport)
        for host in cloud.computes:
            with pytest.raises(exceptions.ServiceTooOld, match=f"on host {host} is too old for ask"):
                later.ask(get_admin_context(), host)
            with pytest.raises(exceptions.ServiceTooOld, match=f"on host {host} is too old for fly_instance"):
                later.run_command(get_admin_context(), host, "fly_instance", "2.99")
            log = (cloud.path / f"{host}.log").read_text()
            assert "fly_instance" not in log, "it was sent, though nobody can read it"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "old",
    [
        pytest.param(("api", "compute-1"), id="old API, new conductor, old and new host"),
        pytest.param(("conductor", "compute-2"), id="new API, old conductor, new and old host"),
    ],
)
def test_servers_survive_mixed_versions(mixed: Callable[..., MixedCloud], old: tuple[str, ...]) -> None:
    cloud = mixed(*old)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in [pool.submit(live, cloud, number) for number in range(SERVERS)]:
            result.result()
    assert cloud.domains() == {}
    cloud.audit()
    for name in cloud.names:
        assert "Traceback (most recent call last)" not in (cloud.path / f"{name}.log").read_text(), cloud.log(name)
    check_what_comes_later_is_refused(cloud)
