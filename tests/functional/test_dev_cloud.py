"""``nova-lite dev``: a cloud in one process, started by an ordinary user and used by OpenStack's own clients."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import openstack
import pytest
import requests

from tests.support.api_client import ROOT
from tests.support.consoles import connect, read
from tests.support.other_user import NOBODY, as_nobody
from tests.support.waiting import wait_for

T = TypeVar("T")

COMMAND = (sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.dev", "dev", "--port", "0")
DEADLINE = 60.0

GREETING = b"\r\nnova-lite-guest: a fake guest, which repeats what you type\r\nlogin: "

SEED = """
projects:
- {name: team}
users:
- {name: alice, project: team, password: of-alice}
quotas:
  team: {instances: 3}
flavors:
- {name: own, ram: 64, vcpus: 1, disk: 1, projects: [team], extra_specs: {"hw:cpu_policy": shared}}
images:
- {name: from-file, file: disk.img, project: team, visibility: private, properties: {hw_disk_bus: virtio}}
networks:
- {name: inner, project: team, cidr: 10.64.7.0/24}
servers:
- {name: web, project: team, flavor: own, image: from-file, networks: [inner], count: 2, metadata: {role: web}}
- {name: late, project: team, flavor: m1.nano, image: nova-lite-guest, metadata: {"nova_lite:fail": build@host1}}
hosts:
  host2: {power_delay: 0.01}
"""


@pytest.fixture(scope="session", autouse=True)
def broker() -> None:
    """Replace the fixture of this directory: no broker is needed."""


class DevCloud:
    """A cloud that a user without any rights runs in a new directory."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        hidden = directory / "hidden"
        hidden.mkdir()
        (hidden / "libvirt.py").write_text("raise ImportError('a cloud in one process must not need libvirt')\n")
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "nova_lite.cmd.dev",
            "dev",
            "--port",
            "0",
            "--json",
            *arguments,
        ]
        if os.geteuid() == 0:
            for path in (directory, *directory.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            command = as_nobody(directory, command)
        with (directory / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(directory),
                    "TMPDIR": str(directory),
                    "PYTHONPATH": f"{hidden}:{ROOT}",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.before = {path.name for path in directory.iterdir()}
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors()
        self.ready = json.loads(line)
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        self.megabytes = int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def errors(self) -> str:
        return (self.directory / "errors").read_text()

    def connect(self, cloud: str) -> Any:
        return openstack.connect(load_yaml_config=False, load_envvars=False, **self.ready["clouds"][cloud])

    def openstack(self, *commands: str) -> list[str]:
        """Run commands in one openstack client, which ends with any status, and return the lines that it prints."""
        client = Path(sys.executable).with_name("openstack")
        with tempfile.TemporaryDirectory() as home:
            finished = subprocess.run(
                [sys.executable, "-W", "ignore", client],
                input="\n".join(commands),
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": home,
                    "OS_CLIENT_CONFIG_FILE": self.ready["clouds_file"],
                    "OS_CLOUD": "nova-lite-dev-demo",
                },
                capture_output=True,
                text=True,
                timeout=600,
            )
        assert finished.stderr == "", self.errors()
        return [line for line in finished.stdout.splitlines() if line]

    def stop(self, number: int = signal.SIGINT) -> None:
        """End the cloud, and check that nothing of it is left."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == 0, self.errors()
        with pytest.raises(ProcessLookupError):
            os.killpg(self.process.pid, 0)
        assert {path.name for path in self.directory.iterdir()} == self.before
        assert not Path(self.ready["clouds_file"]).parent.exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(self.ready["url"].rpartition(":")[2])))
        assert not any(word in self.errors() for word in (" ERROR ", " CRITICAL ", "Traceback"))


@contextlib.contextmanager
def running(*arguments: str, files: dict[str, str] | None = None) -> Iterator[DevCloud]:
    directory = Path(tempfile.mkdtemp(prefix="nova-lite-test-dev-"))
    try:
        for name, text in (files or {}).items():
            (directory / name).write_text(text)
        cloud = DevCloud(directory, *(argument.format(directory=directory) for argument in arguments))
        try:
            yield cloud
        finally:
            cloud.process.terminate()
            cloud.process.wait(DEADLINE)
    finally:
        shutil.rmtree(directory)


def test_openstack_client_uses_a_cloud_that_ends_without_a_trace() -> None:
    with running() as cloud:
        print(f"\nready after {cloud.ready['seconds']} s with {cloud.megabytes:.0f} MB")
        with tempfile.NamedTemporaryFile() as image:
            image.write(b"guest" * 1000)
            image.flush()
            lines = cloud.openstack(
                "server create --image nova-lite-guest --flavor m1.nano --wait first -f value -c status",
                "console log show first",
                "volume create --size 1 data -f value -c size",
                "server add volume first data -f value -c Device",
                f"image create --disk-format raw --file {image.name} uploaded -f value -c name",
                "image show uploaded -f value -c size",
                "network create inner -f value -c name",
                "subnet create --network inner --subnet-range 10.64.9.0/24 inner -f value -c cidr",
                "port create --network inner eth -f value -c status",
                "floating ip create public -f value -c floating_ip_address",
                "server stop first",
            )
        assert lines[:3] == ["ACTIVE", "fake firmware", "fake guest is booting"]
        assert "hostname=first ip=10.0.77." in lines[3]
        assert lines[4:] == ["1", "/dev/vdc", "uploaded", "5000", "inner", "10.64.9.0/24", "DOWN", "172.24.4.1"]
        demo = cloud.connect("nova-lite-dev-demo")
        (server,) = demo.compute.servers()
        (address,) = [entry["addr"] for entry in server.addresses["private"]]
        wait_for("the server is stopped", lambda: demo.compute.get_server(server).status == "SHUTOFF", DEADLINE)
        assert cloud.openstack(
            "server add floating ip first 172.24.4.1",
            "server show first -f value -c addresses",
            "server delete --wait first",
            "server list -f value",
            "volume list -f value -c Status",
        ) == [str({"private": [address, "172.24.4.1"]}), "available"]
        cloud.stop()


def test_sdk_finds_every_service_on_one_port() -> None:
    with running("--hosts", "2", "--password", "fixed") as cloud:
        assert cloud.ready["clouds"]["nova-lite-dev"]["auth"]["password"] == "fixed"
        assert requests.get(cloud.ready["url"], timeout=30).json()["services"]["image"].endswith("/image")
        admin = cloud.connect("nova-lite-dev")
        assert sorted(service.host for service in admin.compute.services(binary="nova-compute")) == ["host1", "host2"]
        assert {flavor.name for flavor in admin.compute.flavors()} > {"m1.nano", "m1.xlarge"}
        assert [image.status for image in admin.image.images()] == ["active"]
        assert {network.name for network in admin.network.networks()} == {"private", "public"}
        assert list(admin.block_storage.volumes()) == []
        assert {project.name for project in admin.identity.projects()} == {"admin", "demo"}
        demo = cloud.connect("nova-lite-dev-demo")
        server = demo.create_server("one", image="nova-lite-guest", flavor="m1.nano", auto_ip=False, wait=True)
        providers = {provider.name: provider for provider in admin.placement.resource_providers()}
        assert providers.keys() == {"host1", "host2"}
        found = admin.placement.resource_provider_inventories(providers["host1"])
        assert {inventory.resource_class: inventory.total for inventory in found}["VCPU"] == 64
        assert "VCPU" in {resource_class.name for resource_class in admin.placement.resource_classes()}
        assert "COMPUTE_NODE" in {trait.name for trait in admin.placement.traits()}
        metadata = requests.get(
            f"{cloud.ready['url']}/metadata/openstack/latest/meta_data.json",
            headers={"X-Forwarded-For": server.private_v4},
            timeout=30,
        )
        assert metadata.status_code == 200, (metadata.status_code, metadata.text)
        assert metadata.json()["uuid"] == server.id
        serial = demo.compute.create_console(server, console_type="serial")["url"]
        with console(serial) as client:
            assert read(client, len(GREETING)) == GREETING
            client.send(b"root\r")
            assert read(client, 6) == b"root\r\n"
        with console(demo.compute.create_console(server, console_type="novnc")["url"]) as client:
            assert read(client, 12) == b"RFB 003.008\n"
            client.send(b"RFB 003.008\n")
            assert read(client, 2) == b"\x01\x01"
            client.send(b"\x01")
            assert read(client, 4) == bytes(4)
            client.send(b"\x01")
            assert read(client, 24 + 15)[:4] == b"\x01\x40\x00\xc8"
            client.send(b"\x02\x00\x00\x01\x00\x00\x00\x00\x03" + bytes(9))
            assert len(read(client, 16 + 4 * 320 * 200)) >= 16 + 4 * 320 * 200
        admin.compute.live_migrate_server(server, host=None, block_migration="auto")
        wait_for("the server is on the other host", lambda: _host(admin, server.id) != server.compute_host, DEADLINE)
        cloud.stop(signal.SIGTERM)


@contextlib.contextmanager
def console(url: str) -> Iterator[Any]:
    """Connect to a console as its page does."""
    parts = urllib.parse.urlsplit(url)
    query = urllib.parse.parse_qs(parts.query)
    path = "/" + query["path"][0] if "path" in query else f"/?{parts.query}"
    with socket.create_connection((parts.hostname, parts.port), 30) as sock:
        yield connect(sock, path)


def _host(admin: Any, server_id: str) -> str | None:
    server = admin.compute.get_server(server_id)
    return None if server.task_state else str(server.compute_host)


def test_seed_file_makes_its_content() -> None:
    arguments = ("--hosts", "2", "--faults", "--seed", "{directory}/seed.yaml", "--clouds-file", "{directory}/c.yaml")
    with running(*arguments, files={"seed.yaml": SEED, "disk.img": "bytes of a disk"}) as cloud:
        assert (cloud.directory / "c.yaml").stat().st_mode & 0o777 == 0o600
        cloud.before.discard("c.yaml")
        alice = cloud.connect("nova-lite-dev-alice")
        assert alice.auth["password"] == "of-alice"
        servers = {server.name: server for server in alice.compute.servers()}
        assert {name: server.status for name, server in servers.items()} == {
            "web-1": "ACTIVE",
            "web-2": "ACTIVE",
            "late": "ACTIVE",
        }
        assert list(servers["web-1"].addresses) == ["inner"]
        assert servers["web-1"].metadata == {"role": "web"}
        admin = cloud.connect("nova-lite-dev")
        assert admin.compute.get_server(servers["late"].id).compute_host == "host2"
        image = alice.image.find_image("from-file")
        assert (image.size, image.visibility, image.hw_disk_bus) == (len("bytes of a disk"), "private", "virtio")
        with pytest.raises(openstack.exceptions.HttpException, match=r"[Qq]uota"):
            alice.create_server("more", image=image, flavor="own", auto_ip=False)
        assert cloud.connect("nova-lite-dev-demo").compute.find_flavor("own") is None
        cloud.stop()


def test_faults_follow_metadata_and_flavor() -> None:
    with running("--faults") as cloud:
        demo = cloud.connect("nova-lite-dev-demo")

        def create(name: str, flavor: str = "m1.nano", **metadata: str) -> Any:
            image, found = demo.image.find_image("nova-lite-guest"), demo.compute.find_flavor(flavor)
            server = demo.compute.create_server(
                name=name, image_id=image.id, flavor_id=found.id, networks="auto", metadata=metadata
            )
            return wait_for(
                f"{name} is built", lambda: (s := demo.compute.get_server(server)).status != "BUILD" and s, DEADLINE
            )

        for failed in (create("one", flavor="fault.fail"), create("two", **{"nova_lite:fail": "build"})):
            assert failed.status == "ERROR"
            assert "fault" in failed.fault or "host" in failed.fault["message"]
        stopping = create("three", **{"nova_lite:fail": "stop"})
        assert stopping.status == "ACTIVE"
        demo.compute.stop_server(stopping)
        wait_for("the stop has failed", lambda: demo.compute.get_server(stopping).task_state is None, DEADLINE)
        assert demo.compute.get_server(stopping).status == "ACTIVE"
        image, slow = demo.image.find_image("nova-lite-guest"), demo.compute.find_flavor("fault.slow")
        demo.compute.create_server(name="slow", image_id=image.id, flavor_id=slow.id, networks="auto")
        cloud.process.send_signal(signal.SIGINT)  # while the slow guest is built
        assert cloud.process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("seed", "sentence"),
    [
        ("flavor: []", "unknown field `flavor`"),
        ("flavors: [{name: a, ram: lots, vcpus: 1, disk: 1}]", "`$.flavors[0].ram`"),
        ("flavors: [{name: m1.tiny, ram: 1, vcpus: 1, disk: 1}]", "m1.tiny"),
        ("servers: [{name: a, flavor: m1.nano, image: none}]", "image that is not there: none"),
        ("images: [{name: a}]", "either a file or content"),
        ("images: [{name: a, file: none}]", "No such file"),
        ("quotas: {nobody: {cores: 1}}", "project that is not there: nobody"),
        ("hosts: {host9: {vcpus: 1}}", "--hosts 1"),
        ("hosts: {host1: {vcpu: 1}}", "vcpu"),
        ("networks: [{name: a, cidr: 10.0.77.0/25}]", "10.0.77.0/25"),
        ("a: [", "seed.yaml"),
    ],
)
def test_seed_mistake_ends_with_one_line(tmp_path: Path, seed: str, sentence: str) -> None:
    (tmp_path / "seed.yaml").write_text(seed)
    finished = _failing(tmp_path, "--seed", str(tmp_path / "seed.yaml"))
    (line,) = [line for line in finished.splitlines() if " WARNING " not in line]  # a busy machine causes some
    assert line.startswith("nova-lite dev: ")
    assert sentence in line


def test_used_port_ends_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert _failing(tmp_path, "--port", str(port)) == (
            f"nova-lite dev: cannot listen on 127.0.0.1 port {port}: the port is in use. Use another --port; "
            "0: a free one.\n"
        )


def test_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text("clouds: {mine: {}}\n")
    assert "exists" in _failing(tmp_path, "--clouds-file", str(tmp_path / "clouds.yaml"))
    assert (tmp_path / "clouds.yaml").read_text() == "clouds: {mine: {}}\n"


def _failing(directory: Path, *arguments: str) -> str:
    """Run a cloud that does not start, and return what it prints to stderr."""
    temporary = directory / "temporary"
    temporary.mkdir()
    finished = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert finished.returncode == 1, finished.stderr
    assert list(temporary.iterdir()) == []
    assert finished.stdout == ""
    return finished.stderr


def test_fixture_provides_a_cloud_with_the_projects_arguments(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nnova_lite_dev = --hosts 2 --faults\n")
    (tmp_path / "test_it.py").write_text(
        "import subprocess, os\n"
        "def test_cloud(nova_lite_cloud):\n"
        "    admin = nova_lite_cloud.connect()\n"
        "    assert len(list(admin.compute.services(binary='nova-compute'))) == 2\n"
        "    assert nova_lite_cloud.connect('demo').compute.find_flavor('fault.fail')\n"
        "    assert nova_lite_cloud.environment['OS_CLOUD'] == 'nova-lite-dev'\n"
        "    open('file', 'w').write(nova_lite_cloud.clouds_file)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert not Path((tmp_path / "file").read_text()).parent.exists()


def test_cloud_ends_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-m', 'nova_lite.cmd.dev', 'dev', '--port', '0', '--json']\n"
        "cloud = subprocess.Popen([*command, '--parent', str(os.getpid())], stdout=subprocess.PIPE, text=True)\n"
        "print(cloud.pid, cloud.stdout.readline(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=4 * DEADLINE)
    pid, _, ready = finished.stdout.partition(" ")
    wait_for("the cloud has ended", lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), DEADLINE)
    assert not Path(json.loads(ready)["clouds_file"]).parent.exists()


def _is_zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
