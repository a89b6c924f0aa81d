"""The fault matrix: each operation, with one fault (or two) at each point it passes.

A case makes a fault happen once (`nova_lite.hooks`) while its operation runs on a cloud of real daemons with fake
hypervisors, has killed daemons restarted as systemd would, and passes if

- the fault did happen;
- what was accepted ends as it was asked for, without anybody's help: ACTIVE, SHUTOFF, or gone;
- at no time is an instance on two hosts, or more used on a host than it has (looked at every 100 ms);
- in the end the hypervisors hold exactly the rows that say so, after deletes nothing is left of disks, interfaces,
  addresses, claims and quota, and the audit finds nothing.

``python -m tests.faults.matrix --help`` runs it; a further operation joins by a row in `OPERATIONS`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import fnmatch
import itertools
import json
import random
import shutil
import sys
import tempfile
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
from nova_lite import hooks
from nova_lite.conductor.db import audit, models
from nova_lite.conductor.db.engine import Database, UnitOfWork
from tests.faults.daemon import AHEAD, BEHIND
from tests.faults.outages import BROKER, BROKER_PORT, DATABASE, BrokerOutage, DatabaseOutage, Outage, Strike, release
from tests.faults.private import PrivateDatabase
from tests.faults.report import Result, Table
from tests.functional import cloud
from tests.functional.proxy import Proxy

#: A lease is 5 s in these clouds: a pause outlives it, so that what wakes up is a zombie.
PAUSE_SECONDS = 7.0
DELAY_SECONDS = 2.0
HOLD_SECONDS = 60.0
SETTLE_SECONDS = 90.0


def around(*names: str) -> list[str]:
    return [f"{name}/{where}" for name in names for where in ("before", "after")]


CREATE = {
    "api": around("send/create_instances", "send/build_instances"),
    "conductor": around(
        "handle/create_instances",
        "commit/create_instances",
        "commit/_lease",
        "send/select_destinations",
        "commit/_claim_all",
        "send/update_host_states",
        "send/build_and_run_instance",
        "handle/build_instances",
        "handle/start_build",
        "commit/start_build",
        "handle/finish_build",
        "commit/finish_build",
    ),
    "scheduler": around("handle/select_destinations", "handle/update_host_states"),
    "compute-*": [
        *around("handle/build_and_run_instance", "send/start_build", "fence", "send/finish_build"),
        "domain/spawn/after",
    ],
}


def acts(method: str) -> dict[str, list[str]]:
    """Points of an action on an existing server."""
    return {
        "api": around("send/accept_action", f"send/{method}"),
        "conductor": around(
            "handle/accept_action", "commit/accept_action", "handle/finish_action", "commit/finish_action"
        ),
        "compute-*": around(f"handle/{method}", "fence", "send/finish_action"),
    }


EVACUATE = {
    "api": around("send/accept_action", "send/build_instances"),
    "conductor": [
        *around("handle/accept_action", "commit/accept_action", "handle/build_instances"),
        *(
            point
            for point in CREATE["conductor"]
            if "create_instances" not in point and "/build_instances" not in point
        ),
    ],
    "scheduler": CREATE["scheduler"],
    "compute-*": [*CREATE["compute-*"], *around("domain/destroy", "send/register_host")],
}

DELETE = acts("terminate_instance") | {
    "compute-*": around("handle/terminate_instance", "fence", "domain/destroy", "send/finish_action")
}


class Arena:
    """A cloud whose daemons are watched, restarted, and told where to fail."""

    def __init__(self, running: cloud.Cloud, control: Path, outages: dict[str, Outage]) -> None:
        self.cloud = running
        self.control = control
        self.outages = outages
        self._strikes: list[tuple[Strike, futures.Future[None]]] = []
        self.case = 0
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(running.config_arguments("conductor"), default_config_files=[])
        self.conf = conf
        self.db = Database(conf)
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
        """What systemd does (restart), and what an observer of all hypervisors sees."""
        while not self._stop.wait(0.1):
            for name, process in list(self.cloud.processes.items()):
                if process.poll() is not None:
                    self.cloud.start(name)
            try:
                self.cloud.domains()
                overfull = self.db.read(_overfull)
                assert not overfull, f"more is used than there is on {overfull}"
            except Exception as error:
                if not (isinstance(error, sa.exc.DBAPIError) and self._strikes):
                    self.violated = f"{type(error).__name__}: {error}"

    def arm(self, faults: tuple[Fault, ...]) -> list[Path]:
        """Install the case's faults; returns the files that tell that they have happened."""
        self.case += 1
        rules = [fault.rule(f"{self.case}-{number}") for number, fault in enumerate(faults)]
        draft = self.control.with_suffix(".draft")
        draft.write_text(json.dumps(rules))
        draft.replace(self.control)
        found = [Path(f"{self.control}.{rule['id']}.fired") for rule in rules]
        for fault, fired in zip(faults, found, strict=True):
            if fault.effect in self.outages:
                strike = Strike(self.outages[fault.effect], fired)
                self._strikes.append((strike, self._pool.submit(strike.run)))
        return found

    def end_faults(self, faults: tuple[Fault, ...], fired: list[Path]) -> None:
        """Wait until what is away is back, and what lasts is over; what did not happen will not happen any more."""
        self.arm(())
        for strike, done in self._strikes:
            strike.called_off = True
            done.result(SETTLE_SECONDS)
            release(strike.fired)
        self._strikes = []
        for fault, file in zip(faults, fired, strict=True):
            if file.exists():
                time.sleep(max(0.0, file.stat().st_mtime + LASTING.get(fault.effect, 0.0) - time.time()))

    # --- requests that may fail because of the fault, and are then repeated as a client would

    def send(self, method: str, path: str, body: Any = None) -> requests.Response | None:
        with contextlib.suppress(requests.RequestException):
            return self.cloud.request(method, path, body, timeout=30)
        return None

    def insist(self, method: str, path: str, body: Any, done: tuple[int, ...]) -> None:
        """Until it was accepted, or is in vain because an earlier, unanswered try was (one of ``done``)."""

        def answered() -> bool:
            answer = self.send(method, path, body)
            return answer is not None and answer.status_code in done

        cloud.wait_for(f"{method} {path} is accepted", answered, SETTLE_SECONDS, 0.5)

    def servers(self) -> list[dict[str, Any]]:
        def listed() -> list[list[dict[str, Any]]]:
            answer = self.send("GET", "/servers/detail")
            return [answer.json()["servers"]] if answer is not None and answer.status_code == 200 else []

        found: list[dict[str, Any]] = cloud.wait_for("servers are listed", listed, SETTLE_SECONDS, 0.3)[0]
        return found

    def create(self, count: int) -> None:
        body = {"name": "vm", "imageRef": self.cloud.image_id, "flavorRef": "1", "min_count": count, "max_count": count}
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

        cloud.wait_for(f"{host} is forced down: {forced_down}", done, SETTLE_SECONDS, 0.5)

    def settle(self, status: str, count: int | None = None) -> None:
        def settled() -> bool:
            found = self.servers()
            states = {server["status"] for server in found}
            idle = not any(server["OS-EXT-STS:task_state"] for server in found)
            return idle and states <= {status} and (count is None or len(found) == count)

        try:
            cloud.wait_for(f"all servers are {status}", settled, SETTLE_SECONDS, 0.2)
        except AssertionError as error:
            seen = [(s["status"], s["OS-EXT-STS:task_state"], s.get("fault")) for s in self.servers()]
            raise AssertionError(f"{error}: {seen}") from None

    def gone(self) -> None:
        cloud.wait_for("all servers are gone", lambda: not self.servers(), SETTLE_SECONDS, 0.2)

    def is_back(self, host: str) -> None:
        """It has no domain (any more), and reports in."""
        domains = self.cloud.path / host / "instances" / f"fake-{host}" / "domains"

        def up() -> bool:
            answer = self.send("GET", f"/os-services?host={host}")
            return answer is not None and answer.ok and [s["state"] for s in answer.json()["services"]] == ["up"]

        cloud.wait_for(f"{host} is back", lambda: not list(domains.glob("*")) and up(), SETTLE_SECONDS)

    def one(self) -> str:
        (server,) = self.servers()
        server_id: str = server["id"]
        return server_id

    # --- judgement

    def check_hypervisors(self) -> None:
        expected = {server["id"]: server["OS-EXT-SRV-ATTR:host"] for server in self.servers()}
        cloud.wait_for("hypervisors hold exactly the rows", lambda: self.cloud.domains() == expected, SETTLE_SECONDS)

    def check_nothing_left(self) -> None:
        def leftovers() -> list[str]:
            return [
                str(path)
                for host in self.cloud.computes
                for folder in ("domains", "disks", "vifs")
                for path in (self.cloud.path / host / "instances" / f"fake-{host}" / folder).glob("*")
            ]

        cloud.wait_for("nothing is left on hosts", lambda: not leftovers(), SETTLE_SECONDS)

        def rows() -> bool:
            return self.db.read(
                lambda uow: not any(uow.session.query(t).count() for t in (models.Allocation, models.Port))
            )

        cloud.wait_for("claims and addresses are given back", rows, SETTLE_SECONDS)

    def check_rows(self) -> None:
        found = self.db.read(audit.find)
        assert not found, f"audit: {found}"


def _overfull(uow: UnitOfWork) -> list[str]:
    node = models.ComputeNode
    more = (node.vcpus_used > node.vcpus) | (node.memory_mb_used > node.memory_mb) | (node.disk_gb_used > node.disk_gb)
    return list(uow.session.scalars(sa.select(node.host).where(more)))


#: Faults that go on for some time beside what the daemon does, in seconds.
LASTING = {hooks.FULL: 3.0, AHEAD: 3.0, BEHIND: 3.0}
SECONDS = {hooks.PAUSE: PAUSE_SECONDS, hooks.DELAY: DELAY_SECONDS, hooks.HOLD: HOLD_SECONDS, **LASTING}


@dataclasses.dataclass(frozen=True)
class Fault:
    daemon: str
    point: str
    effect: str

    def __str__(self) -> str:
        return f"{self.effect} {self.daemon} at {self.point}"

    def rule(self, rule_id: str) -> dict[str, Any]:
        """As `nova_lite.hooks` wants it: what something from outside does to a daemon, it is held for."""
        effect = hooks.HOLD if self.effect in (BROKER, DATABASE) else self.effect
        seconds = SECONDS.get(effect, 0.0)
        return {"id": rule_id, "daemon": self.daemon, "point": self.point, "effect": effect, "seconds": seconds}


@dataclasses.dataclass(frozen=True)
class Operation:
    """``prepare`` runs without faults, ``run`` with; ``points``: daemon to the points that ``run`` surely passes."""

    name: str
    prepare: Callable[[Arena], Any]
    run: Callable[[Arena], None]
    points: dict[str, list[str]]


def one_active(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)


def one_stopped(arena: Arena) -> None:
    one_active(arena)
    arena.insist("POST", f"/servers/{arena.one()}/action", {"os-stop": None}, (202,))
    arena.settle("SHUTOFF", 1)


def create(count: int) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        arena.create(count)
        arena.settle("ACTIVE", count)

    return run


def act(body: dict[str, Any], status: str) -> Callable[[Arena], None]:
    """409: an earlier try that was not answered has been accepted."""

    def run(arena: Arena) -> None:
        arena.insist("POST", f"/servers/{arena.one()}/action", body, (202, 409))
        arena.settle(status, 1)

    return run


def one_on_a_lost_host(arena: Arena) -> None:
    one_active(arena)
    (server,) = arena.servers()
    lost = server["OS-EXT-SRV-ATTR:host"]
    arena.cloud.kill(lost)
    arena.force_down(lost, True)
    arena.cloud.fenced.add(lost)


def evacuate(arena: Arena) -> None:
    """And let the lost host in again, which has to destroy what it still has before it serves."""
    (server,) = arena.servers()
    (lost,) = arena.cloud.fenced
    arena.insist("POST", f"/servers/{server['id']}/action", {"evacuate": {"onSharedStorage": False}}, (200, 400, 409))
    arena.settle("ACTIVE", 1)
    arena.force_down(lost, False)
    arena.cloud.start(lost)
    arena.is_back(lost)
    arena.cloud.fenced.clear()


def delete(arena: Arena) -> None:
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204, 404))
    arena.gone()


def delete_while_building(arena: Arena) -> None:
    arena.create(1)
    for server in arena.servers():
        arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
    arena.gone()


def nothing(arena: Arena) -> None:
    del arena


#: The delete may come before or after each step of the build; only what both of them surely pass.
CREATE_AND_DELETE = {
    "api": around("send/create_instances", "send/accept_action"),
    "conductor": around(
        "handle/create_instances", "commit/create_instances", "handle/accept_action", "commit/accept_action"
    ),
}

OPERATIONS = [
    Operation("create 1", nothing, create(1), CREATE),
    Operation("create 20", nothing, create(20), CREATE),
    Operation("delete", one_active, delete, DELETE),
    Operation("delete while building", nothing, delete_while_building, CREATE_AND_DELETE),
    Operation("stop", one_active, act({"os-stop": None}, "SHUTOFF"), acts("stop_instance")),
    Operation("start", one_stopped, act({"os-start": None}, "ACTIVE"), acts("start_instance")),
    Operation("evacuate", one_on_a_lost_host, evacuate, EVACUATE),
    Operation("reboot", one_active, act({"reboot": {"type": "HARD"}}, "ACTIVE"), acts("reboot_instance")),
]


@dataclasses.dataclass(frozen=True)
class Case:
    operation: Operation
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return f"{self.operation.name}: {' + '.join(map(str, self.faults))}"

    @property
    def fault(self) -> str:
        """In the table; of pairs there are too many kinds. An operation can be a fault by itself."""
        if not self.faults:
            return "by itself"
        return self.faults[0].effect if len(self.faults) == 1 else f"any {len(self.faults)} faults"

    @property
    def needs_database(self) -> bool:
        """Whether its cloud has to stand on a database server; others stand on SQLite."""
        return any(fault.effect == DATABASE for fault in self.faults)

    def run(self, arena: Arena) -> float:
        """Returns the seconds from the request, with the faults, to its end."""
        arena.violated = ""
        self.operation.prepare(arena)
        fired = arena.arm(self.faults)
        try:
            seconds = self._run_operation(arena, fired)
        finally:
            arena.end_faults(self.faults, fired)
        arena.check_hypervisors()
        for server in arena.servers():
            arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
        arena.gone()
        arena.check_nothing_left()
        arena.check_rows()
        assert not arena.violated, arena.violated
        return seconds

    def _run_operation(self, arena: Arena, fired: list[Path]) -> float:
        started = time.monotonic()
        self.operation.run(arena)
        seconds = time.monotonic() - started
        if fired:
            # Of two, one may lie on a way that the other has cut off.
            cloud.wait_for(f"a fault happens ({self.fault})", lambda: any(file.exists() for file in fired), 15)
        return seconds


def faults_of(operation: Operation) -> Iterator[Fault]:
    for daemon, points in operation.points.items():
        for clock in (AHEAD, BEHIND):
            yield Fault(daemon, points[0], clock)
        for point in points:
            for effect in effects_at(point):
                yield Fault(daemon, point, effect)


CASTS = ("build_instances", "build_and_run_instance", "update_host_states", "_instance")

#: Points of a compute host after which it writes something.
WRITES = ("handle/*_instance/before", "send/start_build/after", "fence/*", "domain/*/after")


def effects_at(point: str) -> list[str]:
    found = [hooks.KILL, hooks.PAUSE, hooks.DELAY]
    if point.startswith("send/"):
        found.append(BROKER)
    if point.startswith("send/") and point.endswith("/before"):
        found.append(hooks.ERROR)
        if point.split("/")[1].endswith(CASTS):
            found += [hooks.DROP, hooks.DUPLICATE]
    if point.startswith("commit/"):
        found.append(DATABASE)
    if point.startswith("commit/") and point.endswith("/before"):
        found.append(hooks.ERROR)
    if any(fnmatch.fnmatch(point, pattern) for pattern in WRITES):
        found.append(hooks.FULL)
    return found


def singles() -> list[Case]:
    return [Case(operation, (fault,)) for operation in OPERATIONS for fault in faults_of(operation)]


def pairs(count: int, seed: int) -> list[Case]:
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        operation = chance.choice(OPERATIONS)
        choices = list(faults_of(operation))
        found.append(Case(operation, (chance.choice(choices), chance.choice(choices))))
    return found


@contextlib.contextmanager
def arena(path: Path, with_database: bool = False, **options: Any) -> Iterator[Arena]:
    """``options``: of the cloud. ``with_database``: on a MariaDB of its own instead of SQLite."""
    control = path / "hooks.json"
    options = {"computes": 2, "vcpus": 64, "quota": -1, "launcher": ("tests.faults.daemon",)} | options
    options["environment"] = {hooks.ENVIRONMENT: str(control)}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Proxy(BROKER_PORT))
        database = stack.enter_context(PrivateDatabase(path / "database")) if with_database else None
        url = None if database is None else database.url
        running = stack.enter_context(cloud.running(path, broker_port=broker.port, database=url, **options))
        outages: dict[str, Outage] = {BROKER: BrokerOutage(running, broker)}
        if database is not None:
            outages[DATABASE] = DatabaseOutage(database)
        ready = Arena(running, control, outages)
        stack.callback(ready.close)
        yield ready


def run_case(case: Case, ready: Arena) -> Result:
    started = time.monotonic()
    recovery, wrong = 0.0, ""
    try:
        recovery = case.run(ready)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return Result(case.operation.name, case.fault, str(case), recovery, time.monotonic() - started, wrong)


def run_cases(cases: list[Case], parallel: int, logs: Path, report: Callable[[Result], None]) -> None:
    """All cases, over ``parallel`` clouds; a cloud in which a case failed is replaced by a new one, and its logs are
    kept below ``logs``."""
    waiting = collections.deque(sorted(cases, key=lambda case: case.needs_database))
    lock = threading.Lock()

    def take() -> Case | None:
        with lock:
            return waiting.popleft() if waiting else None

    def serve(case: Case | None, ready: Arena) -> Case | None:
        """Until a case needs another cloud; returns it."""
        while case is not None and case.needs_database == (DATABASE in ready.outages):
            result = run_case(case, ready)
            if result.wrong:
                result.logs = str(keep_logs(ready.cloud, logs))
            with lock:
                report(result)
            case = take()
            if result.wrong:
                break
        return case

    def worker() -> None:
        case = take()
        while case is not None:
            with contextlib.ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-faults-"))
                try:
                    ready = stack.enter_context(arena(Path(directory), case.needs_database))
                except Exception as error:
                    with lock:
                        report(Result(case.operation.name, case.fault, str(case), wrong=f"no cloud: {error}"))
                    case = take()
                else:
                    case = serve(case, ready)

    with futures.ThreadPoolExecutor(parallel) as pool:
        try:
            for done in [pool.submit(worker) for _ in range(parallel)]:
                done.result()
        finally:
            waiting.clear()  # when it is interrupted, only what has begun is finished


def keep_logs(running: cloud.Cloud, logs: Path) -> Path:
    """What its daemons have said, and what they were told, in a directory of its own below ``logs``."""
    logs.mkdir(parents=True, exist_ok=True)
    kept = Path(tempfile.mkdtemp(prefix="case-", dir=logs))
    for pattern in ("*.log", "*.conf", "hooks.json*", "nova-lite.sqlite*"):
        for file in running.path.glob(pattern):
            shutil.copy(file, kept)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=int, default=3, help="clouds at the same time")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth single fault")
    parser.add_argument("--pairs", type=int, default=0, help="instead: so many pairs of faults at random")
    parser.add_argument("--seed", type=int, help="of the pairs; chosen and printed if not given")
    parser.add_argument("--only", default="", help="only cases whose description contains this")
    parser.add_argument("--logs", help="directory for the logs of cases that fail; made below /tmp if not given")
    options = parser.parse_args()
    command = "devstack/faults.sh"
    if options.pairs:
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
        command += f" --pairs {options.pairs} --seed {seed}"
        print(f"seed {seed}")
        cases = pairs(options.pairs, seed)
    else:
        cases = list(itertools.islice(singles(), 0, None, options.every))
    cases = [case for case in cases if options.only in str(case)]
    logs = Path(options.logs or tempfile.mkdtemp(prefix="nova-lite-faults-logs-")).absolute()
    table = Table(len(cases), command)
    run_cases(cases, options.parallel, logs, table.add)
    table.print()
    if not options.logs and not table.failures:
        logs.rmdir()
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
