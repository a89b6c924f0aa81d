"""Programs that run load balancers: HAProxy in namespaces, or none for the fake hypervisor."""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files, sealing, trees
from nova_lite.compute.load_balancer import namespaces, processes
from nova_lite.compute.load_balancer.processes import Process
from nova_lite.load_balancer import haproxy
from nova_lite.load_balancer.objects import Assignment, Counters, HostReport, Report
from nova_lite.objects import VIF, Flavor, Instance
from nova_lite.operations import states
from nova_lite.virt import abilities
from nova_lite.virt.driver import ComputeDriver, instances_path

LOG = logging.getLogger(__name__)

#: File of a `Kept`.
STATE = "state.json"


class Backend(abc.ABC):
    """The load balancers of a host, as they are."""

    @abc.abstractmethod
    def report(self) -> HostReport:
        """Return the state of all load balancers."""

    @abc.abstractmethod
    def ports(self) -> list[str]:
        """Return the ports whose addresses this host may have, also those from before a restart of the daemon."""

    @abc.abstractmethod
    def apply(self, assignments: Sequence[Assignment], until: float) -> None:
        """Run these load balancers, and no others. ``until``: monotonic time at which their addresses end.

        A load balancer that cannot be run has its problem in the next report.
        """


class FakeBalancer(msgspec.Struct, kw_only=True):
    """Load balancer of a fake host. ``until``: the monotonic time at which its address ends; 0: it is the stand-by."""

    id: str
    port_id: str
    version: int
    until: float = 0.0


class FakeBackend(Backend):
    """Runs nothing, and reports that it does. The file at ``path`` outlives the daemon, as processes of HAProxy do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._balancers: list[FakeBalancer] = []
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            self._balancers = msgspec.json.decode(file.read(), type=list[FakeBalancer])

    def report(self) -> HostReport:
        return HostReport(
            balancers=[Report(id=one.id, version=one.version, holds=one.until > 0) for one in self._balancers]
        )

    def ports(self) -> list[str]:
        return [one.port_id for one in self._balancers if one.until]

    def apply(self, assignments: Sequence[Assignment], until: float) -> None:
        self._balancers = [
            FakeBalancer(
                id=item.balancer.id,
                port_id=item.vif.id,
                version=item.balancer.version,
                until=until if item.active else 0.0,
            )
            for item in assignments
        ]
        files.write_atomically(self._path, msgspec.json.encode(self._balancers), durable=False)


class Kept(msgspec.Struct, kw_only=True):
    """State of a load balancer on this host, in a file of its directory. ``active``: it may have the interface.

    ``counters``: of former processes, which a new one does not know.
    """

    id: str
    vif: VIF
    version: int = 0
    active: bool = False
    problem: str = ""
    counters: dict[str, Counters] = msgspec.field(default_factory=dict)


class HAProxyBackend(Backend):
    """Runs HAProxy in namespaces. ``directory``: of this host, with one directory for each load balancer."""

    def __init__(self, directory: str, user: str, networks: abilities.Networks) -> None:
        self._directory = files.private_directory(directory)
        self._user = user
        self._private_key = sealing.new_private_key()
        self._public_key = sealing.public_key(self._private_key)
        self._networks = networks
        self._kept: dict[str, Kept] = {}
        for name in os.listdir(directory):
            path = os.path.join(directory, name, STATE)
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                self._kept[name] = msgspec.json.decode(file.read(), type=Kept)

    def report(self) -> HostReport:
        balancers = [self._report(kept) for _, kept in sorted(self._kept.items())]
        return HostReport(public_key=self._public_key, problem=processes.problem(), balancers=balancers)

    def _report(self, kept: Kept) -> Report:
        made = Report(id=kept.id, version=kept.version, holds=kept.active, problem=kept.problem)
        process = self._process(kept.id)
        if process.pid() is not None:
            try:
                counters, made.members = haproxy.statistics(process.ask("show stat"))
                made.counters = _sum(kept.counters, counters)
            except exceptions.VirtDriverError as error:
                LOG.warning("Load balancer %s has no statistics: %s", kept.id, error.message)
        return made

    def ports(self) -> list[str]:
        return [kept.vif.id for kept in self._kept.values() if kept.active]

    def apply(self, assignments: Sequence[Assignment], until: float) -> None:
        wanted = {item.balancer.id: item for item in assignments}
        for balancer_id, kept in list(self._kept.items()):
            if balancer_id not in wanted:
                self._try(kept, lambda kept=kept: self._remove(kept))  # type: ignore[misc]
        for item in assignments:
            kept = self._kept.setdefault(item.balancer.id, Kept(id=item.balancer.id, vif=item.vif))
            self._try(kept, lambda kept=kept, item=item: self._run(kept, item, until))  # type: ignore[misc]

    def _try(self, kept: Kept, change: Callable[[], None]) -> None:
        """Make a change, and note why it fails. It keeps no other load balancer from its own."""
        try:
            change()
        except (exceptions.NovaLiteException, OSError, ValueError) as error:
            kept.problem = str(error)
            LOG.error("Load balancer %s: %s", kept.id, kept.problem)

    def _run(self, kept: Kept, item: Assignment, until: float) -> None:
        # First: once the version is reported, the certificates are sent no more.
        for box in item.certificates.values():
            texts = msgspec.json.decode(sealing.unseal(self._private_key, box), type=list[str])
            self._process(kept.id).add_certificates(texts)
        kept.vif, kept.version = item.vif, item.balancer.version
        namespaces.make(kept.id)
        if item.active:
            self._activate(kept, item, until)
        elif kept.active:
            self._deactivate(kept)
        kept.problem = ""
        self._store(kept)

    def _activate(self, kept: Kept, item: Assignment, until: float) -> None:
        process = self._process(kept.id)
        if not kept.active or not namespaces.is_connected(item.vif):
            kept.active = True
            self._store(kept)  # first: whatever follows has to be undone
            self._networks.plug(_as_instance(item), [item.vif])
        if haproxy.is_needed(item.balancer):
            text = haproxy.configuration(item.balancer, item.vif.address, process.place)
            if process.needs(text):
                process.check(text)
                self._keep_counters(kept, process)
                process.start()
            process.remove_certificates(haproxy.certificates(item.balancer))
        else:
            process.stop()
        if (seconds := int(until - time.monotonic())) > 0:
            namespaces.connect(kept.id, item.vif, seconds)

    def _keep_counters(self, kept: Kept, process: Process) -> None:
        """Add the counters of a process that is about to be replaced. Its last connections are not counted."""
        if process.pid() is not None:
            ended, _ = haproxy.statistics(process.ask("show stat"))
            kept.counters = _sum(kept.counters, {key: _ended(one) for key, one in ended.items()})

    def _deactivate(self, kept: Kept) -> None:
        """Release the address, then end the connections."""
        namespaces.disconnect(kept.vif)
        self._process(kept.id).stop()
        self._networks.unplug(kept.vif.id)
        kept.active = False

    def _remove(self, kept: Kept) -> None:
        self._deactivate(kept)
        namespaces.remove(kept.id)
        trees.discard(os.path.join(self._directory, kept.id))
        del self._kept[kept.id]

    def _process(self, balancer_id: str) -> Process:
        return Process(balancer_id, os.path.join(self._directory, balancer_id), self._user)

    def _store(self, kept: Kept) -> None:
        directory = files.private_directory(os.path.join(self._directory, kept.id))
        files.write_atomically(os.path.join(directory, STATE), msgspec.json.encode(kept))


def _as_instance(item: Assignment) -> Instance:
    """Return what the host's networks know the interface of a load balancer by: its port."""
    name = f"lb-{item.balancer.id}"
    return Instance(
        uuid=item.vif.id,
        project_id=item.balancer.project_id,
        user_id="",
        display_name=name,
        hostname=name,
        vm_state=states.ACTIVE,
        flavor=Flavor(flavorid="", name=name, vcpus=0, memory_mb=0, root_gb=0),
    )


def _sum(former: Mapping[str, Counters], now: Mapping[str, Counters]) -> dict[str, Counters]:
    """Return the counters of listeners, with those of former processes."""
    none = Counters()
    return {key: former.get(key, none) + now.get(key, none) for key in former.keys() | now.keys()}


def _ended(counters: Counters) -> Counters:
    """Return the counters of a process that ends with its connections."""
    return msgspec.structs.replace(counters, active_connections=0)


def load_backend(conf: cfg.ConfigOpts, host: str, driver: ComputeDriver) -> Backend:
    if conf.compute_driver in ("fake", "fake-rules"):
        directory = files.private_directory(os.path.join(instances_path(conf), f"fake-{os.path.basename(host)}"))
        return FakeBackend(os.path.join(directory, "load-balancers.json"))
    directory = os.path.join(conf.state_path, "load_balancers", host)
    return HAProxyBackend(directory, conf.load_balancer.user, driver.networks)
