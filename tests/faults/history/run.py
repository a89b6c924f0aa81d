"""Makes a history: a cloud, clients, observers and a nemesis for some minutes, calm, an end; and the tables then."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import requests
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.db.core.engine import Database
from nova_lite.db.upkeep import invariants, server_traces
from tests.faults import threads
from tests.faults.history import checker, observers, rowlog, site
from tests.faults.history.clients import BIGGER, Client, Servers
from tests.faults.history.events import CALM, GONE, SETTLED, Mark, Recorder, Settings, Tables, Traces
from tests.faults.history.nemesis import Nemesis
from tests.faults.private import PrivateDatabase
from tests.model.daemons import DaemonTraces
from tests.support.waiting import polls, wait_for


@dataclasses.dataclass(frozen=True)
class Plan:
    """``deadline``: of actions, in seconds; all has to settle within ``bound`` after the nemesis stopped. ``mix``,
    ``effects``: weights of requests and faults, if not all of them; ``targets``: a shell pattern of the daemons that
    are hit; ``lasts``: seconds that faults last, if not each its own; ``build_seconds``: at least, before a guest is
    there; ``without``: a protection to switch off."""

    seconds: float
    seed: int
    clients: int = 6
    nemeses: int = 2
    computes: int = 3
    servers: int = 16
    volumes: int = 4
    deadline: int = 60
    bound: float = 150.0
    rest: float = 0.4
    nemesis_rest: float = 4.0
    mix: dict[str, int] | None = None
    effects: dict[str, int] | None = None
    targets: str = "*"
    lasts: tuple[float, float] | None = None
    build_seconds: float = 0.0
    without: str = ""


def make(plan: Plan, path: Path, file: Path) -> None:
    """Make a history in ``file``; daemons and their logs are in ``path``."""
    options = {"computes": plan.computes, "deadline": plan.deadline, "without": plan.without}
    with Recorder(file) as recorder, site.running(path, **options) as (running, server):
        hosts = running.computes
        recorder.add(
            Settings(seed=plan.seed, seconds=plan.seconds, bound=plan.bound, hosts=hosts, without=plan.without)
        )
        _Run(plan, running, server, recorder).run()


class _Run:
    def __init__(self, plan: Plan, running: site.HistoryCloud, server: PrivateDatabase, recorder: Recorder) -> None:
        self.plan = plan
        self.cloud = running
        self.recorder = recorder
        self.servers = Servers(plan.servers)
        self.failures: list[BaseException] = []
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(running.config_arguments("conductor"), default_config_files=[])
        conf.set_override("connection", running.database, "database")
        self.db = Database(conf)
        self.nemesis = Nemesis(
            running,
            server,
            recorder,
            plan.seed,
            plan.effects,
            plan.targets,
            plan.lasts,
            plan.nemesis_rest,
        )

    def run(self) -> None:
        body = {"flavor": {"name": "bigger", "id": BIGGER, "vcpus": 2, "ram": 128, "disk": 2}}
        assert self.cloud.request("POST", "/flavors", body).status_code == 200
        for host in self.cloud.computes if self.plan.build_seconds else ():
            self.cloud.control_host(host, spawn_delay=self.plan.build_seconds)
        volumes = [self._make_volume() for _ in range(self.plan.volumes)]
        watch = observers.Watch(self.cloud, self.recorder)
        with self._threads(threading.Event(), [watch.run, *self._daemons_watch()]):
            self._storm(volumes)
            self.recorder.add(Mark(what=CALM, at=time.time()))
            self._end(SETTLED, self._settled)
            self._delete_all()
            self._end(GONE, self._settled)
        self.recorder.add_all(rowlog.changes(self.db.engine))
        judged = DaemonTraces(self.cloud.path / "traces", self.db).judge()
        refused = dict(judged.refused)
        for verdict in server_traces.judge(self.db):
            if verdict.wrong is not None:
                refused[verdict.server] = f"{verdict.wrong} (action {verdict.action})"
        self.recorder.add(Traces(paths=judged.paths, unjudged=judged.unjudged, refused=refused))
        self.db.close()
        if self.failures:
            raise self.failures[0]

    def _daemons_watch(self) -> list[Callable[[threading.Event], None]]:
        observer = self._client("observer", {"list": 1})
        return [self.nemesis.keep_alive, observer.run]

    def _storm(self, volumes: list[str]) -> None:
        clients = [self._client(f"client-{number}", self.plan.mix) for number in range(self.plan.clients)]
        for client in clients:
            client.volumes = volumes
        stop = threading.Event()
        with self._threads(stop, [client.run for client in clients]):
            with self._threads(threading.Event(), [self.nemesis.run] * self.plan.nemeses):
                for _ in polls(self.plan.seconds):
                    if self.failures:
                        break
            stop.set()

    def _client(self, name: str, mix: dict[str, int] | None) -> Client:
        own = random.Random(f"{name} {self.plan.seed}")
        return Client(name, self.cloud, self.servers, [], self.recorder, own, self.plan.rest, mix)

    def _threads(
        self, stop: threading.Event, runs: list[Callable[[threading.Event], None]]
    ) -> AbstractContextManager[None]:
        """Run threads during the block. A failure of one ends the whole run."""
        return threads.running(runs, self.failures, stop, seconds=120)

    def _make_volume(self) -> str:
        def ask(method: str, path: str, body: Any = None) -> requests.Response:
            url = f"http://127.0.0.1:{self.cloud.volume_port}/v3{path}"
            return requests.request(method, url, json=body, headers={"X-Auth-Token": "user:demo"}, timeout=30)

        answer = ask("POST", "/volumes", {"volume": {"name": "v", "size": 1}})
        assert answer.status_code == 202, answer.text
        volume_id: str = answer.json()["volume"]["id"]

        def is_available() -> bool:
            return bool(ask("GET", f"/volumes/{volume_id}").json()["volume"]["status"] == "available")

        wait_for("a volume is made", is_available, 60)
        return volume_id

    # --- the end

    def _end(self, what: str, reached: Callable[[Tables], bool]) -> None:
        """Wait until the condition holds or the bound has passed, and return the tables."""
        for _ in polls(self.plan.bound, 0.5):
            tables = self._tables(what)
            if reached(tables):
                self.recorder.add(Mark(what=what, at=time.time()))
                break
        self.recorder.add(tables)

    def _tables(self, what: str) -> Tables:
        problems = self.db.read(invariants.find)
        return Tables(
            what=what,
            rows=rowlog.tables(self.db.engine),
            domains=observers.domains(self.cloud),
            files=observers.other_files(self.cloud),
            problems=[f"audit: {p.check} of {p.subject}: {p.found}, not {p.expected}" for p in problems],
        )

    @staticmethod
    def _settled(tables: Tables) -> bool:
        still = [row for row in tables.rows["instance_actions"] if row["finish_time"] is None]
        return not still and not list(checker.of_tables(tables))

    def _delete_all(self) -> None:
        """Delete all servers with one more client, which repeats unanswered requests."""
        cleaner = self._client("cleaner", None)
        for _ in polls(self.plan.bound, 1):
            seen = cleaner.list()
            if seen.accepted and not seen.states:
                return
            for server in seen.states:
                cleaner.send("delete", "DELETE", f"/servers/{server}", server=server, token="admin:demo")
