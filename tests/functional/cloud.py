"""A whole control plane for a test: daemons as processes, a RabbitMQ vhost and a database of its own, fake hypervisors.

`Cloud` starts and ends only what it made. Needs ``rabbitmqctl`` and a broker on loopback (user guest).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite import objects
from nova_lite.api.identity import directory
from nova_lite.api.identity.replica import Replica
from nova_lite.base import concurrency, master_keys, memory
from nova_lite.daemon import cpu_affinity
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database
from nova_lite.db.identity.identity_records import DatabaseStore
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors
from nova_lite.operations.states import PowerState
from tests.functional import nursery
from tests.support import keys
from tests.support.migrated import migrate
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE, wait_for

ROOT = Path(__file__).resolve().parents[2]
NETWORK = {
    "cidr": "10.99.0.0/16",
    "gateway": "10.99.0.1",
    "bridge": "nlt0",
    "start": "10.99.0.2",
    "end": "10.99.255.254",
}
IMAGE_BYTES = b"an image for the fake driver" * 64
DAEMONS = ("conductor", "scheduler", "api")

CONFIG = """
[DEFAULT]
host = {host}
state_path = {state}
transport_url = rabbit://guest:guest@127.0.0.1:{broker_port}/{vhost}
compute_driver = fake
reserved_host_memory_mb = 0
[rpc]
signing = {signing}
keys_directory = {keys}
[metrics]
enabled = false
[conductor]
action_deadline = {action_deadline}
[image]
store_path = {shared}/images
[volume]
store_path = {shared}/volumes
backup_path = {shared}/backups
encryption_key_file = {shared}/volume-keys
[api]
paste_config = {root}/etc/nova-lite/api-paste.ini
port = {port}
{api}
[fake]
vcpus = {vcpus}
memory_mb = {memory_mb}
disk_gb = {disk_gb}
"""


#: Settings that shorten waits of tests.
IMPATIENT = """
[DEFAULT]
report_interval = 1
service_down_time = 6
rpc_response_timeout = 10
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 10
[conductor]
lease_seconds = 5
reconcile_interval = 0.3
retry_backoff = 1,2,3
[scheduler]
resync_interval = 5
[compute]
reconcile_interval = 3
"""

STANDALONE = """
enabled_apis = osapi_compute, identity, image, volume{cloud.network_api}
auth_strategy = standalone
identity_port = {cloud.identity_port}
image_port = {cloud.image_port}
volume_port = {cloud.volume_port}
network_port = {cloud.network_port}
placement_port = {cloud.placement_port}
load_balancer_port = {cloud.load_balancer_port}
[identity]
users_file = {cloud.path}/users.yaml
tokens_path = {cloud.path}/identity
"""
NOAUTH = """
enabled_apis = osapi_compute, volume{cloud.network_api}
auth_strategy = noauth2
volume_port = {cloud.volume_port}
network_port = {cloud.network_port}
load_balancer_port = {cloud.load_balancer_port}
"""
PASSWORDS = {"admin": "the admin's secret", "demo": "demo's secret", "other": "other's secret"}


def daemon_of(name: str) -> str:
    """Return the daemon that a process of this name runs: ``compute`` for ``compute-1``."""
    return name.split("-")[0]


def role_of(name: str) -> str:
    """Return the role that such a daemon signs with."""
    daemon = daemon_of(name)
    return "console" if daemon.endswith("proxy") else daemon


def rabbitmqctl(*arguments: str) -> str:
    result = subprocess.run(["rabbitmqctl", "-q", *arguments], capture_output=True, text=True, timeout=120, check=True)
    return result.stdout


class Cloud:
    """Four kinds of daemons. ``database``: an SQLAlchemy URL, or None for SQLite; ``computes``: how many hosts.

    ``broker_port``, ``broker_control``: its port and its rabbitmqctl, if it is not the machine's own broker.

    ``more``: further daemons, as in ``("conductor-2",)``, each on a host of its own name.

    ``prefixes``, an attribute: what a daemon's command begins with, by name (``ip netns exec …``).

    ``launcher``: a module, and its first arguments, that runs the daemons' modules (`tests.faults.without`).

    ``quota``: project demo's limit of instances, cores and memory, if not the default; -1: none.

    ``patient``: with the intervals and delays that daemons have where nothing is configured; tests have shorter ones.
    ``standalone``: with identity and image API; users of ``PASSWORDS``, each in the project of the same name.
    ``fenced``: hosts that are forced down, which is the word that nothing on them runs.
    ``forked``, an attribute: daemons and `manage` begin as copies of a process that has imported them.
    ``signing``, an attribute: ``[rpc] signing``. Each daemon has its key.
    ``network``, ``memory_mb_of_flavor``, ``image_file``, attributes: what flavor 1, the image and the network are.
    """

    forked = True
    signing = "required"
    network: dict[str, Any] = NETWORK
    memory_mb_of_flavor = 64
    image_file: Path | None = None

    def __init__(
        self,
        path: Path,
        database: str | None = None,
        computes: int = 1,
        vcpus: int = 8,
        memory_mb: int = 8192,
        disk_gb: int = 100,
        action_deadline: int = 120,
        broker_port: int = 5672,
        broker_control: Callable[..., str] = rabbitmqctl,
        more: tuple[str, ...] = (),
        extra_config: str = "",
        launcher: tuple[str, ...] = (),
        quota: int | None = None,
        environment: dict[str, str] | None = None,
        environment_but_conductor: dict[str, str] | None = None,
        standalone: bool = False,
        patient: bool = False,
    ) -> None:
        self.path = path
        self.vhost = f"nova-lite-test-{uuid.uuid4().hex[:12]}"
        self.port = free_port()
        self.standalone = standalone
        self.identity_port, self.image_port = free_port(), free_port()
        self.volume_port, self.network_port, self.placement_port = free_port(), free_port(), free_port()
        self.load_balancer_port = free_port()
        # The network API needs the built-in networks.
        ours = not any(f"backend = {item}\n" in extra_config for item in ("none", "neutron"))
        self.network_api = ", network" if ours else ""
        self.token = "admin:demo"
        self.database = database or f"sqlite:///{path}/nova-lite.sqlite"
        self.environment = environment or {}
        self.environment_but_conductor = environment_but_conductor or {}
        self.capacity = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_gb": disk_gb}
        self.action_deadline = action_deadline
        self.broker_port = broker_port
        self.broker_control = broker_control
        self.more = more
        self.extra_config = ("" if patient else IMPATIENT) + extra_config
        self.launcher = launcher
        self.quota = quota
        self.computes = [f"compute-{index}" for index in range(1, computes + 1)]
        self.processes: dict[str, subprocess.Popen[bytes] | nursery.Daemon] = {}
        self.image_id = str(uuid.uuid4())
        self.fenced: set[str] = set()
        self.prefixes: dict[str, list[str]] = {}

    # --- set-up

    @property
    def names(self) -> list[str]:
        return ["conductor", "scheduler", *self.more, *self.computes, "api"]

    def make(self) -> None:
        """Create vhost, configuration, and a database with a flavor, an image and a network. Nothing runs yet."""
        self.make_vhost()
        keys.make(self.path / "keys", self._peers())
        for name in self.names:
            self._write_config(name)
        (self.path / "database.conf").write_text(f"[database]\nconnection = {self.database}\n")
        self._fill_database()
        if self.standalone:
            self._add_users()

    def host_of(self, name: str) -> str:
        return "controller" if name in DAEMONS else name

    def _peers(self) -> list[tuple[str, str]]:
        peers = [(role_of(name), self.host_of(name)) for name in self.names]
        return [*peers, *(("metadata", name) for name in self.computes), ("manage", "controller")]

    def make_vhost(self) -> None:
        """Create the vhost with one command instead of two; each costs half a second of CPU."""
        name, everything, nobody = f'<<"{self.vhost}">>', '<<".*">>', '<<"tests">>'
        self.broker_control(
            "eval",
            f"ok = rabbit_vhost:add({name}, {nobody}), "
            f'ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, {name}, '
            f"{everything}, {everything}, {everything}, {nobody}).",
        )

    def delete_vhost(self) -> None:
        """Delete the vhost with all its queues, messages and connections."""
        self.broker_control("delete_vhost", self.vhost)

    def _add_users(self) -> None:
        self.manage("user", "init", stdin=PASSWORDS["admin"])
        hashes = {name: directory.new_password(PASSWORDS[name]) for name in sorted(PASSWORDS.keys() - {"admin"})}
        db = Database(self.conductor_conf())
        try:
            with Replica(DatabaseStore(db)).changing() as content:
                for name, password in hashes.items():
                    project = directory.add_project(content, name)
                    directory.grant(directory.add_user(content, name, password, project), project, "member")
        finally:
            db.close()

    def conductor_conf(self) -> cfg.ConfigOpts:
        """Return the conductor's options."""
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(self.config_arguments("conductor"), default_config_files=[])
        return conf

    def _fill_database(self) -> None:
        """Fill the database directly. Each nova-lite-manage command would cost a second."""
        conf = self.conductor_conf()
        migrate(conf)
        db = Database(conf)
        try:
            for flavorid, name, memory_mb in (("1", "m1.nano", self.memory_mb_of_flavor), ("9", "m1.huge", 1048576)):
                flavor = objects.Flavor(flavorid=flavorid, name=name, vcpus=1, memory_mb=memory_mb, root_gb=1)
                db.write(flavors.create, flavor)
            network = objects.Network(id=str(uuid.uuid4()), name="private", is_default=True, **self.network)
            db.write(builtin_networks.create, network)
            if self.quota is not None:
                for resource in ("instances", "cores", "ram"):
                    db.write(quotas.set_limit, "demo", resource, self.quota)
                db.write(quotas.set_limit, "demo", "fixed_ips", -1)
            content = self.image_file.read_bytes() if self.image_file else IMAGE_BYTES
            disk_format = self.image_file.suffix[1:] if self.image_file else "raw"
            image = objects.Image(id=self.image_id, name="cirros", disk_format=disk_format, size=len(content))
            db.write(images.create, image)
        finally:
            db.close()
        store = self.path / "shared" / "images"
        store.mkdir(parents=True)
        (store / self.image_id).write_bytes(content)
        master_keys.provide(str(self.path / "shared" / "volume-keys"))

    def _write_config(self, name: str) -> None:
        state = self.path / name
        state.mkdir(exist_ok=True)
        values = {
            "host": self.host_of(name),
            "signing": self.signing,
            "keys": self.path / "keys",
            "state": state,
            "vhost": self.vhost,
            "broker_port": self.broker_port,
            "shared": self.path / "shared",
            "root": ROOT,
            "port": self.port,
            "action_deadline": self.action_deadline,
            "api": STANDALONE.format(cloud=self) if self.standalone else NOAUTH.format(cloud=self),
        }
        (self.path / f"{name}.conf").write_text(CONFIG.format(**values, **self.capacity) + self.extra_config)

    def config_arguments(self, name: str) -> list[str]:
        """Return the arguments that name the configuration files. Only the conductor's has the database URL."""
        files = [self.path / f"{name}.conf"]
        if daemon_of(name) == "conductor":
            files.append(self.path / "database.conf")
        return [argument for file in files for argument in ("--config-file", str(file))]

    def manage(self, *arguments: str, stdin: str = "") -> str:
        result = self.try_manage(*arguments, stdin=stdin)
        assert result.returncode == 0, f"nova-lite-manage {' '.join(arguments)}: {result.stdout}{result.stderr}"
        return result.stdout

    def try_manage(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        if self.forked and "conductor" not in self.prefixes:
            command = ["nova_lite.cmd.manage", *self.config_arguments("conductor"), *arguments]
            return nursery.run(command, stdin, dict(os.environ), timeout=120)
        command = self.manage_command(*arguments)
        return subprocess.run(command, capture_output=True, input=stdin, text=True, timeout=120)

    def manage_command(self, *arguments: str) -> list[str]:
        return [
            *self.prefixes.get("conductor", []),
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "nova_lite.cmd.manage",
            *self.config_arguments("conductor"),
            *arguments,
        ]

    # --- life

    def start(self, name: str) -> None:
        """Start a daemon: forked, or as a program if its code differs from the imported one."""
        log = self.path / f"{name}.log"
        arguments = [*self.launcher, f"nova_lite.cmd.{daemon_of(name)}", *self.config_arguments(name)]
        extra = {} if daemon_of(name) == "conductor" else self.environment_but_conductor
        environment = {
            **os.environ,
            **memory.ENVIRONMENT,
            **self.environment,
            **extra,
            "NOVA_LITE_FAILPOINTS_DAEMON": name,
        }
        if self.forked and name not in self.prefixes and concurrency.ENVIRONMENT not in environment:
            self.processes[name] = nursery.start(arguments, log, environment)
            return
        command = [*self.prefixes.get(name, []), sys.executable, "-W", "ignore", "-m", *arguments]
        if daemon_of(name) == "conductor" and os.geteuid() == 0:  # as its unit
            command = ["nice", "-n", str(cpu_affinity.NICE), *command]
        with log.open("ab") as said:
            self.processes[name] = subprocess.Popen(command, stdout=said, stderr=said, env=environment)

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until every compute host is up and known to the API."""

        def ready() -> bool:
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}:\n{self.log(name)}"
            with contextlib.suppress(requests.RequestException):
                answer = self.request("GET", "/os-services?binary=nova-compute")
                if answer.status_code == 200:
                    up = {item["host"] for item in answer.json()["services"] if item["state"] == "up"}
                    return up >= set(self.computes) & set(self.processes)
            return False

        if self.standalone:
            wait_for("the identity API answers", self._log_in)
        wait_for("all daemons are up", ready)

    def _log_in(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            self.token = self.token_of("admin")
            return True
        return False

    @property
    def identity_url(self) -> str:
        return f"http://127.0.0.1:{self.identity_port}/v3"

    @property
    def image_url(self) -> str:
        return f"http://127.0.0.1:{self.image_port}"

    def token_of(self, user: str, project: str | None = None) -> str:
        """Return a token of the user in the project (default: the user's own)."""
        domain = {"id": "default"}
        identity = {"methods": ["password"], "password": {"user": {"name": user, "domain": domain}}}
        identity["password"]["user"]["password"] = PASSWORDS[user]  # type: ignore[call-overload,index]
        scope = {"project": {"name": project or user, "domain": domain}}
        body = {"auth": {"identity": identity, "scope": scope}}
        answer = requests.post(f"{self.identity_url}/auth/tokens", json=body, timeout=60)
        assert answer.status_code == 201, answer.text
        return answer.headers["X-Subject-Token"]

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(90)

    def stop(self, name: str) -> int:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise AssertionError(f"{name} did not stop within 90 s of SIGTERM:\n{self.log(name)}") from None

    def log(self, name: str, lines: int = 60) -> str:
        file = self.path / f"{name}.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.exists() else ""

    def destroy(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        self.delete_vhost()

    # --- as a client

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        version: str | None = None,
        timeout: float = 60,
    ) -> requests.Response:
        headers = {"X-Auth-Token": token or self.token}
        if version:
            headers["OpenStack-API-Version"] = f"compute {version}"
        return requests.request(
            method,
            f"http://127.0.0.1:{self.port}/v2.1{path}",
            json=body,
            headers=headers,
            timeout=timeout,
        )

    def create(self, name: str = "vm", count: int = 1, flavor: str = "1", **extra: Any) -> list[str]:
        """Ask for servers; returns their ids in any order."""
        server = {"name": name, "imageRef": self.image_id, "flavorRef": flavor, **extra}
        server |= {"min_count": count, "max_count": count, "return_reservation_id": True}
        answer = self.request("POST", "/servers", {"server": server})
        assert answer.status_code == 202, answer.text
        reservation = answer.json()["reservation_id"]
        servers = self.request("GET", f"/servers?reservation_id={reservation}").json()["servers"]
        assert len(servers) == count
        return [item["id"] for item in servers]

    def show(self, server_id: str) -> dict[str, Any] | None:
        answer = self.request("GET", f"/servers/{server_id}")
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        server: dict[str, Any] = answer.json()["server"]
        return server

    def servers(self) -> list[dict[str, Any]]:
        answer = self.request("GET", "/servers/detail")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["servers"]
        return found

    def wait_settled(
        self, ids: list[str], timeout: float = DEADLINE, interval: float = 0.1
    ) -> dict[str, dict[str, Any]]:
        """Wait until none of these servers has a task; return them by id."""

        def settled() -> dict[str, dict[str, Any]] | None:
            found = {item["id"]: item for item in self.servers() if item["id"] in ids}
            busy = [item for item in found.values() if item["OS-EXT-STS:task_state"] or item["status"] == "BUILD"]
            return None if busy or len(found) < len(ids) else found

        try:
            result: dict[str, dict[str, Any]] = wait_for("servers have settled", settled, timeout, interval)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.servers()}\n{self.all_logs()}") from None
        return result

    def wait_active(
        self, ids: list[str], timeout: float = DEADLINE, interval: float = 0.1
    ) -> dict[str, dict[str, Any]]:
        found = self.wait_settled(ids, timeout, interval)
        wrong = {key: (item["status"], item.get("fault")) for key, item in found.items() if item["status"] != "ACTIVE"}
        assert not wrong, f"{wrong}\n{self.all_logs()}"
        return found

    def delete_all(self, timeout: float = DEADLINE) -> None:
        for server in self.servers():
            answer = self.request("DELETE", f"/servers/{server['id']}")
            assert answer.status_code in (204, 404), answer.text
        wait_for("all servers are gone", lambda: not self.servers(), timeout)

    def action(self, server_id: str, body: dict[str, Any]) -> requests.Response:
        return self.request("POST", f"/servers/{server_id}/action", body)

    def force_down(self, host: str, forced_down: bool = True) -> requests.Response:
        """Force a host down, or clear that."""
        body = {"host": host, "binary": "nova-compute", "forced_down": forced_down}
        return self.request("PUT", "/os-services/force-down", body, version="2.11")

    def evacuate(self, server_id: str, version: str = "2.14", **options: Any) -> requests.Response:
        return self.request("POST", f"/servers/{server_id}/action", {"evacuate": options}, version=version)

    def all_logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name, 25)}" for name in self.names)

    # --- as the hypervisors and the database see it

    def domains(self) -> dict[str, str]:
        """Return every instance with a fake domain that is not fenced, and its host. Fails when one runs on two
        hosts. Of two hosts of a move the running domain counts, or else the newer one.
        """
        found: dict[str, tuple[bool, int, str]] = {}
        for host in [host for host in self.computes if host not in self.fenced]:
            for name in os.listdir(self._domains_of(host)):
                if not re.fullmatch(r"[0-9a-f-]{36}\.json", name) or (seen := self._domain(host, name)) is None:
                    continue
                here, there = (*seen, host), found.get(name[:36], (False, -1, ""))
                if here[0] and there[0] and (again := self._domain(there[2], name)) is not None and again[0]:
                    # Still; a guest that moved between the two looks does not run there any more.
                    raise AssertionError(f"{name[:36]} runs on {host} and on {there[2]}")
                found[name[:36]] = max(here, there)
        return {instance_uuid: host for instance_uuid, (_, _, host) in found.items()}

    def _domains_of(self, host: str) -> Path:
        return self.path / host / "instances" / f"fake-{host}" / "domains"

    def _domain(self, host: str, name: str) -> tuple[bool, int] | None:
        """Return whether the domain runs, and its generation; None when it is gone."""
        try:
            domain = json.loads((self._domains_of(host) / name).read_text())
        except FileNotFoundError:
            return None
        return domain["power_state"] == PowerState.RUNNING, domain["generation"]

    def holders(self, instance_uuid: str) -> set[str]:
        """Return hosts with anything of the instance: a domain, disks, interfaces."""
        return {
            host
            for host in self.computes
            for folder in ("domains", "disks", "vifs")
            if list((self.path / host / "instances" / f"fake-{host}" / folder).glob(f"{instance_uuid}*"))
        }

    def remove_domain(self, instance_uuid: str) -> None:
        """Remove a domain by hand, as an operator does."""
        (self._domains_of(self.domains()[instance_uuid]) / f"{instance_uuid}.json").unlink()

    def control_host(self, host: str, **control: Any) -> None:
        """Control a fake hypervisor (`fake_hypervisor.Control`); without values it behaves as configured."""
        path = self.path / host / "instances" / f"fake-{host}"
        path.mkdir(parents=True, exist_ok=True)
        draft = path / "control.draft"
        draft.write_text(json.dumps(control))
        draft.replace(path / "control.json")

    def audit(self) -> None:
        """Check the invariants between rows."""
        self.manage("audit")


@contextlib.contextmanager
def running(path: Path, prepare: Callable[[Cloud], None] = lambda cloud: None, **options: Any) -> Iterator[Cloud]:
    """Run a cloud with all daemons, and remove it with all it made at the end.

    ``prepare`` is called before they start.
    """
    cloud = Cloud(path, **options)
    try:
        cloud.make()
        prepare(cloud)
        cloud.start_all()
        yield cloud
    finally:
        cloud.destroy()
