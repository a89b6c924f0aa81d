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
import contextlib
import dataclasses
import itertools
import json
import random
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
from tests.functional import cloud

#: A lease is 5 s in these clouds: a pause outlives it, so that what wakes up is a zombie.
PAUSE_SECONDS = 7.0
DELAY_SECONDS = 2.0
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

    def __init__(self, running: cloud.Cloud, control: Path) -> None:
        self.cloud = running
        self.control = control
        self.case = 0
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(running.config_arguments("conductor"), default_config_files=[])
        self.conf = conf
        self.db = Database(conf)
        self._stop = threading.Event()
        self.violated = ""
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def close(self) -> None:
        self._stop.set()
        self._watcher.join(30)
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
                self.violated = f"{type(error).__name__}: {error}"

    def arm(self, faults: tuple[Fault, ...]) -> list[Path]:
        """Install the case's faults; returns the files that tell that they have happened."""
        self.case += 1
        rules = [fault.rule(f"{self.case}-{number}") for number, fault in enumerate(faults)]
        draft = self.control.with_suffix(".draft")
        draft.write_text(json.dumps(rules))
        draft.replace(self.control)
        return [Path(f"{self.control}.{rule['id']}.fired") for rule in rules]

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


@dataclasses.dataclass(frozen=True)
class Fault:
    daemon: str
    point: str
    effect: str

    def __str__(self) -> str:
        return f"{self.effect} {self.daemon} at {self.point}"

    def rule(self, rule_id: str) -> dict[str, Any]:
        seconds = PAUSE_SECONDS if self.effect == hooks.PAUSE else DELAY_SECONDS
        return {**dataclasses.asdict(self), "id": rule_id, "seconds": seconds}


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

    def run(self, arena: Arena) -> None:
        arena.violated = ""
        arena.arm(())
        self.operation.prepare(arena)
        fired = arena.arm(self.faults)
        self.operation.run(arena)
        # A second fault may lie on a way that the first one has cut off.
        for fault, mark in list(zip(self.faults, fired, strict=True))[:1]:
            cloud.wait_for(f"the fault happens ({fault})", mark.exists, 15)
        arena.check_hypervisors()
        for server in arena.servers():
            arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
        arena.gone()
        arena.check_nothing_left()
        arena.check_rows()
        assert not arena.violated, arena.violated


def faults_of(operation: Operation) -> Iterator[Fault]:
    for daemon, points in operation.points.items():
        for point in points:
            for effect in effects_at(point):
                yield Fault(daemon, point, effect)


CASTS = ("build_instances", "build_and_run_instance", "update_host_states", "_instance")


def effects_at(point: str) -> list[str]:
    found = [hooks.KILL, hooks.PAUSE, hooks.DELAY]
    if point.startswith("send/") and point.endswith("/before"):
        found.append(hooks.ERROR)
        if point.split("/")[1].endswith(CASTS):
            found += [hooks.DROP, hooks.DUPLICATE]
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
def arena(path: Path, **options: Any) -> Iterator[Arena]:
    """``options``: of the cloud."""
    control = path / "hooks.json"
    environment = {hooks.ENVIRONMENT: str(control)}
    options = {"computes": 2, "vcpus": 64, "quota": -1} | options
    with cloud.running(path, environment=environment, **options) as running:
        ready = Arena(running, control)
        try:
            yield ready
        finally:
            ready.close()


def run_case(case: Case, ready: Arena) -> tuple[float, str]:
    """Seconds it took, and what was wrong ("" if nothing)."""
    started = time.monotonic()
    try:
        case.run(ready)
    except Exception as error:
        return time.monotonic() - started, f"{type(error).__name__}: {error}"
    return time.monotonic() - started, ""


def run_cases(cases: list[Case], parallel: int, report: Callable[[Case, float, str], None]) -> None:
    """All cases, over ``parallel`` clouds; a cloud in which a case failed is replaced by a new one."""
    numbered = iter(cases)
    lock = threading.Lock()

    def worker() -> None:
        case = None
        while True:
            with tempfile.TemporaryDirectory(prefix="nova-lite-faults-") as directory, arena(Path(directory)) as ready:
                while True:
                    with lock:
                        case = next(numbered, None)
                    if case is None:
                        return
                    seconds, wrong = run_case(case, ready)
                    if wrong:
                        wrong += "\n" + ready.cloud.all_logs()
                    with lock:
                        report(case, seconds, wrong)
                    if wrong:
                        break

    with futures.ThreadPoolExecutor(parallel) as pool:
        for done in [pool.submit(worker) for _ in range(parallel)]:
            done.result()


class Table:
    """Cases, passed and slowest recovery, by operation and effect."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.rows: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self.failures: list[tuple[Case, str]] = []
        self.done = 0

    def add(self, case: Case, seconds: float, wrong: str) -> None:
        key = (case.operation.name, " + ".join(fault.effect for fault in case.faults))
        self.rows.setdefault(key, []).append((seconds, wrong))
        self.done += 1
        if wrong:
            self.failures.append((case, wrong))
        state = "FAILED " + wrong.splitlines()[0] if wrong else "passed"
        print(f"[{self.done}/{self.total}] {case}: {state} ({seconds:.1f} s)", flush=True)

    def print(self) -> None:
        for case, wrong in self.failures:
            print(f"\n--- {case}\n{wrong}")
        print(f"\n{'operation':24} {'fault':22} {'cases':>5} {'passed':>6} {'slowest':>8}")
        for (operation, effect), results in sorted(self.rows.items()):
            passed = sum(not wrong for _, wrong in results)
            slowest = max(seconds for seconds, _ in results)
            print(f"{operation:24} {effect:22} {len(results):5} {passed:6} {slowest:6.1f} s")
        print(f"{self.done - len(self.failures)} passed, {len(self.failures)} failed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=int, default=3, help="clouds at the same time")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth single fault")
    parser.add_argument("--pairs", type=int, default=0, help="instead: so many pairs of faults at random")
    parser.add_argument("--seed", type=int, help="of the pairs; chosen and printed if not given")
    parser.add_argument("--only", default="", help="only cases whose description contains this")
    options = parser.parse_args()
    if options.pairs:
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
        print(f"seed {seed}")
        cases = pairs(options.pairs, seed)
    else:
        cases = list(itertools.islice(singles(), 0, None, options.every))
    cases = [case for case in cases if options.only in str(case)]
    table = Table(len(cases))
    run_cases(cases, options.parallel, table.add)
    table.print()
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
