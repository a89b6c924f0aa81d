"""A compute host in one process, without broker and database: real manager, fake hypervisor, scripted conductor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute import manager
from nova_lite.image import local
from nova_lite.objects import (
    VIF,
    ActionCommand,
    ActionReport,
    BuildNetworks,
    BuildRequest,
    BuildResult,
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    Flavor,
    GuestDevices,
    HostReport,
    Image,
    Instance,
    Network,
    ReportNumber,
    SettledRecords,
    StorageReport,
    VolumeVerb,
)
from nova_lite.operations.states import PowerState
from nova_lite.virt import fake, fake_hypervisor

UUID = "11111111-1111-4111-8111-111111111111"
HOST = "host-a"
METHODS = {
    "createImage": "snapshot_instance",
    "shelveOffload": "shelve_offload_instance",
    "delete": "terminate_instance",
    "evacuate": "stop_instance",
}
CREATE, LATER = 10, 20
#: Pauses of whole seconds would slow the tests down.
TIMING = ComputeTiming(snapshot_slot_poll=0.01, plugging_poll=0.01)
DEADLINE = 60.0

NETWORK = Network(id="net", name="private", cidr="10.0.0.0/24")
VIFS = [VIF(id="port", mac_address="52:54:00:00:00:01", address="10.0.0.5", network=NETWORK)]


def make_conf(path: Path, **compute: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], project="nova-lite", default_config_files=[])
    conf.set_override("state_path", str(path))
    conf.set_override("reserved_host_memory_mb", 0)
    for name, value in compute.items():
        conf.set_override(name, value, group="compute")
    return conf


def make_instance(uuid: str = UUID, **values: Any) -> Instance:
    flavor = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
    fields = {"project_id": "p", "user_id": "u", "display_name": "one", "hostname": "one", "vm_state": "building"}
    return Instance(uuid=uuid, **{"flavor": flavor, **fields, **values})


def build_request(generation: int = 1, uuid: str = UUID, **values: Any) -> BuildRequest:
    fields = {"action_id": CREATE, "request_id": "req-create", "instance": make_instance(uuid)}
    return BuildRequest(generation=generation, **{**fields, **values})


def command(action: str, action_id: int = LATER, generation: int = 1, uuid: str = UUID, **values: Any) -> ActionCommand:
    fields = {"host": HOST, "request_id": f"req-{action}", "instance": make_instance(uuid, vifs=VIFS)}
    return ActionCommand(action=action, action_id=action_id, generation=generation, **{**fields, **values})


class FakeConductor:
    """Conductor with the signatures of `ConductorRPC` for the calls of a compute host.

    ``errors``: by method, errors that its next calls raise. ``hooks``: by method, functions that are called first, with
    the arguments. ``down``: every call raises `ServiceUnavailable`.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.errors: dict[str, list[Exception]] = {}
        self.hooks: dict[str, Callable[[Any], None]] = {}
        self.verdicts: list[DomainVerdict] = []
        self.expected: list[ExpectedDomain] = []
        #: Numbers of the answered comparisons.
        self.comparisons: list[ReportNumber | None] = []
        self.agreed: set[str] = set()
        self.shares: list[str] = []
        self.down = False
        self.epoch = 3
        self.is_current = True
        self.may_run = True
        self.open_requests: set[str] = set()
        self.ended_volume_work: set[tuple[int, str]] = set()
        #: Volumes, snapshots and backups that were deleted while hosts made their data.
        self.unneeded: set[str] = set()
        self.settled = SettledRecords()
        self.images: dict[str, Image] = {}
        self.answers: list[dict[str, Any] | None] = []
        self.vifs = VIFS
        #: Number of the query at which the interfaces become active; None: never.
        self.connected: int | None = None

    def register_host(self, context: RequestContext, report: HostReport) -> int:
        self._called("register_host", report)
        return self.epoch

    def report_state(self, context: RequestContext, report: HostReport, timeout: float | None = None) -> bool | None:
        self._called("report_state", report)
        if report.epoch != self.epoch:
            raise exceptions.HostEpochOver(host=report.host)
        return None if report.domains is None else report.domains in self.agreed

    def report_storage(self, context: RequestContext, report: StorageReport) -> list[str]:
        self._called("report_storage", report)
        return self.shares

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        self._called("start_build", (instance_uuid, host, generation))
        return BuildNetworks(vifs=self.vifs)

    def report_guest_devices(
        self, context: RequestContext, instance_uuid: str, host: str, generation: int, devices: GuestDevices
    ) -> None:
        self._called("report_guest_devices", (instance_uuid, host, generation, devices))

    def cpu_baseline_get(self, context: RequestContext, host: str) -> str:
        self._called("cpu_baseline_get", host)
        return ""

    def site_right_get(self, context: RequestContext, host: str, instance_uuid: str) -> bool:
        self._called("site_right_get", instance_uuid)
        return self.may_run

    def interfaces_active(self, context: RequestContext, instance_uuid: str, host: str, refresh: bool) -> bool:
        self._called("interfaces_active", refresh)
        return self.connected is not None and self.connected <= len(self.of("interfaces_active"))

    def interfaces_bind(self, context: RequestContext, instance_uuid: str, host: str) -> BuildNetworks:
        self._called("interfaces_bind", (instance_uuid, host))
        return BuildNetworks(vifs=self.vifs)

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        self._called("finish_build", result)

    def finish_action(self, context: RequestContext, report: ActionReport) -> None:
        self.answers.append(report.answer)
        self._called("finish_action", (report.action_id, report.power_state, report.error))

    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        self._called("report_task", (action_id, task_state))
        return self.is_current

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        if image_id not in self.images:
            raise exceptions.ImageNotFound(image_id=image_id)
        return self.images[image_id]

    def image_update(
        self,
        context: RequestContext,
        image_id: str,
        changes: dict[str, Any],
        expected_status: str | None,
        tags: dict[str, bool] | None = None,
    ) -> Image:
        self._called("image_update", (image_id, changes))
        self.images[image_id] = msgspec.structs.replace(self.image_get(context, image_id), **changes)
        return self.images[image_id]

    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: int) -> bool:
        self._called("is_command_current", (host, action_id, sequence))
        return self.is_current

    def is_command_open(
        self, context: RequestContext, host: str, action_id: int, sequence: int | None, request_id: str
    ) -> bool:
        self._called("is_command_open", (action_id, sequence, request_id))
        return request_id in self.open_requests

    def is_volume_work_open(self, context: RequestContext, host: str, task_id: int, volume_id: str) -> bool:
        return (task_id, volume_id) not in self.ended_volume_work

    def is_volume_data_needed(self, context: RequestContext, host: str, verb: VolumeVerb, made_id: str) -> bool:
        return made_id not in self.unneeded

    def fencing_records_settled(self, context: RequestContext, host: str, instance_uuids: list[str]) -> SettledRecords:
        self._called("fencing_records_settled", instance_uuids)
        return self.settled

    def reconcile_domains(
        self,
        context: RequestContext,
        host: str,
        domains: list[DomainReport],
        leftovers: list[str],
        number: ReportNumber | None = None,
    ) -> list[DomainVerdict]:
        self._called("reconcile_domains", (domains, leftovers))
        self.comparisons.append(number)
        return self.verdicts

    def domains_expected(self, context: RequestContext, host: str) -> list[ExpectedDomain]:
        self._called("domains_expected", host)
        return self.expected

    def domain_lost(self, context: RequestContext, host: str, expected: ExpectedDomain) -> None:
        self._called("domain_lost", expected)

    def _called(self, method: str, arguments: Any) -> None:
        if method in self.hooks:
            self.hooks[method](arguments)
        if self.down:
            raise exceptions.MessagingUnavailable(what=method)
        if self.errors.get(method):
            raise self.errors[method].pop(0)
        self.calls.append((method, arguments))

    def of(self, method: str) -> list[Any]:
        """Return the arguments of all answered calls of a method."""
        return [arguments for name, arguments in self.calls if name == method]

    @property
    def outcomes(self) -> list[tuple[int, str]]:
        return [(result.generation, str(result.outcome)) for result in self.of("finish_build")]


class HookedDriver(fake.FakeDriver):
    """The fake driver. ``hooks``: functions to call at a step."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hooks: dict[str, Callable[[], None]] = {}
        self.steps: list[str] = []
        step = self.hypervisor.step

        def hooked(name: str, *arguments: Any) -> fake_hypervisor.Control:
            self.steps.append(name)
            if name in self.hooks:
                self.hooks[name]()
            return step(name, *arguments)

        self.hypervisor.step = hooked  # type: ignore[method-assign]


class Gate:
    """A hook that blocks until it is opened. If it is never opened, it acts as a daemon that was killed at this
    point."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, *_: Any) -> None:
        self.reached.set()
        self._open.wait()

    def wait(self) -> None:
        assert self.reached.wait(DEADLINE), "no thread reached the gate"

    def open(self) -> None:
        self._open.set()


class Host:
    """A run of a compute daemon on ``path``. `next_life` is the run after a kill."""

    def __init__(
        self,
        path: Path,
        conductor: FakeConductor | None = None,
        name: str = HOST,
        timing: ComputeTiming = TIMING,
        **compute: Any,
    ) -> None:
        self.path = path
        self.timing = timing
        self.name = name
        self.compute = compute
        self.conf = make_conf(path, **compute)
        self.conductor = conductor or FakeConductor()
        self.driver = HookedDriver(self.conf, name, self._fetch_image)
        self.images = local.LocalImages(self.conf, self.conductor)  # type: ignore[arg-type]
        self.manager = manager.ComputeManager(
            self.conf,
            name,
            self.driver,
            self.conductor,
            self.images,
            timing=timing,  # type: ignore[arg-type]
        )
        # Pauses of whole seconds would slow the tests down.
        self.manager.host.retrier._interval = 0.02
        self.context = get_admin_context()
        self.manager.connect()

    def _fetch_image(self, image: Image, target: str) -> None:
        local.copy(image, str(self.path / "images" / image.id), target)

    def next_life(self) -> Host:
        return Host(self.path, self.conductor, self.name, self.timing, **self.compute)

    def control(self, **values: Any) -> None:
        fake_hypervisor.write_control(self.conf, self.name, **values)

    def build(self, generation: int = 1, **values: Any) -> None:
        self.manager.build_and_run_instance(self.context, build_request(generation, **values))

    def act(self, command: ActionCommand) -> None:
        self.manager.commands[METHODS.get(command.action, f"{command.action}_instance")](self.context, command)

    def settle(self) -> None:
        assert self.manager.jobs.wait_idle(DEADLINE), "jobs do not end"

    def built(self, generation: int = 1, **values: Any) -> Host:
        """Build and wait. Fail unless the instance exists then."""
        self.build(generation, **values)
        self.settle()
        assert self.domains() == {UUID: generation}
        return self

    def domains(self) -> dict[str, int]:
        """Return the generation by uuid, from the hypervisor's own files."""
        files = (self.path / "instances" / f"fake-{self.name}" / "domains").glob("*.json")
        found = [msgspec.json.decode(file.read_bytes(), type=fake_hypervisor.Domain) for file in files]
        return {domain.uuid: domain.generation for domain in found}

    def power(self, uuid: str = UUID) -> int:
        return int(self.driver.guests.get(uuid).power_state)

    def crash(self, uuid: str = UUID) -> None:
        """Let the guest's process end."""
        domain = self.driver.hypervisor.read(uuid)
        domain.power_state = PowerState.CRASHED
        self.driver.hypervisor.write(domain)

    def fence(self, generation: int = 1) -> bool:
        return self.manager.fence_instance(self.context, UUID, generation)

    def record(self) -> Any:
        return self.manager.host.fencing.get(UUID)

    def traces(self) -> list[str]:
        """Return every file of an instance on the hypervisor, and its claim."""
        root = self.path / "instances" / f"fake-{self.name}"
        found = [
            str(path.relative_to(root))
            for kind in ("domains", "disks", "vifs", "aside")
            for path in (root / kind).iterdir()
        ]
        used = self.manager.host.claims.used()
        return found + ([f"claim {used}"] if any((used.vcpus, used.memory_mb, used.disk_gb)) else [])
