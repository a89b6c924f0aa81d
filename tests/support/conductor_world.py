"""A conductor's parts over a real database, with two hosts; the other daemons are fakes."""

from __future__ import annotations

import datetime
import functools
import tempfile
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.base.batching import BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.actions import ActionEndpoints
from nova_lite.conductor.backups.replication import SiteRights
from nova_lite.conductor.engine import scheduling
from nova_lite.conductor.engine.build_reports import BuildReports
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.hosts.domains import DomainChecks
from nova_lite.conductor.network.attach import InterfaceAttacher
from nova_lite.conductor.operations import clones
from nova_lite.conductor.operations.create import CreateEndpoints
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.conductor.volume.cinder import CinderWorker
from nova_lite.conductor.volume.endpoints import VolumeEndpoints
from nova_lite.conductor.volume.tasks import VolumeTasks
from nova_lite.db.core import models, quotas, server_changes
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors, instances
from nova_lite.hardware import traits
from nova_lite.image.local import LocalImages
from nova_lite.network.driver import NetworkBackend, load_backend
from nova_lite.objects import BuildOutcome, BuildResult, CreateRequest, Destination, Selection

BUILT = BuildOutcome.BUILT


class Scheduler:
    """Chooses the ``hosts`` in order, or raises ``error``. ``asked`` counts the messages."""

    def __init__(self) -> None:
        self.hosts = ["host1", "host2"]
        self.error: Exception | None = None
        self.specs: list[objects.RequestSpec] = []
        self.asked = 0

    def select_destinations_batch(self, context: Any, specs: list[objects.RequestSpec]) -> list[objects.Placement]:
        self.asked += 1
        found = []
        for spec in specs:
            try:
                found.append(objects.Placement(destinations=self.select_destinations(context, spec)))
            except exceptions.NoValidHost as error:
                found.append(objects.Placement(reason=error.message, details=error.kwargs["details"]))
            self.asked -= 1
        return found

    def select_destinations(self, context: Any, spec: objects.RequestSpec) -> list[Destination]:
        self.asked += 1
        self.specs.append(spec)
        if self.error is not None:
            raise self.error
        usable = [host for host in self.hosts if host not in spec.ignore_hosts]
        if not usable:
            raise exceptions.NoValidHost(reason="Of 2 hosts, 2 failed RetryFilter.", details="host1, host2")
        places = [Selection(host=host, node=host, limits={"vcpus": 8}) for host in usable]
        return [
            Destination(instance_uuid=uuid, selected=places[0], alternates=places[1:]) for uuid in spec.instance_uuids
        ]


class Compute:
    """Records commands and builds, and counts the ``messages`` with builds.

    ``fenced``: the reply to a fence, or the error.
    """

    def __init__(self) -> None:
        self.builds: list[tuple[str, objects.BuildRequest]] = []
        self.commands: list[objects.ActionCommand] = []
        self.fenced: bool | Exception = True
        self.away = False
        self.messages = 0

    def build_and_run_instances(self, context: Any, host: str, requests: list[objects.BuildRequest]) -> None:
        for request in requests:
            self.build_and_run_instance(context, host, request)
        self.messages -= len(requests) - 1

    def build_and_run_instance(self, context: Any, host: str, request: objects.BuildRequest) -> None:
        if self.away:
            raise exceptions.MessagingUnavailable(what="build_and_run_instance")
        self.messages += 1
        self.builds.append((host, request))

    def run_command(
        self, context: Any, host: str, method: str, command: objects.ActionCommand, version: str = "2.0"
    ) -> None:
        self.commands.append(command)

    def fence_instance(self, context: Any, host: str, uuid: str, generation: int, timeout: float) -> bool:
        if isinstance(self.fenced, Exception):
            raise self.fenced
        return self.fenced


class Conductor:
    def __init__(self) -> None:
        self.nudged: list[str] = []

    def build_instances(self, context: Any, instance_uuids: list[str]) -> None:
        self.nudged += instance_uuids


class AtOnce(futures.Executor):
    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        func(*args, **kwargs)


def heartbeat(host: str) -> objects.HostReport:
    inventory = objects.Inventory(
        node=host,
        vcpus=4,
        memory_mb=1024,
        disk_gb=50,
        hypervisor_type="fake",
        supported_hv_types=["fake"],
        capabilities={traits.CAPABILITY: [traits.MULTIATTACH, traits.VIRTIOFS, traits.POINTS, traits.CLONES]},
    )
    return objects.HostReport(host=host, boot_id="b", inventories=[inventory], cpu_allocation_ratio=1.0)


class Parts:
    """The methods of several endpoints in one object, as callers of the conductor see them."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __getattr__(self, name: str) -> Any:
        return next(getattr(part, name) for part in self.parts if hasattr(part, name))


@functools.cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        engine = sa.create_engine(f"sqlite:///{directory}/db.sqlite")
        models.Base.metadata.create_all(engine)
        engine.dispose()
        return Path(directory, "db.sqlite").read_bytes()


class World:
    """A conductor's parts, two hosts of 4 vCPUs and 1024 MB, a flavor and a network.

    ``told``: its hosts report the action of a build, as all but older ones do.
    """

    def __init__(self, path: Path, network: Callable[[cfg.ConfigOpts], NetworkBackend] = load_backend) -> None:
        conf = self.conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf([])
        conf.set_override("connection", f"sqlite:///{path}/db.sqlite", "database")
        (path / "db.sqlite").write_bytes(_empty_database())
        self.db = Database(conf)
        server_changes.watch(self.db)
        self.scheduler, self.compute, self.conductor = Scheduler(), Compute(), Conductor()
        backend = network(conf)
        conf.set_override("store_path", str(path / "images"), "image")
        image_backend = LocalImages(conf, None)  # type: ignore[arg-type]
        self.engine = ActionEngine(self.db, conf, backend, image_backend, self.compute, self.scheduler, handler_for)  # type: ignore[arg-type]
        self.engine.executor = AtOnce()
        self.attacher = InterfaceAttacher(self.engine)
        self.actions = ActionEndpoints(self.engine, self.attacher)
        placing = scheduling.Scheduling(self.engine, self.scheduler)  # type: ignore[arg-type]
        self.building = building = BuildReports(
            self.engine,
            placing,
            self.conductor,  # type: ignore[arg-type]
            SiteRights(self.engine, None).require_for_build,
            ConductorTiming(build_batches=BatchLimits()),  # each message is handled at once
        )
        creating = CreateEndpoints(self.db, conf, backend, functools.partial(clones.begin, self.engine))
        self.lifecycle = Parts(creating, self.actions, building)
        self.reports = Parts(self.actions, building, DomainChecks(self.engine))
        tasks = VolumeTasks(self.engine)
        self.volumes = VolumeEndpoints(self.engine, tasks)
        self.reconciler = Reconciler(self.engine, placing, self.attacher, tasks, CinderWorker(self.engine, None))
        for executor in self.reconciler.executors:
            executor.pool = AtOnce()
        self.requests = 0
        self.told = True
        self.db.write(self._fill)

    def _fill(self, uow: UnitOfWork) -> None:
        for host in ("host1", "host2"):
            hosts.record(uow, self.conf, heartbeat(host))
        flavors.create(uow, objects.Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=256, root_gb=1))
        builtin_networks.create(
            uow,
            objects.Network(
                id="11111111-1111-4111-8111-111111111111",
                name="private",
                cidr="10.0.0.0/24",
                gateway="10.0.0.1",
                bridge="br0",
                start="10.0.0.2",
                end="10.0.0.254",
                is_default=True,
            ),
        )

    def context(self, request_id: str | None = None, project: str = "p1", admin: bool = False) -> RequestContext:
        self.requests += 1
        return RequestContext(
            user_id="u1",
            project_id=project,
            is_admin=admin,
            request_id=request_id or f"req-{self.requests}",
            overwrite=False,
        )

    def create(self, context: RequestContext | None = None, **changes: Any) -> list[str]:
        request = CreateRequest(**{"name": "vm", "flavor_id": "1", **changes})
        return [i.uuid for i in self.lifecycle.create_instances(context or self.context(), request).instances]

    def built(self, **changes: Any) -> tuple[str, str, int]:
        """Return uuid, host and generation of an ACTIVE instance."""
        (uuid,) = self.create(**changes)
        self.lifecycle.build_instances(self.context(), [uuid])
        host, request = self.compute.builds[-1]
        if not request.connected:
            self.reports.start_build(self.context(), uuid, host, request.generation)
        self.report(uuid, host, request.generation, BUILT)
        return uuid, host, request.generation

    def report(
        self,
        uuid: str,
        host: str,
        generation: int,
        outcome: BuildOutcome,
        message: str = "",
        blames_host: bool = True,
    ) -> None:
        commands = [item for _, item in self.compute.builds if item.instance.uuid == uuid]
        told = next((command.action_id for command in commands if command.generation == generation), 0)
        result = BuildResult(
            instance_uuid=uuid, host=host, generation=generation, outcome=outcome, power_state=1, message=message
        )
        result.blames_host = blames_host
        result.action_id = told if self.told else 0
        self.reports.finish_build(self.context(), result)

    def instance(self, uuid: str) -> objects.Instance:
        return self.db.read(lambda uow: instances.to_object(uow, instances.lock(uow, uuid)))  # type: ignore[arg-type]

    def open_actions(self) -> list[tuple[str, str]]:
        query = sa.select(models.InstanceAction).where(models.InstanceAction.finish_time.is_(None))
        return self.db.read(lambda uow: [(row.action, row.step) for row in uow.session.scalars(query)])

    def used(self) -> dict[str, int]:
        table = models.ComputeNode
        return self.db.read(lambda uow: dict(uow.session.execute(sa.select(table.host, table.vcpus_used)).all()))  # type: ignore[arg-type]

    def count(self, table: type[models.Base]) -> int:
        query = sa.select(sa.func.count()).select_from(table)
        return self.db.read(lambda uow: uow.session.execute(query).scalar_one())

    def instances_used(self, project: str = "p1") -> int:
        return self.db.read(lambda uow: quotas.get(uow, self.conf, project).quotas["instances"].used)

    def let_time_pass(self, seconds: float) -> None:
        """Make everything due that is due within ``seconds``."""
        step = datetime.timedelta(seconds=seconds)

        def shift(uow: UnitOfWork) -> None:
            for row in uow.session.scalars(sa.select(models.InstanceAction)):
                row.lease_expires_at -= step
                row.deadline -= step
            for instance in uow.session.scalars(sa.select(models.Instance)):
                if instance.network_call_until is not None:
                    instance.network_call_until -= step
            for attach in uow.session.scalars(sa.select(models.PendingAttach)):
                attach.until -= step

        self.db.write(shift)

    def is_heard(self, host: str) -> None:
        self.db.write(hosts.report_state, self.conf, heartbeat(host))

    def silence(self, host: str, seconds: float = 3600.0, up: bool = False) -> None:
        """Let the last report of a host be so old. ``up``: whether it counts as up."""

        def down(uow: UnitOfWork) -> None:
            for row in uow.session.scalars(sa.select(models.Service).where(models.Service.host == host)):
                row.up = up
                row.last_seen_up = uow.now - datetime.timedelta(seconds=seconds)

        self.db.write(down)
