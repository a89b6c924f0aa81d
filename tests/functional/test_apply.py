"""``nova-lite apply`` against a whole cloud: predictions, interruptions, things of others, and its command line."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from openstack.connection import Connection

from nova_lite.cmd import apply
from nova_lite.cmd.apply import document
from nova_lite.cmd.apply import plan as plans
from nova_lite.cmd.apply.api import Api
from nova_lite.cmd.apply.plan import Key, Op, Step, Thing
from tests.functional import cloud as clouds
from tests.functional.cloud import PASSWORDS, Cloud
from tests.functional.sdk import connect
from tests.support.api_client import ROOT
from tests.support.random_clouds import KEY, POOL, Clouds

ROUNDS = 1000 if os.environ.get("NOVA_LITE_LONG") == "1" else 10
IMAGES, FLAVORS = ["cirros", "other"], ["m1.nano", "m1.more"]
COMMAND = (sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.apply")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("apply")
    with clouds.running(path, standalone=True, computes=2, extra_config="[quota]\nram = -1\n") as running:
        admin = connect(running, "admin")
        pool = admin.network.create_network(name=POOL, is_router_external=True)
        admin.network.create_subnet(network_id=pool.id, ip_version=4, cidr="198.51.100.0/24", enable_dhcp=False)
        admin.compute.create_flavor(name="m1.more", vcpus=1, ram=96, disk=2)
        admin.create_image("other", data=b"other", disk_format="raw", container_format="bare", visibility="public")
        admin.close()
        yield running


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Iterator[Connection]:
    connection = connect(cloud, "demo")
    yield connection
    connection.close()


class Stopped(Exception):
    """The test has stopped an application."""


class StoppingApi(Api):
    """Loses the connection after a number of changes, before the response to the last one is seen."""

    changes = 0

    def send(self, service: str, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        answer = super().send(service, method, path, body, **query)
        if method != "GET":
            self.changes -= 1
            if self.changes == 0:
                raise Stopped
        return answer


def written(directory: Path, content: dict[str, Any]) -> document.File:
    path = directory / "cloud.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return document.load(str(path))


def applied(api: Api, file: document.File) -> list[Step]:
    """Apply a file, and check that the prediction came true and that a second plan is empty."""
    builder, place, steps = apply.planned(api, file)
    apply.carry_out(api, file, builder, place, steps)
    _, after, again = apply.planned(api, file)
    assert differences(plans.simulate(place.found, steps), after.found) == []
    assert again == []
    return steps


def differences(predicted: dict[Key, Thing], found: dict[Key, Thing]) -> list[Any]:
    wrong: list[Any] = sorted(predicted.keys() ^ found.keys())
    for key in predicted.keys() & found.keys():
        values, real = predicted[key].values, found[key].values
        wrong += [(key, name, value, real.get(name)) for name, value in values.items() if real.get(name) != value]
    return wrong


def of_others(demo: Connection) -> dict[str, Any]:
    """Return the things of a project that are of no file: their names, states and relations."""
    servers = {item.name: (item.status, item.metadata, item.addresses) for item in demo.compute.servers()}
    volumes = {item.name: (item.status, item.size, item.attachments) for item in demo.block_storage.volumes()}
    project = demo.current_project_id
    rules = [item.id for item in demo.network.security_group_rules(project_id=project)]
    return {
        "servers": servers,
        "volumes": volumes,
        "networks": sorted(item.name for item in demo.network.networks()),
        "groups": sorted(item.name for item in demo.network.security_groups(project_id=project)),
        "rules": sorted(rules),
        "keys": sorted(item.name for item in demo.compute.keypairs()),
        "addresses": [(item.id, item.port_id) for item in demo.network.ips(project_id=project)],
        "ports": sorted(item.id for item in demo.network.ports(project_id=project)),
    }


@pytest.fixture
def others(demo: Connection) -> Iterator[dict[str, Any]]:
    """Make things by hand, and check afterwards that nothing has touched them."""
    server = demo.create_server("own", image="cirros", flavor="m1.nano", wait=True, auto_ip=False)
    volume = demo.create_volume(1, name="own", wait=True, metadata={"kept": "yes"})
    demo.attach_volume(server, volume, wait=True)
    network = demo.network.create_network(name="own", description="[nova-lite-apply:somebody/own]")
    group = demo.network.create_security_group(name="own")
    demo.compute.create_keypair(name="own", public_key=KEY)
    before = of_others(demo)
    yield before
    assert of_others(demo) == before
    demo.delete_server(server.id, wait=True)
    demo.delete_volume(volume.id, wait=True)
    demo.network.delete_network(network)
    demo.network.delete_security_group(group)
    demo.compute.delete_keypair("own")


def test_random_clouds_and_changes_come_as_predicted(demo: Connection, others: dict[str, Any], tmp_path: Path) -> None:
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        content = (random_clouds := Clouds(rng, IMAGES, FLAVORS)).new(f"cloud-{seed}")
        print(f"\nseed {seed}")
        applied(Api(demo), written(tmp_path, content))
        content = random_clouds.edited(content)
        stop_on_the_way(demo, written(tmp_path, content), rng.randint(1, 12))
        applied(Api(demo), written(tmp_path, content))
        applied(Api(demo), written(tmp_path, {"cloud": f"cloud-{seed}"}))
        assert of_others(demo) == others


def stop_on_the_way(demo: Connection, file: document.File, changes: int) -> None:
    """Begin to apply a file, and stop after some changes, if it has as many."""
    api = StoppingApi(demo)
    builder, place, steps = apply.planned(api, file)
    api.changes = changes
    try:
        apply.carry_out(api, file, builder, place, steps)
    except Stopped:
        print(f"stopped after {changes} changes")


SHOP = """cloud: shop
networks:
- {name: inner, cidr: 10.64.1.0/24}
servers:
- name: web
  flavor: m1.nano
  image: cirros
  networks: [inner]
"""


@pytest.fixture
def directory(cloud: Cloud, tmp_path: Path) -> Path:
    """Return a directory with ``clouds.yaml`` and a file of a cloud."""
    auth = {"auth_url": cloud.identity_url, "username": "demo", "password": PASSWORDS["demo"], "project_name": "demo"}
    auth |= {"user_domain_id": "default", "project_domain_id": "default"}
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"c": {"auth": auth, "region_name": "RegionOne"}}}))
    (tmp_path / "cloud.yaml").write_text(SHOP)
    return tmp_path


def command(directory: Path, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(directory)}
    return subprocess.run(
        [*COMMAND, "-f", "cloud.yaml", "--cloud", "c", *arguments],
        cwd=directory, env=environment, input=answer, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_command_shows_asks_applies_and_finds_drift(directory: Path, demo: Connection) -> None:
    shown = command(directory, "--diff")
    assert (shown.returncode, shown.stderr) == (2, "")
    assert "    + create server web\n" in shown.stdout and demo.compute.find_server("web") is None
    refused = command(directory, answer="no\n")
    assert refused.returncode == 1 and refused.stdout.endswith("Nothing was changed.\n")
    done = command(directory, answer="yes\n")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert demo.compute.find_server("web").status == "ACTIVE"
    same = command(directory, "--diff")
    assert same.returncode == 0 and same.stdout.startswith("Nothing to do")
    demo.compute.set_server_metadata(demo.compute.find_server("web"), role="other")
    drifted = command(directory, "--diff")
    assert drifted.returncode == 2 and '        metadata.role: "other" -> null\n' in drifted.stdout
    (directory / "cloud.yaml").write_text("cloud: shop\n")
    removed = command(directory, "--yes")
    assert removed.returncode == 0 and "DATA LOSS" in removed.stdout
    assert demo.compute.find_server("web") is None and demo.network.find_network("inner") is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("m1.nano", "m1.none", "cloud.yaml:6: there is no flavor m1.none: name one of the file or of the cloud."),
        ("10.64.1.0/24", "10.64.1.0/40", "cloud.yaml:3: subnet inner: '10.64.1.0/40' is no range of addresses"),
        ("cloud: shop", "cloud: shop\nserver: []", "cloud.yaml: Object contains unknown field `server`"),
    ],
)
def test_mistake_ends_the_command_with_one_line(directory: Path, old: str, new: str, message: str) -> None:
    (directory / "cloud.yaml").write_text(SHOP.replace(old, new))
    ended = command(directory, "--yes")
    assert ended.returncode == 1 and ended.stderr.startswith(f"nova-lite apply: {message}")
    assert ended.stderr.count("\n") == 1 and ended.stdout == ""


def test_refused_step_names_its_line_and_repeating_goes_on(directory: Path, demo: Connection) -> None:
    (directory / "cloud.yaml").write_text(SHOP.replace("m1.nano", "m1.huge"))
    ended = command(directory, "--yes")
    assert ended.returncode == 1
    assert ended.stderr.startswith("nova-lite apply: cloud.yaml:5: cannot create server web: ")
    (directory / "cloud.yaml").write_text(SHOP)
    assert command(directory, "--yes").returncode == 0
    assert demo.compute.find_server("web").status == "ACTIVE"
    (directory / "cloud.yaml").write_text("cloud: shop\n")
    assert command(directory, "--yes").returncode == 0


def test_change_between_plan_and_answer_stops_everything(
    directory: Path, demo: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apply, "connect", lambda name: Api(demo))
    monkeypatch.chdir(directory)

    def answer(question: str) -> str:
        demo.network.create_network(name="inner")
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    arguments = apply.parser().parse_args(["-f", "cloud.yaml"])
    assert apply.run(arguments) == apply.FAILED
    assert "has changed since the plan was made, so nothing was done" in capsys.readouterr().err
    assert demo.compute.find_server("web") is None
    demo.network.delete_network(demo.network.find_network("inner"))


def test_deletion_of_a_used_thing_is_refused_before_anything_is_done(directory: Path, demo: Connection) -> None:
    assert command(directory, "--yes").returncode == 0
    port = demo.network.create_port(network_id=demo.network.find_network("inner").id, name="own")
    (directory / "cloud.yaml").write_text("cloud: shop\n")
    ended = command(directory, "--yes")
    assert ended.returncode == 1 and f"things of others use it: port {port.id}. Nothing was changed." in ended.stderr
    assert demo.compute.find_server("web").status == "ACTIVE"
    demo.network.delete_port(port)
    assert command(directory, "--yes").returncode == 0


def test_admin_describes_projects_and_flavors(cloud: Cloud, tmp_path: Path) -> None:
    admin = connect(cloud, "admin")
    content = {
        "cloud": "admins",
        "projects": [{"name": "team", "description": "Web shop"}],
        "flavors": [{"name": "team.small", "ram": 64, "vcpus": 1, "disk": 1, "projects": ["team"],
                     "extra_specs": {"hw:cpu_policy": "shared"}}],
    }  # fmt: skip
    applied(Api(admin), written(tmp_path, content))
    content["flavors"] = [{"name": "team.small", "ram": 96, "vcpus": 1, "disk": 1, "projects": ["team", "demo"]}]
    steps = applied(Api(admin), written(tmp_path, content))
    assert [step.op for step in steps] == [Op.DELETE, Op.CREATE]
    assert admin.compute.find_flavor("team.small").ram == 96
    applied(Api(admin), written(tmp_path, {"cloud": "admins"}))
    assert admin.identity.find_project("team") is None and admin.compute.find_flavor("team.small") is None
    admin.close()
