"""A cloud whose daemons are watched, restarted, and made to fail; and the user, who repeats what fails."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import requests
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import failpoints
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.operations.states import PowerState
from tests.faults import guards, judges, services, target
from tests.faults.outages import (
    BROKER,
    BROKER_PORT,
    DATABASE,
    TARGET,
    BrokerOutage,
    DatabaseOutage,
    Outage,
    Strike,
    TargetOutage,
    release,
)
from tests.faults.points import LASTING, Fault
from tests.faults.private import PrivateDatabase
from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.model import daemons
from tests.model.daemons import DaemonTraces, Judgement
from tests.support.waiting import wait_for, wait_for_none

SETTLE_SECONDS = 180.0

#: The watch looks at all rows once in so many turns, which are 100 ms.
AUDIT_TURNS = 10

#: A slow destroy, so that the observer can see a guest that exists twice.
CONFIG = "[fake]\ndestroy_delay = 0.3\n"

#: A call that has not come back may take effect until the timeout is over.
NETWORK_SERVICE = "network_delay = 0.3\n[network]\nbackend = fake\ncall_timeout = 6\n"


@dataclasses.dataclass(frozen=True)
class Site:
    """Requirements of a case on its cloud.

    ``own_database``: a private MariaDB instead of SQLite, which may be killed. ``more``: further daemons.
    ``deadline``: seconds of an action. ``places``: vCPUs of each host, if they are scarce. ``network_service``: a
    slow external network service. ``reclaim``: seconds for which a deleted server is kept. ``same_host``: a resize
    may stay on its host. ``dedicated_cpus``: CPUs of each host for one vCPU each; all others are shared.
    ``services``: a Neutron and a Cinder that provide networks and volumes. ``down_time``: seconds after which a
    silent host counts as down. ``config``: more of it, in which ``{path}`` is the directory of the cloud. ``target``: a
    small file system for backups of servers.
    """

    own_database: bool = False
    more: tuple[str, ...] = ()
    deadline: int = 120
    computes: int = 2
    places: int | None = None
    network_service: bool = False
    reclaim: int = 0
    same_host: bool = False
    dedicated_cpus: str = ""
    services: tuple[str, ...] = ()
    down_time: int = 6
    config: str = ""
    target: bool = False

    def options(self) -> dict[str, Any]:
        full = "cpu_allocation_ratio = 1.0\n" if self.places else ""
        full = f"[DEFAULT]\nreclaim_instance_interval = {self.reclaim}\n{full}"
        full += f"service_down_time = {self.down_time}\n"
        full += f"allow_resize_to_same_host = {self.same_host}\n"
        if self.dedicated_cpus:
            rest = f"0-63,^{self.dedicated_cpus}"
            full += f"[compute]\ncpu_dedicated_set = {self.dedicated_cpus}\ncpu_shared_set = {rest}\n"
        return {
            "computes": self.computes,
            "vcpus": self.places or 64,
            "more": self.more,
            "action_deadline": self.deadline,
            "extra_config": full + CONFIG + (NETWORK_SERVICE if self.network_service else "") + self.config,
        }


class Arena:
    def __init__(
        self,
        running: cloud.Cloud,
        control: Path,
        outages: dict[str, Outage],
        site: Site | None = None,
        with_services: services.Services | None = None,
        traces: Path | None = None,
    ) -> None:
        """Watch a cloud. ``traces``: the directory in which its daemons record the traces of their servers."""
        self.cloud = running
        self.control = control
        self.outages = outages
        self.site = site
        self.services = services.Services() if with_services is None else with_services
        self._strikes: list[tuple[Strike, futures.Future[None]]] = []
        self._rules: list[dict[str, Any]] = []
        self._count = 0
        #: Daemons that no test restarts.
        self.away: set[str] = set()
        #: Two threads must not start the same daemon at once.
        self._starting = threading.Lock()
        #: Files that report the threads which a scenario holds.
        self.held: dict[str, Path] = {}
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(running.config_arguments("conductor"), default_config_files=[])
        self.conf = conf
        self.db = Database(conf)
        #: The traces of the newest case.
        self.judgement = Judgement()
        self.traces = None if traces is None else DaemonTraces(traces, self.db)
        self._pool = futures.ThreadPoolExecutor(thread_name_prefix="outage")
        self._stop = threading.Event()
        self.violated = ""
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def close(self) -> None:
        self._stop.set()
        self._watcher.join(30)
        self._pool.shutdown()
        self.db.close()

    def _watch(self) -> None:
        """Restart dead daemons as systemd would, and observe all hypervisors and rows."""
        turn = 0
        while not self._stop.wait(0.1):
            with self._starting:
                for name, process in list(self.cloud.processes.items()):
                    if process.poll() is not None and name not in self.away:
                        self.cloud.start(name)
            turn += 1
            try:
                self.cloud.domains()
                self.db.read(judges.at_any_time)
                judges.one_holder(self.cloud.path)
                if turn % AUDIT_TURNS == 0:
                    self.db.read(judges.all_rows)
            except Exception as error:
                if not (isinstance(error, sa.exc.DBAPIError) and self._strikes):
                    self.violated = self.violated or f"{type(error).__name__}: {error}"

    # --- faults

    def arm(self, faults: tuple[Fault, ...]) -> list[Path]:
        """Arm further faults and return the files that appear once each has fired."""
        rules = []
        for fault in faults:
            self._count += 1
            rules.append(fault.rule(str(self._count)))
        self._rules += rules
        draft = self.control.with_suffix(".draft")
        draft.write_text(json.dumps(self._rules))
        draft.replace(self.control)
        found = [Path(f"{self.control}.{rule['id']}.fired") for rule in rules]
        for fault, fired in zip(faults, found, strict=True):
            if fault.effect in self.outages:
                strike = Strike(self.outages[fault.effect], fired)
                self._strikes.append((strike, self._pool.submit(strike.run)))
        return found

    def end_faults(self, faults: tuple[Fault, ...], fired: list[Path]) -> None:
        """Wait until what is away is back, and what lasts is over; what did not happen will not happen any more."""
        self._rules = []
        self.arm(())
        for strike, done in self._strikes:
            strike.called_off.set()
            done.result(SETTLE_SECONDS)
            release(strike.fired)
        self._strikes = []
        for fault, file in zip(faults, fired, strict=True):
            self.outlast(fault.effect, file)

    def outlast(self, effect: str, fired: Path) -> None:
        """Wait until the effect that began then is over."""
        if fired.exists():
            time.sleep(max(0.0, fired.stat().st_mtime + LASTING.get(effect, 0.0) - time.time()))

    @contextlib.contextmanager
    def noting(self) -> Iterator[Callable[[], set[tuple[str, str]]]]:
        """Record passed points. Yields a function that returns the (daemon, point) pairs so far."""
        notes = Path(f"{self.control}.passed")

        def passed() -> set[tuple[str, str]]:
            lines = [line.partition(" ") for line in notes.read_text().splitlines()]
            return {(daemon, point) for daemon, _, point in lines}

        notes.touch()
        try:
            yield passed
        finally:
            notes.unlink()

    def leave_dead(self, name: str) -> None:
        """Kill a daemon, and have no test start it again."""
        self.away.add(name)
        self.cloud.kill(name)

    def dies_at(self, point: str) -> Path:
        """Kill the next host that passes this point, and do not restart it."""
        self.away.update(self.cloud.computes)
        (fired,) = self.arm((Fault("compute-*", point, failpoints.KILL),))
        return fired

    def dead(self) -> str:
        """Return the host that was killed and not restarted. A host that dies later is not restarted either."""

        def found() -> list[str]:
            hosts = self.away.intersection(self.cloud.computes)
            return [name for name in hosts if self.cloud.processes[name].poll() is not None]

        host: str = wait_for("a host is dead", found)[0]
        self.away.intersection_update({host})
        return host

    def bring_back(self, *names: str) -> None:
        """Start these again, and from now on whatever dies."""
        with self._starting:
            for name in names:
                self.cloud.start(name)
            self.away.clear()

    # --- requests that may fail because of the fault, and are then repeated as a client would

    def send(self, method: str, path: str, body: Any = None, version: str | None = None) -> requests.Response | None:
        with contextlib.suppress(requests.RequestException):
            return self.cloud.request(method, path, body, version=version, timeout=30)
        return None

    def insist(self, method: str, path: str, body: Any, done: tuple[int, ...], version: str | None = None) -> None:
        """Repeat a request until it is accepted, or refused because an unanswered try was accepted (one of
        ``done``).
        """

        def answered() -> bool:
            answer = self.send(method, path, body, version)
            return answer is not None and answer.status_code in done

        wait_for(f"{method} {path} is accepted", answered, SETTLE_SECONDS, 0.5)

    def insist_until(self, ask: Callable[[], Any], done: Callable[[], bool]) -> None:
        """Ask until it is seen to be done: for what is not the same when it is done twice."""

        def asked() -> bool:
            if not done():
                ask()
            return done()

        wait_for("what was asked for is seen", asked, SETTLE_SECONDS, 0.5)

    def servers(self) -> list[dict[str, Any]]:
        def listed() -> list[list[dict[str, Any]]]:
            answer = self.send("GET", "/servers/detail")
            return [answer.json()["servers"]] if answer is not None and answer.status_code == 200 else []

        found: list[dict[str, Any]] = wait_for("servers are listed", listed, SETTLE_SECONDS, 0.3)[0]
        return found

    def create(self, count: int = 1, flavor: str = "1", **more: Any) -> None:
        body: dict[str, Any] = {"name": "vm", "imageRef": self.cloud.image_id, "flavorRef": flavor, **more}
        body |= {"min_count": count, "max_count": count}
        answer = self.send("POST", "/servers", {"server": body})
        if answer is None or answer.status_code == 503:
            # The user does not know; what is there counts, and a second try has to work.
            if not self.servers():
                self.insist("POST", "/servers", {"server": body}, (202,))
        else:
            assert answer.status_code == 202, answer.text

    def force_down(self, host: str, forced_down: bool) -> None:
        def done() -> bool:
            with contextlib.suppress(requests.RequestException):
                return self.cloud.force_down(host, forced_down).status_code == 200
            return False

        wait_for(f"{host} is forced down: {forced_down}", done, SETTLE_SECONDS, 0.5)

    def retire(self, host: str) -> None:
        """Retire the host as an operator, repeated until the host counts as silent and the tool succeeds."""

        def done() -> bool:
            return self.cloud.try_manage("host", "retire", host).returncode == 0

        wait_for(f"{host} is retired", done, SETTLE_SECONDS, 0.5)
        answer = self.send("GET", f"/os-services?host={host}", version="2.53")
        for service in answer.json()["services"] if answer is not None else []:
            self.insist("DELETE", f"/os-services/{service['id']}", None, (204, 404), "2.53")

    def enable(self, host: str, enabled: bool) -> None:
        body = {"host": host, "binary": "nova-compute"}
        self.insist("PUT", f"/os-services/{'enable' if enabled else 'disable'}", body, (200,))

    def control_hosts(self, **control: Any) -> None:
        """Tell all fake hypervisors how to behave; nothing: as configured."""
        for host in self.cloud.computes:
            self.cloud.control_host(host, **control)

    def settle(self, status: str, count: int | None = None) -> None:
        def settled() -> bool:
            found = self.servers()
            states = {server["status"] for server in found}
            idle = not any(server["OS-EXT-STS:task_state"] for server in found)
            return idle and states <= {status} and (count is None or len(found) == count)

        try:
            wait_for(f"all servers are {status}", settled, SETTLE_SECONDS, 0.2)
        except AssertionError as error:
            seen = [(s["status"], s["OS-EXT-STS:task_state"], s.get("fault")) for s in self.servers()]
            raise AssertionError(f"{error}: {seen}") from None

    def gone(self) -> None:
        wait_for_none("all servers are gone", self.servers, SETTLE_SECONDS, 0.2)

    def soft_deleted(self) -> str:
        """Return the server that is soft-deleted, or reclaimed by now. Its owner does not see it in lists."""
        instance = models.Instance
        query = sa.select(instance.uuid).order_by(instance.id.desc()).limit(1)
        found: str = self.db.read(lambda uow: uow.session.scalars(query).one())
        return found

    def vanished(self) -> None:
        """Wait until nothing is open and no hypervisor has anything."""
        wait_for_none("all guests are gone", self.guests, SETTLE_SECONDS, 0.2)
        self.nothing_open()

    def is_state(self, host: str, state: str) -> bool:
        answer = self.send("GET", f"/os-services?host={host}")
        return answer is not None and answer.ok and [s["state"] for s in answer.json()["services"]] == [state]

    def is_back(self, host: str) -> None:
        """Wait until the host reports and has no domain."""
        domains = self._fake(host, "domains")
        wait_for(f"{host} is back", lambda: not list(domains.glob("*")) and self.is_state(host, "up"), SETTLE_SECONDS)

    def nothing_open(self) -> None:
        """Wait until no action is open, read from the database, which may be away meanwhile."""

        def open_actions() -> list[str]:
            try:
                return self.db.read(judges.open_actions)
            except sa.exc.DBAPIError as error:
                return [str(error)]

        wait_for_none("no action is open", open_actions, SETTLE_SECONDS)

    def one(self) -> str:
        (server,) = self.servers()
        server_id: str = server["id"]
        return server_id

    # --- judgement

    def _fake(self, host: str, *names: str) -> Path:
        return Path(self.cloud.path, host, "instances", f"fake-{host}", *names)

    def guests(self) -> dict[str, tuple[str, int]]:
        """Return the guests of all hypervisors: server id to host and power state."""
        found = {}
        for server_id, host in self.cloud.domains().items():
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                file = self._fake(host, "domains", f"{server_id}.json")
                found[server_id] = (host, json.loads(file.read_text())["power_state"])
        return found

    def interfaces(self, server_id: str) -> tuple[set[str], set[str]]:
        """Return ids of ports: of the guest, and of the interfaces that its host has plugged."""
        host, _ = self.guests()[server_id]
        guest = json.loads(self._fake(host, "domains", f"{server_id}.json").read_text())["interfaces"]
        plugged = json.loads(self._fake(host, "vifs", f"{server_id}.json").read_text())
        return set(guest), {vif["id"] for vif in plugged}

    def guest_volumes(self, server_id: str) -> list[str]:
        host, _ = self.guests()[server_id]
        return list(json.loads(self._fake(host, "domains", f"{server_id}.json").read_text())["volumes"])

    def own_parts(self) -> dict[str, tuple[str, list[int], list[str]]]:
        """Return, by server, its host, its dedicated CPUs and its devices. Check that guests and rows agree."""
        found = {}
        for server_id, (host, _) in self.guests().items():
            domain = json.loads(self._fake(host, "domains", f"{server_id}.json").read_text())
            guest = (host, domain["host_cpus"], domain["pci"])
            row = self.db.read(judges.own_parts, server_id)
            assert guest == row, f"guest {server_id} has {guest}, the rows say {row}"
            found[server_id] = row
        return found

    def size(self, server_id: str) -> tuple[int, int]:
        """Return the vCPUs and the MB of memory of the guest."""
        host, _ = self.guests()[server_id]
        domain = json.loads(self._fake(host, "domains", f"{server_id}.json").read_text())
        return domain["vcpus"], domain["memory_mb"]

    def boots(self, server_id: str) -> int:
        """Return a number that grows whenever the guest boots."""
        return self.console(server_id).count("guest is booting")

    def console(self, server_id: str) -> str:
        host, _ = self.guests()[server_id]
        return self._fake(host, "disks", server_id, "console.log").read_text()

    def lose_domain(self, server: dict[str, Any]) -> None:
        """Remove the domain without its host's knowledge. Its disks stay."""
        self._cut_trace(server)
        self._fake(server["OS-EXT-SRV-ATTR:host"], "domains", f"{server['id']}.json").unlink()

    def crash(self, server: dict[str, Any]) -> None:
        """End the guest's process without its host's knowledge."""
        self._cut_trace(server)
        path = self._fake(server["OS-EXT-SRV-ATTR:host"], "domains", f"{server['id']}.json")
        draft = path.parent.with_name("crash.draft")
        draft.write_text(json.dumps(json.loads(path.read_text()) | {"power_state": PowerState.CRASHED}))
        draft.replace(path)

    def _cut_trace(self, server: dict[str, Any]) -> None:
        """End the trace of a server here: no daemon does what follows."""
        if self.traces is not None:
            self.traces.cut(server["id"])

    def judge_traces(self) -> None:
        """Judge the traces of servers that are gone, and check that each is a path of the model."""
        if self.traces is not None:
            self.judgement = self.traces.judge()
            assert not self.judgement.refused, str(self.judgement)

    def generation(self, server_id: str) -> int:
        """Return the generation of the server's domain."""
        host, _ = self.guests()[server_id]
        generation: int = json.loads(self._fake(host, "domains", f"{server_id}.json").read_text())["generation"]
        return generation

    def check_settled(self) -> None:
        """Wait until every accepted request has ended, and check that hypervisors, rows, claims and counters agree."""

        self.nothing_open()
        judges.power_states(self.servers(), self.guests())
        self.check_hypervisors()
        judges.power_states(self.servers(), self.guests())
        self.db.read(judges.claims)
        if self.services.neutron is None:
            self.db.read(judges.addresses)
        self.services.check(self)
        self.db.read(judges.all_rows)
        judges.traces(self.db)

    def at_network_service(self) -> set[str]:
        """Return the servers that the network service holds interfaces for."""
        return {path.name for path in Path(self.cloud.path, "conductor", "network-service").glob("*")}

    def check_hypervisors(self) -> None:
        servers = self.servers()
        expected = {s["id"]: s["OS-EXT-SRV-ATTR:host"] for s in servers if s["OS-EXT-SRV-ATTR:host"] is not None}

        def exact() -> bool:
            return {server_id: host for server_id, (host, _) in self.guests().items()} == expected

        wait_for("hypervisors hold exactly the rows", exact, SETTLE_SECONDS)

    def check_nothing_left(self) -> None:
        def leftovers() -> list[str]:
            return [
                str(path)
                for host in self.cloud.computes
                for folder in ("domains", "disks", "vifs")
                for path in self._fake(host, folder).glob("*")
            ]

        wait_for_none("nothing is left on hosts", leftovers, SETTLE_SECONDS)
        wait_for_none("the network service holds nothing", self.at_network_service, SETTLE_SECONDS)
        self.services.check_nothing_left()
        wait_for("claims and addresses are given back", lambda: self.db.read(judges.nothing_held), SETTLE_SECONDS)
        self.db.read(judges.all_rows)


@contextlib.contextmanager
def arena(path: Path, site: Site | None = None, **options: Any) -> Iterator[Arena]:
    """Run a cloud for cases. ``options``: of the cloud, besides those of its site."""
    site = site or Site()
    control = path / "failpoints.json"
    options = {"quota": -1, "launcher": ("tests.faults.daemon",), "prepare": daemons.prepare} | site.options() | options
    traces = path / "traces"
    traces.mkdir()
    options["environment"] = {failpoints.ENVIRONMENT: str(control), daemons.ENVIRONMENT: str(traces)}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Proxy(BROKER_PORT))
        database = stack.enter_context(PrivateDatabase(path / "database")) if site.own_database else None
        url = None if database is None else database.url
        others = stack.enter_context(services.running(site.services))
        options["environment"] |= others.environment()
        options["extra_config"] = f"{options['extra_config']}{others.options()}"
        options["extra_config"] = options["extra_config"].replace("{path}", str(path))
        if site.target:
            stack.enter_context(target.small(path))
        stack.callback(guards.end, path)
        running = stack.enter_context(cloud.running(path, broker_port=broker.port, database=url, **options))
        others.serve(running)
        outages: dict[str, Outage] = {BROKER: BrokerOutage(running, broker)}
        if database is not None:
            outages[DATABASE] = DatabaseOutage(database)
        if site.target:
            outages[TARGET] = TargetOutage(functools.partial(target.fill, path / target.REPOSITORY))
        ready = Arena(running, control, outages, site, others, traces)
        stack.callback(ready.close)
        yield ready
