"""The cloud of a run: two conductors, a scheduler, hosts on the fake driver, and an API that lives on.

The daemons are the real ones. `Template` is what all runs of a process of simulations begin with.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import msgspec
import sqlalchemy as sa
import webob
from oslo_config import cfg
from sqlalchemy.util import LRUCache

from nova_lite import conf as nova_conf
from nova_lite import objects, rpc
from nova_lite.api.http import deploy, wsgi
from nova_lite.base import exceptions, files, memory
from nova_lite.base.context import get_admin_context
from nova_lite.cmd import compute, scheduler
from nova_lite.cmd.compute import ComputeDaemon
from nova_lite.cmd.conductor import Conductor
from nova_lite.cmd.scheduler import SchedulerDaemon
from nova_lite.compute import host_boot
from nova_lite.compute.api import API
from nova_lite.compute.fencing import SUFFIX, Record
from nova_lite.conductor import manager
from nova_lite.daemon import service
from nova_lite.db.core import engine
from nova_lite.db.core.engine import Database
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors
from nova_lite.image.driver import load_backend
from nova_lite.operations.states import PowerState
from nova_lite.policies.enforcer import Policy
from nova_lite.rpc import endpoint
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt import fake_hypervisor
from tests.simulation import plan as plans
from tests.simulation import primitives
from tests.simulation.bus import Bus
from tests.simulation.disks import Disks
from tests.simulation.plan import CONDUCTORS, SCHEDULER, Ask, Fault, Plan
from tests.simulation.scheduler import Process
from tests.simulation.witness import DatabaseLock, Witness
from tests.support.migrated import migrate
from tests.support.shared_statements import share

TOP = Path(__file__).resolve().parents[2]
ATTEMPTS = 2
#: Process of the API and of its clients.
API_PROCESS = "api"
_IMAGE = "b0000000-0000-4000-8000-000000000001"
_NETWORK = "a0000000-0000-4000-8000-000000000001"
#: Virtual seconds: of a cloud without faults until all work is done, between two looks at that, and of a whole run.
_SETTLES, _LOOK, _RUN = 300.0, 1.0, 2000.0
#: Virtual seconds within which a daemon that lives has written a file.
_WRITES = 2.0
#: Virtual seconds between two looks for work that is seldom there, of which no promise depends, and that no run has.
_IDLE, _SELDOM, _NEVER = 2.0, 10.0, 30.0
#: Virtual seconds between two removals of settled fencing records, and two looks whether a build hangs no longer.
_PRUNE, _HANG = 15.0, 0.5
#: Number of times that an operator sends a request, a virtual second apart.
_OPERATES = 100
_ACTIONS: dict[str, tuple[str, Any]] = {
    "stop": ("os-stop", None),
    "start": ("os-start", None),
    "rebuild": ("rebuild", {"imageRef": _IMAGE}),
    "reboot": ("reboot", {"type": "HARD"}),
    "resize": ("resize", {"flavorRef": "2"}),
    "confirm": ("confirmResize", None),
    "revert": ("revertResize", None),
    "migrate": ("os-migrateLive", {"host": None, "block_migration": "auto"}),
}

_OPTIONS = """[DEFAULT]
compute_driver = fake
report_interval = 7
service_down_time = 20
state_path = {directory}
my_ip = 127.0.0.1
cpu_allocation_ratio = 1
allow_resize_to_same_host = true
[rpc]
self_check_interval = 0
[metrics]
enabled = false
[database]
connection = sqlite:///{directory}/db.sqlite
[api]
paste_config = {top}/etc/nova-lite/api-paste.ini
auth_strategy = noauth2
[network]
backend = local
[image]
backend = local
store_path = {directory}/images
[conductor]
single_cpu = false
max_attempts = {attempts}
action_deadline = 25
lease_seconds = 10
reconcile_interval = 2
[quota]
instances = -1
cores = -1
ram = -1
[fake]
memory_mb = 65536
disk_gb = 1000
[server_backups]
interval = 300
[oslo_concurrency]
lock_path = {directory}
"""


class Template:
    """Configurations and files, made once for all runs of a process, in a directory of its own."""

    def __init__(self, directory: Path, hosts: int) -> None:
        self.directory = directory / "cloud"
        self._files = directory / "template"
        self._files.mkdir()
        self.hosts = hosts
        file = directory / "nova-lite.conf"
        file.write_text(_OPTIONS.format(directory=self.directory, top=TOP, attempts=ATTEMPTS))
        names = [API_PROCESS, SCHEDULER, *CONDUCTORS, *plans.make(0, hosts).names]
        self.confs = {name: _load(file, name) for name in names}
        self.directory.mkdir()
        self._fill()
        shutil.copytree(self.directory, self._files, dirs_exist_ok=True)
        conf = self.confs[API_PROCESS]
        self.engines: dict[str | None, sa.Engine] = {}
        self.statements: LRUCache[object, object] = LRUCache(10_000)
        self.served: dict[type, list[str]] = {}
        self.api = API()
        self.app = deploy.load_app("osapi_compute", wsgi.ApiServices(conf, Policy(conf), self.api))
        self._warm_up()

    def reset(self) -> None:
        """Begin with the files of the template."""
        shutil.rmtree(self.directory)
        shutil.copytree(self._files, self.directory)

    def _warm_up(self) -> None:
        """Run once, so that all runs have the modules, statements and decoders that a run needs."""
        kinds = ("create", "stop", "start", "rebuild", "delete")
        asks = tuple(Ask(number * 5.0, 0, kind) for number, kind in enumerate(kinds))
        cloud = Cloud(self, Plan(0, self.hosts, asks, ()))
        cloud.run()
        assert not cloud.witness.problems, cloud.witness.problems
        cloud.close()

    def _fill(self) -> None:
        conf = self.confs[CONDUCTORS[0]]
        migrate(conf)
        database = Database(conf)
        for number, name in (("1", "m1.nano"), ("2", "m1.micro")):
            flavor = objects.Flavor(flavorid=number, name=name, vcpus=1, memory_mb=64 * int(number), root_gb=1)
            database.write(flavors.create, flavor)
        network = objects.Network(
            id=_NETWORK, name="private", cidr="10.1.0.0/24", gateway="10.1.0.1", bridge="nlbr0", start="10.1.0.10",
            end="10.1.0.200", is_default=True,
        )  # fmt: skip
        database.write(builtin_networks.create, network)
        store = self.directory / "images"
        store.mkdir()
        (store / _IMAGE).write_bytes(b"guest")
        database.write(
            images.create,
            objects.Image(id=_IMAGE, name="guest", size=5, disk_format="raw", status="active", visibility="public"),
        )
        database.close()


def _load(file: Path, host: str) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_files=[], default_config_dirs=[])
    conf.set_override("host", host)
    return conf


class Cloud:
    """A cloud that carries a plan out. ``log``: gets each step of the run."""

    def __init__(self, template: Template, plan: Plan, log: TextIO | None = None) -> None:
        template.reset()
        self.plan = plan
        self.sim = primitives.begin(plan.seed, log)
        self.bus = Bus(self.sim)
        self.witness = Witness(f"{template.directory}/db.sqlite", self._is_deaf, self.sim.note)
        self.crashes = self.creates = 0
        self.is_first = not template.engines
        self._template = template
        self._confs = template.confs
        self._directory = template.directory
        self._lock = DatabaseLock(self.witness.committed)
        self._processes: dict[str, Process] = {}
        self._daemons: dict[str, Any] = {}
        self._api = Process(API_PROCESS)
        self._servers: dict[int, str | None] = {}
        self._asking = 0
        self._left_over: list[str] = []
        self.sim.on_death = self._died
        self._boots = dict.fromkeys(plan.names, 1)
        self._disks = Disks(self.sim, template.directory, plan.names)
        primitives.WORLD.on_sync = self._disks.synced
        for name in plan.names:
            self._confs[name].set_override("spawn_delay", plan.build_seconds, "fake")
            self._confs[name].set_override("vcpus", plan.room, "fake")
            self._confs[name].set_override("resume_guests_state_on_host_boot", plan.resumes)

    def run(self) -> None:
        """Carry the plan out, and judge what has become of it. Raises `Stuck`."""
        with self.witness.recording(), _changed(self, self._template, self._lock):
            for name in (*CONDUCTORS, *self.plan.names, SCHEDULER):
                self._start(name)
            self.sim.spawn(self._api, self._users, "users")
            self.sim.run(_RUN)
        if not self.witness.problems:
            self.witness.problems += self._left_over
            power_cuts = any(number > 1 for number in self._boots.values())
            self.witness.judge(self._found(), self.creates, ATTEMPTS, min(self.crashes, 2), power_cuts)

    def close(self) -> None:
        """Close all connections to the database, as a child of this process may not have them."""
        for process in self._processes.values():
            self.sim.kill(process)
        self.witness.database.close()

    # --- daemons

    def _start(self, name: str) -> None:
        process = self._processes[name] = Process(name)
        self.sim.spawn(process, lambda: self._live(name), "main")

    def _live(self, name: str) -> None:
        daemon = self._daemons[name] = self._make(name)
        daemon.start()
        daemon.supervise()

    def _make(self, name: str) -> service.Daemon:
        conf = self._confs[name]
        if name == SCHEDULER:
            return SchedulerDaemon(conf, self.bus.connect)
        return (Conductor if name in CONDUCTORS else ComputeDaemon)(conf, self.bus.connect)

    def _domains(self, host: str) -> list[fake_hypervisor.Domain]:
        paths = sorted(self._directory.glob(f"instances/fake-{host}/domains/*{SUFFIX}"))
        return [msgspec.json.decode(path.read_bytes(), type=fake_hypervisor.Domain) for path in paths]

    def _unfinished(self) -> set[Path]:
        """Return files that are half written, but not to a slow disk by daemons that live."""
        places = (
            f"fences/*/{files.TEMPORARY}*",
            f"instances/*/{files.TEMPORARY}*",
            f"instances/*/*/{files.TEMPORARY}*",
        )
        found = {path for place in places for path in self._directory.glob(place)}
        return {path for path in found if primitives.WORLD.writing.get(str(path)) not in self._processes.values()}

    def _found(self) -> dict[str, list[tuple[str, PowerState]]]:
        """Return hosts and power states of the domains of each server."""
        found: dict[str, list[tuple[str, PowerState]]] = {}
        for host in self.plan.names:
            for domain in self._domains(host):
                found.setdefault(domain.uuid, []).append((host, domain.power_state))
        return found

    def _records(self, host: str) -> list[Record]:
        """Return the fencing records of a host that can be read. The daemon refuses to start with another one."""
        records = []
        for path in sorted(self._directory.glob(f"fences/{host}/*{SUFFIX}")):
            with contextlib.suppress(msgspec.DecodeError):
                records.append(msgspec.json.decode(path.read_bytes(), type=Record))
        return records

    def _died(self, process: Process) -> None:
        self.bus.lost_with(process)
        host = process.name
        if host in self.plan.names:
            self.witness.died(host, self._records(host), self._domains(host))

    def boot_id(self) -> str:
        """Return the id of the boot of the running host."""
        owner = primitives.process()
        return "" if owner is None else f"{owner.name} {self._boots.get(owner.name, 0)}"

    # --- users

    def _users(self) -> None:
        """Carry out the requests and the faults, let the cloud settle, and delete all servers."""
        conf = self._confs[API_PROCESS]
        transport = self.bus.connect(conf)
        self._conductor = conductor = rpc.proxy(ConductorRPC, transport)
        self._template.api.connect(conductor, rpc.proxy(ComputeRPC, transport), load_backend(conf, conductor))
        self._wait_until_up()
        began, task = self.sim.now, self.sim.current
        assert task is not None
        self.witness.is_watched = True
        for server in sorted({ask.server for ask in self.plan.asks}):
            asks = [ask for ask in self.plan.asks if ask.server == server]
            self._asking += 1
            self.sim.spawn(task.process, lambda asks=asks: self._ask_all(asks, began), f"user{server}")  # type: ignore[misc]
        for fault in self.plan.faults:
            self.sim.after(fault.at, lambda fault=fault: self._break(fault))  # type: ignore[misc]
        self.sim.sleep(max((fault.at + fault.seconds for fault in self.plan.faults), default=0.0))
        while self._asking:
            self.sim.sleep(1.0)
        self._mend()
        if self._settle() and self._agree():
            for server in self.witness.servers():
                self.request("DELETE", f"/servers/{server}")
            if self._settle():
                self._use_all_hosts()
        half_written = self._unfinished()
        self.sim.sleep(_WRITES)
        found = sorted(half_written & self._unfinished())
        self._left_over = [f"a file in {path.parent.name} is half written" for path in found]
        self.sim.finish()

    def _agree(self) -> bool:
        """Wait until guests run where their rows say so. Otherwise add what differs to the problems."""
        deadline = self.sim.now + _SETTLES
        while differences := self.witness.differences(self._found(), self.plan.resumes):
            if self.sim.now > deadline:
                self.witness.problems += differences
                return False
            self.sim.sleep(_LOOK)
        return True

    def _use_all_hosts(self) -> None:
        """Create a server for each host that has room for one only. None may be refused once all hosts are up."""
        self._wait_until_up()
        number = self.plan.hosts if self.plan.room == 1 else 1
        servers = [self._create() for _ in range(number)]
        if self._settle():
            for server in servers:
                if server is None or self.witness.state_of(server) != "active":
                    self.witness.problems.append(f"a create is refused, although all hosts are empty: {server}")

    def _wait_until_up(self) -> None:
        while True:
            answer = self.request("GET", "/os-services?binary=nova-compute")
            if answer.status_code == 200:
                up = [item for item in answer.json["services"] if item["state"] == "up"]
                if len(up) == self.plan.hosts:
                    return
            self.sim.sleep(0.5)

    def _ask_all(self, asks: list[Ask], began: float) -> None:
        for ask in asks:
            self.sim.sleep(began + ask.at - self.sim.now)
            self._ask(ask)
        self._asking -= 1

    def _ask(self, ask: Ask) -> None:
        server = self._servers.get(ask.server)
        if ask.kind == "create":
            self._servers[ask.server] = self._create()
        elif server is None:
            return
        elif ask.kind == "delete":
            self.request("DELETE", f"/servers/{server}")
        elif ask.kind == "evacuate":
            for each in filter(None, list(self._servers.values())):
                self.request("POST", f"/servers/{each}/action", {"evacuate": {}})
        elif ask.kind != "rebuild" or self._gets_active(server):
            if ask.kind == "stop":
                self.witness.stopped.add(server)
            name, body = _ACTIONS[ask.kind]
            self.request("POST", f"/servers/{server}/action", {name: body})

    def _create(self) -> str | None:
        """Create a server. A request that fails for want of a service is sent once more with its key."""
        body = {"name": "one", "imageRef": _IMAGE, "flavorRef": "1", "networks": "auto"}
        self.creates += 1
        for _ in range(2):
            answer = self.request("POST", "/servers", {"server": body}, f"create {self.creates}")
            if answer.status_code == 202:
                return str(answer.json["server"]["id"])
        return None

    def _gets_active(self, server: str) -> bool:
        """Wait a moment until a server is active, without a task. Return whether it is."""
        for _ in range(5):
            if self._is_active(server):
                return True
            self.sim.sleep(1.0)
        return False

    def _is_active(self, server: str) -> bool:
        answer = self.request("GET", f"/servers/{server}")
        shown = answer.json.get("server", {}) if answer.status_code == 200 else {}
        return shown.get("status") == "ACTIVE" and not shown["OS-EXT-STS:task_state"]

    def request(self, method: str, path: str, body: Any = None, key: str = "") -> webob.Response:
        """Return the API's response to an admin's request below ``/v2.1``. ``key``: its Idempotency-Key."""
        request = webob.Request.blank("/v2.1" + path, method=method, base_url="http://cloud:8774")
        request.headers["X-Auth-Token"] = "admin:demo"
        request.headers["OpenStack-API-Version"] = "compute 2.96"
        if key:
            request.headers["Idempotency-Key"] = key
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        answer = request.get_response(self._template.app)
        self.sim.note(f"{method} {path}: {answer.status_code}")
        return answer

    def _settle(self) -> bool:
        """Wait until nothing is open. Otherwise add what is to the problems."""
        deadline = self.sim.now + _SETTLES
        while open_work := self.witness.open_work():
            if self.sim.now > deadline:
                self.witness.problems += [f"{text} for {_SETTLES:g} s without faults" for text in open_work]
                return False
            self.sim.sleep(_LOOK)
        while any(process.is_dead or not self.bus.serves(process) for process in self._processes.values()):
            self.sim.sleep(_LOOK)
        self.sim.sleep(_LOOK)
        return True

    # --- faults

    def _break(self, fault: Fault) -> None:
        self.sim.note(f"fault {fault.kind} {fault.where}")
        getattr(self, f"_{fault.kind}")(fault)

    def _for_a_while(self, fault: Fault, owner: Any, name: str) -> None:
        setattr(owner, name, fault.amount)
        self.sim.after(fault.seconds, lambda: setattr(owner, name, 0.0))

    def _harm_messages(self, fault: Fault) -> None:
        key = fault.kind, fault.where
        self.bus.shares[key] = fault.amount
        self.sim.after(fault.seconds, lambda: self.bus.shares.pop(key, None) and None)

    _lose = _double = _slow = _harm_messages

    def _conflict(self, fault: Fault) -> None:
        self._for_a_while(fault, primitives.WORLD, "conflicts")

    def _set_clock(self, fault: Fault) -> None:
        self._for_a_while(fault, self._processes[fault.where], "wall")

    def _slow_disk(self, fault: Fault) -> None:
        self._for_a_while(fault, self._processes[fault.where], "slow_disk")

    def _cut(self, fault: Fault) -> None:
        self.bus.cut.add(fault.where)
        self.sim.after(fault.seconds, self.bus.join)

    def _kill(self, fault: Fault) -> None:
        """Let a process die some points later, and start it again."""
        process = self._processes[fault.where]
        if process.is_dead or process.fuse:
            return
        process.at_death.append(lambda: self._restart_later(process, fault.seconds))
        if fault.kind == "cut_power":
            process.at_death.append(lambda: self._lose_power(fault.where))
        process.fuse = int(fault.amount)

    _cut_power = _kill

    def _vanish(self, fault: Fault) -> None:
        """Remove the first domain that there is, as an operator of its host could by mistake."""
        for domain in sorted(self._directory.glob(f"instances/*/domains/*{SUFFIX}"))[:1]:
            self.sim.note(f"{domain.stem} vanishes")
            domain.unlink()
            self.witness.vanished.add(domain.stem)

    def _switch_off(self, fault: Fault, then: Callable[[str], None] = lambda host: None) -> None:
        """Cut the power of the last host that has a domain. ``then``: is called with it."""
        domain = max(self._directory.glob(f"instances/*/domains/*{SUFFIX}"), default=None)
        if domain is None:
            return
        host = domain.parent.parent.name.removeprefix("fake-")
        process = self._processes[host]
        if process.is_dead or process.fuse:
            return
        process.at_death.append(lambda: self._lose_power(host))
        process.at_death.append(lambda: self._restart_later(process, fault.seconds))
        process.at_death.append(lambda: then(host))
        process.fuse = 1

    def _take_away(self, fault: Fault) -> None:
        """Cut the power of a host. An operator forces it down, until ``amount`` seconds after its power is back."""
        end = fault.seconds + fault.amount
        changes = (1.0, {"forced_down": True}), (end, {"forced_down": False})
        self._switch_off(fault, lambda host: self._operate(host, *changes))

    def _replace(self, fault: Fault) -> None:
        """Cut the power of a host. An operator forces it down, and deletes its service before it is back."""
        back = fault.seconds + fault.amount
        self._switch_off(fault, lambda host: self._operate(host, (1.0, {"forced_down": True}), (back, None)))

    def _retire(self, fault: Fault) -> None:
        """Cut the power of a host. An operator retires it with its servers, but the machine comes back."""

        def retire(host: str) -> None:
            self._operate(host, (1.0, {"forced_down": True}))
            self._later(fault.seconds + fault.amount, lambda: self._retire_host(host))

        self._switch_off(fault, retire)

    def _forget(self, fault: Fault) -> None:
        """Delete the service of a host, unless it has servers."""
        self._operate(fault.where, (0.0, None))

    def _operate(self, host: str, *changes: tuple[float, dict[str, bool] | None]) -> None:
        """Change a host's service after so many seconds. Without a body delete it."""
        for seconds, body in changes:
            self._later(seconds, functools.partial(self._change_service, host, body))

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self.sim.after(seconds, lambda: self.sim.spawn(self._api, work, "operator") and None)

    def _change_service(self, host: str, body: dict[str, bool] | None) -> None:
        """Send an operator's request until a conductor has accepted it. A host with servers serves again instead."""
        for _ in range(_OPERATES):
            found = self.request("GET", f"/os-services?binary=nova-compute&host={host}")
            for item in found.json["services"] if found.status_code == 200 else []:
                path = f"/os-services/{item['id']}"
                status = self.request("DELETE" if body is None else "PUT", path, body).status_code
                if status in (200, 204):
                    return
                if status == 409:
                    body = {"forced_down": False}
            self.sim.sleep(_LOOK)

    def _retire_host(self, host: str) -> None:
        """Retire a host once it has been silent for long, and delete its service, or else let it serve again."""
        done = False
        for _ in range(_OPERATES):
            self.witness.vanished |= self.witness.servers_of(host)
            with contextlib.suppress(exceptions.NovaLiteException):
                done = self._conductor.host_retire(get_admin_context(), host, True).done
            if done:
                break
            self.sim.sleep(_LOOK)
        self.sim.note(f"{host} is {'' if done else 'not '}retired")
        self._change_service(host, None if done else {"forced_down": False})

    def _shut_down(self, fault: Fault) -> None:
        """Let all guests shut themselves down. Their hosts hear it from the hypervisor."""
        for path in sorted(self._directory.glob(f"instances/*/domains/*{SUFFIX}")):
            domain = msgspec.json.decode(path.read_bytes(), type=fake_hypervisor.Domain)
            self.sim.note(f"{domain.uuid} shuts down")
            domain.power_state = PowerState.SHUTDOWN
            path.write_bytes(msgspec.json.encode(domain))
            self.witness.shut_down(domain.uuid)
            manager = self._daemons[path.parent.parent.name.removeprefix("fake-")]._manager
            if manager is not None:
                manager.reconciler.power_event(domain.uuid)

    def _is_deaf(self) -> bool:
        """Say whether no conductor hears the hosts, which have all lived from the beginning."""
        return self.bus.cut == {*CONDUCTORS} and not self.crashes

    def _lose_power(self, host: str) -> None:
        """Stop the guests of a host, and lose what its disk has not kept."""
        self.sim.note(f"{host} loses its power")
        self._boots[host] += 1
        self._disks.power_cut(host)
        for domain in self._domains(host):
            domain.power_state = PowerState.SHUTDOWN
            path = self._directory / f"instances/fake-{host}/domains/{domain.uuid}{SUFFIX}"
            path.write_bytes(msgspec.json.encode(domain))

    def _restart_later(self, process: Process, seconds: float) -> None:
        self.crashes += process.name in self.plan.names
        self.sim.after(seconds, lambda: self._start(process.name))

    def _break_build(self, fault: Fault) -> None:
        """Let the next build of a host, or of each, fail, take long or hang."""
        control = plans.build_control(fault.amount)
        for host in [fault.where] if fault.where else self.plan.names:
            fake_hypervisor.write_control(self._confs[host], host, fail_count=1, **control)
            self.sim.after(fault.seconds, lambda host=host: self._mend_build(host))  # type: ignore[misc]

    def _mend_build(self, host: str) -> None:
        fake_hypervisor.write_control(self._confs[host], host)

    def _mend(self) -> None:
        """End all faults. A process that has not died by now lives on."""
        self.bus.mend()
        primitives.WORLD.conflicts = 0.0
        for process in self._processes.values():
            process.fuse, process.slow_disk = 0, 0.0


@contextlib.contextmanager
def _changed(cloud: Cloud, template: Template, lock: DatabaseLock) -> Iterator[None]:
    """Change what costs much, and what blocks, in all daemons of a run.

    All conductors have one lock for SQLite's only writer, so that none waits for it in SQLite. A conductor has the
    engine of its forerunner with new connections, and all share compiled statements. Idle daemons look for work less
    often. Nothing collects garbage. What a daemon serves is checked and looked up once for all runs. Options keep their
    values during a run.
    """
    make_database, make_engine, functions_of = Database.__init__, engine.create_engine, endpoint._functions
    group = cfg.ConfigOpts.GroupAttr
    option_of = group.__getattr__

    def kept_option(options: Any, name: str) -> Any:
        value = options.__dict__[name] = option_of(options, name)
        return value

    def make_sharing(database: Database, *args: Any, **kwargs: Any) -> None:
        make_database(database, *args, **kwargs)
        database._writer = lock

    def kept_engine(*args: Any, **kwargs: Any) -> Any:
        owner = primitives.process()
        name = None if owner is None else owner.name
        if name not in template.engines:
            template.engines[name] = make_engine(*args, **kwargs)
            share(template.engines[name], template.statements)
        template.engines[name].dispose(close=False)
        return template.engines[name]

    def served(target: Any) -> list[tuple[str, Any]]:
        if isinstance(target, Mapping):
            return list(target.items())
        names = template.served.get(type(target))
        if names is None:
            names = template.served[type(target)] = [name for name, _ in functions_of(target)]
        return [(name, getattr(target, name)) for name in names]

    with (
        mock.patch.object(host_boot, "current_boot_id", cloud.boot_id),
        mock.patch.object(group, "__getattr__", kept_option),
        mock.patch.object(endpoint, "_functions", served),
        mock.patch.object(endpoint, "_check", endpoint._check if cloud.is_first else lambda *args: None),
        mock.patch.object(memory, "trim_heap", lambda: None),
        mock.patch.object(fake_hypervisor, "HANG_POLL", _HANG),
        mock.patch.object(scheduler, "collect_fully", lambda: None),
        mock.patch.object(Database, "__init__", make_sharing),
        mock.patch.object(engine, "create_engine", kept_engine),
        mock.patch.multiple(manager, FENCING_INTERVAL=_NEVER, HOST_HEALTH_INTERVAL=_NEVER),
        mock.patch.object(manager, "FILTER_PUBLISH_INTERVAL", _IDLE),
        mock.patch.multiple(compute, RECONCILE_TICK=_IDLE, FILTERS_TICK=_IDLE, WATCH_TICK=_SELDOM, USAGE_TICK=_SELDOM),
        mock.patch.multiple(compute, PRUNE_INTERVAL=_PRUNE, LOAD_TICK=_NEVER, SELF_FENCING_TICK=_NEVER),
    ):
        yield
