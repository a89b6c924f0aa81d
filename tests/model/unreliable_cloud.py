"""A cloud in one process whose messages are lost, doubled, late and reordered, and whose builds fail, by a seed.

Its servers' traces are recorded. One thread does all that the cloud's clients, its bus and its clock do. Jobs of hosts
have threads of their own, so a seed repeats a run in its choices only.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute.manager import ComputeManager
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction, Service
from nova_lite.image.driver import load_backend
from nova_lite.rpc.client import Message
from nova_lite.rpc.in_process import dispatch
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt import fake_hypervisor
from nova_lite.virt.driver import load_compute_driver
from tests.model.traces import Recorder
from tests.support.in_process_cloud import InProcessCloud
from tests.support.waiting import polls

HOSTS = ("host1", "host2")
ATTEMPTS = 2
_LIMITS = (
    "[quota]\ninstances = -1\ncores = -1\nram = -1\n[fake]\nvcpus = 10000\nmemory_mb = 1000000\ndisk_gb = 100000\n"
)
#: The cloud has no thread that asks the hypervisors whether they answer, as daemons have.
_LASTING = "[DEFAULT]\nservice_down_time = 100000\n[compute]\nhypervisor_timeout = 100000\n"
_OPTIONS = f"{_LASTING}[conductor]\nmax_attempts = {ATTEMPTS}\n{_LIMITS}"
_TIMING = ComputeTiming(report_retry=0.02, fence_wait=0.3, stop_wait=0.1)
#: Messages that are held back, doubled and repeated. Messages of hosts about themselves always arrive.
CASTS = ("build_instances", "build_and_run_instance", "stop_instance", "start_instance", "terminate_instance")
REPORTS = ("start_build", "finish_build", "finish_action", "fence_instance")


class _Bus(rpc.InProcess):
    """Holds casts about servers back, and loses calls before and after they are carried out.

    ``held``: casts that have not arrived. ``sent``: all messages about servers. ``loss``: share of lost calls.
    ``lost``: methods whose calls are all lost. ``meanwhile`` runs while a thread of the conductor waits for the
    scheduler.
    """

    def __init__(self, conf: Any, choices: random.Random) -> None:
        super().__init__(conf)
        self.choices = choices
        self.held: list[Message] = []
        self.sent: list[Message] = []
        self.loss = 0.0
        self.lost: set[str] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    def cast(self, message: Message) -> None:
        if message.method in CASTS:
            self.sent.append(message)
            self.held.append(message)
        else:
            super().cast(message)

    def call(self, message: Message) -> Any:
        is_report = message.method in REPORTS
        if is_report:
            self.sent.append(message)
        if message.method.startswith("select_"):
            self.meanwhile()
        if message.method in self.lost or (is_report and self.choices.random() < self.loss):
            raise exceptions.MessagingUnavailable(what=message.method)
        result = super().call(message)
        if is_report and self.choices.random() < self.loss:
            raise exceptions.MessagingUnavailable(what=message.method)
        return result

    def arrive(self, message: Message) -> None:
        """Let a message arrive, whose reply goes nowhere."""
        for endpoint in self._receivers(message):
            with contextlib.suppress(Exception):
                dispatch(endpoint, message)


class UnreliableCloud(InProcessCloud):
    """A cloud of two hosts. `run` makes one server, with faults by a seed, and returns its id."""

    bus: _Bus

    def __init__(self, directory: Path) -> None:
        self.recorder = Recorder()
        self.hosts: dict[str, ComputeManager] = {}
        self._choices = random.Random()
        self._settings = 0
        super().__init__(directory, _OPTIONS)
        self.recorder.watch(self.conductor.db)
        self._is_meanwhile = False

    def run(self, seed: int, rounds: int = 6) -> str:
        """Make a server, send requests about it while random faults happen, let it settle, and delete it."""
        self._choices = self.bus.choices = random.Random(seed)
        self.begin()
        self.bus.loss, self.bus.meanwhile = self._choices.choice((0.0, 0.1, 0.3)), self._meanwhile
        faults = {fault: self._choices.choice((0, 1, 1, 6)) for fault in self._faults()}
        if faults[self._break_build]:
            self._break_build()
        server = self.send_create()
        for _ in range(rounds):
            for _ in range(self._choices.randrange(8)):
                happens = self._choices.choices([self._deliver, *faults], [6, *faults.values()])
                happens[0]()
                time.sleep(self._choices.choice((0, 0.003, 0.02)))
            if self._choices.random() < 0.6:
                self.settle(server, 2)
            self._ask(server)
        self.bus.meanwhile, self.bus.loss = lambda: None, 0.0
        self.mend_builds()
        self.mark_up()
        assert self.settle(server), f"{server} does not settle"
        self.request("DELETE", f"/servers/{server}")
        assert self.settle(server), f"{server} is not deleted"
        return server

    def begin(self) -> None:
        """Forget the faults of an earlier run. Messages are held back and none is lost."""
        self.bus.held, self.bus.sent, self.bus.lost = [], [], set()
        self.bus.meanwhile, self.bus.loss = lambda: None, 0.0
        self.mend_builds()
        self.mark_up()

    def close(self) -> None:
        """Stop the daemons."""
        self.hosts["host2"].stop()
        super().close()

    def _make_bus(self) -> rpc.InProcess:
        return _Bus(self.conf, self._choices)

    def _start_host(self, conductor: ConductorRPC) -> ComputeManager:
        for name in HOSTS:
            backend = load_backend(self.conf, conductor)
            driver = load_compute_driver(self.conf, name, backend.fetch)
            manager = ComputeManager(self.conf, name, driver, conductor, backend, timing=_TIMING)
            manager.connect()
            manager.clean_up()
            self.bus.serve(rpc.Endpoint(ComputeRPC, manager, commands=manager.commands), name)
            manager.registration.serve()
            self.hosts[name] = manager
        return self.hosts["host1"]

    # --- random things

    def _faults(self) -> list[Callable[[], None]]:
        """Return what may happen besides requests and messages. A run has its own share of each."""
        return [
            self._repeat,
            self.retry,
            self.expire,
            self._compare,
            self._break_build,
            self.mend_builds,
            self.mark_down,
            self.mark_up,
        ]

    def _meanwhile(self) -> None:
        """Do things while a thread of the conductor waits for the scheduler. They do not nest."""
        if not self._is_meanwhile and self._choices.random() < 0.4:
            self._is_meanwhile = True
            try:
                self.retry()
                self._deliver()
            finally:
                self._is_meanwhile = False

    def _deliver(self) -> None:
        """Let a message arrive, or lose it, or let it arrive and come again later."""
        if self.bus.held:
            index = self._choices.randrange(len(self.bus.held))
            message, fate = self.bus.held[index], self._choices.random()
            if fate < 0.8:
                del self.bus.held[index]
            if fate > 0.15:
                self.bus.arrive(message)

    def _repeat(self) -> None:
        if self.bus.sent:
            self.bus.arrive(self._choices.choice(self.bus.sent))

    def _ask(self, server: str) -> None:
        kind = self._choices.choice(("os-stop", "os-start", "os-stop", "os-start", "rebuild", "delete"))
        if kind == "delete":
            self.request("DELETE", f"/servers/{server}")
        elif kind != "rebuild" or self.settled(server) == "ACTIVE":  # the model stops no rebuilt server
            body = {"imageRef": self.image_id} if kind == "rebuild" else None
            self.request("POST", f"/servers/{server}/action", {kind: body})

    def retry(self) -> None:
        self._pass_time("lease_expires_at")

    def expire(self) -> None:
        self._pass_time("deadline")

    def _pass_time(self, column: str) -> None:
        """Let this time of open actions pass, and the reconciler work."""

        def pass_time(uow: UnitOfWork) -> None:
            soon = uow.now + datetime.timedelta(days=1)  # later deadlines stand for none
            past = sa.update(InstanceAction).where(InstanceAction.finish_time.is_(None))
            past = past.where(getattr(InstanceAction, column) < soon)
            uow.change(past.values({column: datetime.datetime(2000, 1, 1)}))

        self.conductor.db.write(pass_time)
        self.conductor.reconciler.sweep()

    def _compare(self) -> None:
        with contextlib.suppress(exceptions.NovaLiteException):
            self.hosts[self._choices.choice(HOSTS)].reconciler.run()

    def _break_build(self) -> None:
        """Let the next build on a host fail, before or after it has a domain, and take time."""
        steps = ("spawn_before_domain", "spawn_after_domain")
        delays = {step: self._choices.choice((0, 0.02, 0.1)) for step in steps}
        fail_at = [self._choices.choice(steps)] if self._choices.random() < 0.7 else []
        self.set_builds([self._choices.choice(HOSTS)], fail_at=fail_at, delays=delays)

    def set_builds(self, hosts: Iterable[str], **control: Any) -> None:
        """Control the next build on each host, as `nova_lite.virt.fake_hypervisor.Control` has it. It fails once."""
        for host in hosts:
            self._settings += 1  # a changed file begins a new count of failures
            count = {"fail_count": 1, "metrics": {"settings": self._settings}}
            fake_hypervisor.write_control(self.conf, host, **count, **control)

    def mend_builds(self) -> None:
        self.set_builds(HOSTS)

    def mark_down(self, *hosts: str) -> None:
        """Let hosts count as down although they serve; without a name any one."""
        for host in hosts or [self._choices.choice(HOSTS)]:
            self._mark(host, False)

    def mark_up(self) -> None:
        for host in HOSTS:
            self._mark(host, True)
        self.scheduler._next_resync = 0.0
        self.scheduler.keep_fresh()

    def _mark(self, host: str, up: bool) -> None:
        """Let a host count as up or down, rightly or not."""

        def mark(uow: UnitOfWork) -> None:
            compute = sa.update(Service).where(Service.binary == "nova-compute", Service.host == host)
            uow.change(compute.values(up=up))

        self.conductor.db.write(mark)

    def deliver(self) -> None:
        """Let all messages arrive that were held back."""
        held, self.bus.held = self.bus.held, []
        for message in held:
            self.bus.arrive(message)

    def settle(self, server: str, seconds: float = 20.0) -> bool:
        """Let all messages arrive until nothing is open. Return whether that happened in time."""
        for _ in polls(seconds, 0.02):
            self.deliver()
            busy = any(host.jobs.is_busy(server) for host in self.hosts.values())
            if self.is_finished(server) and not busy and not self.bus.held:
                return True
            self.retry()
        return False
