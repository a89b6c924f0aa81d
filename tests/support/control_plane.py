"""Control plane in memory, for tests of the API: fake clients of conductor and hosts that keep servers and images."""

from __future__ import annotations

import atexit
import copy
import datetime
import functools
import operator
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor import database
from nova_lite.conductor.identity import IdentityEndpoints
from nova_lite.db.core import engine, quotas
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import hosts
from nova_lite.db.migrations import schema as database_schema
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors
from nova_lite.objects import (
    USAGE_SPANS,
    VIF,
    ActionCommand,
    AvailabilityZone,
    ComputeNode,
    Console,
    ConsoleTarget,
    CpuDiagnostics,
    CreateRequest,
    CreateResult,
    Diagnostics,
    DiskDiagnostics,
    Flavor,
    HostedInstance,
    Image,
    ImageQuery,
    Instance,
    InstanceAction,
    InstanceActionEvent,
    InstanceFault,
    InstanceFilters,
    InstanceUsage,
    Inventory,
    Network,
    NicDiagnostics,
    Service,
    UsageHistory,
    UsageSample,
)
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.operations import states
from nova_lite.rpc.contract import Method
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.fake_clients import FakeClient

NOW = datetime.datetime(2026, 11, 21, 8, 20, 32, 425308)
IMAGE_ID = "70a599e0-31e7-49b7-b260-868f441e862b"
NETWORK_ID = "3cb9bc59-5699-4588-a4b1-b87f96708bc6"
NODE_ID = "64e1454a-ddcc-496f-8a4b-f4177e52a16f"
SERVICE_ID = "fbcf7e64-cc4c-4bc0-b96f-0fbf89565b7e"

NETWORK = Network(
    id=NETWORK_ID,
    name="private",
    cidr="10.0.0.0/24",
    gateway="10.0.0.1",
    dns=["9.9.9.9"],
    bridge="br0",
    start="10.0.0.2",
    end="10.0.0.254",
)
FLAVOR = Flavor(id=1, flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1, extra_specs={"a": "b"})


def make_instance(**changes: Any) -> Instance:
    values: dict[str, Any] = {
        "uuid": str(uuid.uuid4()),
        "project_id": "demo",
        "user_id": "alice",
        "display_name": "vm",
        "hostname": "vm",
        "vm_state": states.ACTIVE,
        "power_state": 1,
        "host": "compute1",
        "node": "node1",
        "host_status": "UP",
        "availability_zone": "nova",
        "image_ref": IMAGE_ID,
        "flavor": FLAVOR,
        "security_groups": ["default"],
        "reservation_id": "r-abcdefgh",
        "vifs": [VIF(id=str(uuid.uuid4()), mac_address="fa:16:3e:00:00:01", address="10.0.0.5", network=NETWORK)],
        "created_at": NOW,
        "launched_at": NOW,
    }
    return Instance(**(values | changes))


@functools.cache
def schema() -> str:
    """Return the path of a database file with an empty schema."""
    directory = tempfile.mkdtemp(prefix="nova-lite-schema-")
    atexit.register(shutil.rmtree, directory)
    database_schema.sync(make.conf(f"sqlite:///{directory}/db.sqlite"))
    return f"{directory}/db.sqlite"


#: Methods of the conductor that change nothing here. Their calls are recorded.
RECORDED = ("attachment_update", "interfaces_event", "aggregate_cache_images", "service_delete", "build_instances")


class FakeConductor(FakeClient, protocol=ConductorRPC):
    """Conductor for tests of the API.

    Tests set instances, images, and hosts. A real conductor, with a database of its own, answers all methods that are
    not scripted here: flavors, key pairs, quotas, aggregates, server groups, and networks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[str, Instance] = {}
        self.images = {
            IMAGE_ID: Image(
                id=IMAGE_ID, name="cirros", size=100, min_ram=1, properties={"k": "v"}, created_at=NOW, updated_at=NOW
            )
        }
        self.actions: dict[str, list[InstanceAction]] = {}
        self.usages: list[InstanceUsage] = []
        self.service = Service(
            id=3,
            uuid=SERVICE_ID,
            host="compute1",
            binary="nova-compute",
            topic="compute",
            up=True,
            availability_zone="nova",
            last_seen_up=NOW,
        )
        self.node = ComputeNode(
            id=7,
            uuid=NODE_ID,
            host="compute1",
            node="node1",
            service=self.service,
            inventory=Inventory(
                node="node1",
                vcpus=4,
                memory_mb=8192,
                disk_gb=100,
                hypervisor_type="QEMU",
                hypervisor_version=7002000,
                host_ip="127.0.0.1",
                cpu_info={"arch": "x86_64"},
                disk_available_least=90,
                uptime=" 10:00:00 up 1 day",
            ),
            vcpus_used=1,
            memory_mb_used=512,
            disk_gb_used=1,
            running_vms=1,
        )
        self.tokens: dict[str, ConsoleTarget] = {}
        #: The servers that have volumes of Cinder, by the volumes' ids.
        self.volume_servers: dict[str, str] = {}
        for name in RECORDED:
            self.script(name, None)

    def console_token_create(
        self, context: RequestContext, instance_uuid: str, compute_host: str, token_hash: str, console: Console
    ) -> None:
        target = ConsoleTarget(instance_uuid=instance_uuid, compute_host=compute_host, console=console)
        self.tokens[token_hash] = target

    def console_token_get(self, context: RequestContext, token_hash: str) -> ConsoleTarget:
        if token_hash not in self.tokens:
            raise exceptions.ConsoleTokenNotFound()
        return self.tokens[token_hash]

    def add(self, **changes: Any) -> Instance:
        instance = make_instance(**changes)
        self.instances[instance.uuid] = instance
        return instance

    def unscripted(self, method: Method, values: Mapping[str, Any]) -> Any:
        return getattr(self._real, method.name)(**values)

    @functools.cached_property
    def db(self) -> Database:
        """Database of the methods without a script."""
        self._directory = tempfile.TemporaryDirectory(prefix="nova-lite-api-")
        path = shutil.copy(schema(), self._directory.name)
        return Database(make.conf(f"sqlite:///{path}", self._directory.name))

    @functools.cached_property
    def _real(self) -> ConductorRPC:
        db, conf = self.db, self.db.conf
        db.write(flavors.create, FLAVOR)
        db.write(builtin_networks.create, NETWORK)
        db.write(hosts.record, conf, make.report("h1"))
        db.write(quotas.take, conf, "demo", {"cores": 2, "ram": 1024})
        bus = rpc.InProcess(conf)
        targets = database.functions(db, conf), IdentityEndpoints(db)
        bus.serve(rpc.Endpoint(ConductorRPC, *targets, partial=True, translate=engine.translate))
        return rpc.proxy(ConductorRPC, bus)

    # --- servers

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        made = [
            self.add(
                display_name=request.name,
                display_description=request.description,
                project_id=context.project_id,
                user_id=context.user_id,
                vm_state=states.BUILDING,
                host=None,
                vifs=[],
            )
            for _ in range(request.max_count)
        ]
        return CreateResult(reservation_id="r-abcdefgh", instances=made)

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        return self._command(context, instance_uuid, action, payload)

    def _command(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        instance = self._get(context, instance_uuid)
        steps = [step for step in operations.get(action, payload).steps if isinstance(step, operations.HostStep)]
        return ActionCommand(
            action_id=1,
            action=action,
            method=steps[-1].method if steps else "",
            instance=instance,
            generation=1,
            host=instance.host,
            request_id=context.request_id,
            payload=payload,
        )

    def accept_volume_snapshot(
        self, context: RequestContext, volume_id: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        if volume_id not in self.volume_servers:
            raise exceptions.InvalidVolume(reason=f"no server on a host has volume {volume_id}")
        return self._command(context, self.volume_servers[volume_id], action, {**payload, "volume_id": volume_id})

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        return self._get(context, instance_uuid)

    def _get(self, context: RequestContext, instance_uuid: str, deleted: bool = False) -> Instance:
        instance = self.instances.get(instance_uuid)
        if (
            instance is None
            or (instance.deleted and not deleted)
            or not (context.is_admin or instance.project_id == context.project_id)
        ):
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        return instance

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]:
        instances = [
            item
            for item in self.instances.values()
            if filters.project_id in (None, item.project_id)
            and (filters.deleted or not item.deleted)
            and (filters.uuids is None or item.uuid in filters.uuids)
        ]
        if marker is not None:
            ids = [item.uuid for item in instances]
            if marker not in ids:
                raise exceptions.MarkerNotFound(marker=marker)
            instances = instances[ids.index(marker) + 1 :]
        return instances[:limit]

    def hosted_instance_list(self, context: RequestContext, hosts: list[str]) -> list[HostedInstance]:
        return [
            HostedInstance(uuid=item.uuid, host=item.host, node=item.node or "")
            for item in self.instances.values()
            if item.host in hosts and not item.deleted
        ]

    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        instance = self._get(context, instance_uuid)
        for name, value in changes.items():
            setattr(instance, name, value)
        return instance

    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        instance = self._get(context, instance_uuid)
        instance.metadata = metadata if replace else {**instance.metadata, **metadata}
        return instance.metadata

    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None:
        if self._get(context, instance_uuid).metadata.pop(key, None) is None:
            raise exceptions.MetadataItemNotFound()

    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        self._get(context, instance_uuid).tags = sorted(set(tags))
        return sorted(set(tags))

    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        tags = self._get(context, instance_uuid).tags
        if tag in tags:
            return False
        tags.append(tag)
        return True

    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None:
        tags = self._get(context, instance_uuid).tags
        if tag not in tags:
            raise exceptions.TagNotFound(instance_id=instance_uuid, tag=tag)
        tags.remove(tag)

    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        self._get(context, instance_uuid).system_metadata = {}

    def instance_password_set(self, context: RequestContext, instance_uuid: str, password: str) -> None:
        metadata = self._get(context, instance_uuid).system_metadata
        if POSTED_PASSWORD in metadata:
            raise exceptions.PasswordAlreadySet(instance_id=instance_uuid)
        metadata[POSTED_PASSWORD] = password

    def instances_at_address(
        self, context: RequestContext, address: str, network_id: str | None = None
    ) -> list[Instance]:
        alive = [instance for instance in self.instances.values() if not instance.deleted]
        return [copy.deepcopy(instance) for instance in alive if _has(instance, address, network_id)]

    def metadata_instances(
        self,
        context: RequestContext,
        host: str,
        address: str | None,
        instance_uuid: str | None,
        network_id: str | None = None,
    ) -> list[Instance]:
        here = [item for item in self.instances.values() if item.host == host and not item.deleted]
        return [
            copy.deepcopy(item)
            for item in here
            if item.uuid == instance_uuid or (address is not None and _has(item, address, network_id))
        ]

    def metadata_password_set(self, context: RequestContext, host: str, instance_uuid: str, password: str) -> None:
        instance = self.instances[instance_uuid]
        if instance.host != host:
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        instance.system_metadata[POSTED_PASSWORD] = password

    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None:
        self._get(context, instance_uuid).locked = True

    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        self._get(context, instance_uuid).locked = False

    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        self._get(context, instance_uuid).vm_state = vm_state

    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        self._get(context, instance_uuid, deleted=True)
        return self.actions.get(instance_uuid, [])

    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        self._get(context, instance_uuid, deleted=True)
        for action in self.actions.get(instance_uuid, []):
            if action.request_id == request_id:
                return action
        raise exceptions.InstanceActionNotFound(request_id=request_id, instance_id=instance_uuid)

    # --- catalogue

    def image_list(self, context: RequestContext, query: ImageQuery) -> list[Image]:
        """Return a page of all images. The API applies the filters that are no columns; here it applies all."""
        found = list(self.images.values())
        for key, direction in reversed(list(zip(query.sort_keys, query.sort_dirs, strict=True))):
            found.sort(key=operator.attrgetter(key), reverse=direction == "desc")
        ids = [image.id for image in found]
        if query.marker is not None and query.marker not in ids:
            raise exceptions.MarkerNotFound(marker=query.marker)
        start = 0 if query.marker is None else ids.index(query.marker) + 1
        return found[start : None if query.limit is None else start + query.limit]

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        if image_id not in self.images:
            raise exceptions.ImageNotFound(image_id=image_id)
        return self.images[image_id]

    def image_create(self, context: RequestContext, image: Image) -> Image:
        if image.id in self.images:
            raise exceptions.ImageExists(image_id=image.id)
        self.images[image.id] = msgspec.structs.replace(image, created_at=NOW)
        return self.images[image.id]

    def image_update(
        self,
        context: RequestContext,
        image_id: str,
        changes: dict[str, Any],
        expected_status: str | None,
        tags: dict[str, bool] | None = None,
    ) -> Image:
        if image_id not in self.images:
            raise exceptions.ImageNotFound(image_id=image_id)
        image = self.images[image_id]
        if expected_status not in (None, image.status):
            raise exceptions.ImageStatusConflict(image_id=image_id, status=image.status, expected=expected_status)
        own = {**image.properties, **changes.get("properties", {})}
        properties = {name: value for name, value in own.items() if value is not None}
        if tags:
            known = dict.fromkeys(image.tags, True) | tags
            changes = {**changes, "tags": [tag for tag, is_wanted in known.items() if is_wanted]}
        self.images[image_id] = msgspec.structs.replace(image, **{**changes, "properties": properties})
        return self.images[image_id]

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        if self.images.pop(image_id, None) is None:
            raise exceptions.ImageNotFound(image_id=image_id)

    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        return [usage for usage in self.usages if project_id in (None, usage.project_id)][:limit]

    # --- hosts

    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        return [
            AvailabilityZone(name="internal", available=True),
            AvailabilityZone(name="nova", available=True, hosts={"compute1": [self.service]}),
        ]

    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]:
        return [self.service] if host in (None, self.service.host) else []

    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        for name, value in changes.items():
            setattr(self.service, name, value)
        return self.service

    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        return [self.node] if (hostname_pattern or "") in self.node.node else []

    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        if node_id not in (str(self.node.id), self.node.uuid):
            raise exceptions.ComputeNodeNotFound(node_id=node_id)
        return self.node


class FakeCompute(FakeClient, protocol=ComputeRPC):
    """Compute hosts for tests of the API."""

    def __init__(self) -> None:
        super().__init__()
        self.output = "login: "
        self.diagnostics = Diagnostics(
            driver="libvirt",
            hypervisor="kvm",
            hypervisor_os="linux",
            config_drive=True,
            cpus=[CpuDiagnostics(id=0, time=17300000000)],
            nics=[NicDiagnostics(name="tap1", mac_address="fa:16:3e:00:00:01", rx_octets=2070139, tx_packets=662)],
            disks=[DiskDiagnostics(name="vda", read_bytes=262144, read_requests=112, write_bytes=0, write_requests=0)],
            memory_maximum=512,
            memory_used=256,
        )

    def get_console_output(self, context: RequestContext, host: str, instance_uuid: str, length: int | None) -> str:
        return self.output

    def get_vnc_console(self, context: RequestContext, host: str, instance_uuid: str, console_type: str) -> Console:
        base = "http://proxy:6080/vnc_auto.html"
        return Console(console_type=console_type, host="192.0.2.1", port=5907, access_url_base=base)

    def get_serial_console(self, context: RequestContext, host: str, instance_uuid: str, console_type: str) -> Console:
        base = "ws://proxy:6083/"
        return Console(console_type=console_type, host="192.0.2.1", port=10000, access_url_base=base)

    def get_spice_console(self, context: RequestContext, host: str, instance_uuid: str, console_type: str) -> Console:
        base = "http://proxy:6082/spice_auto.html"
        return Console(console_type=console_type, host="192.0.2.1", port=0, access_url_base=base, tls_port=5908)

    def get_instance_diagnostics(self, context: RequestContext, host: str, instance_uuid: str) -> Diagnostics:
        return self.diagnostics

    def get_usage_history(
        self, context: RequestContext, host: str, instance_uuid: str | None, span: str
    ) -> UsageHistory:
        step, count = USAGE_SPANS[span]
        used = UsageSample(cpu=0.12345 if instance_uuid else 3.0, memory_mb=100.4, disk_read_rate=5.0, rx_rate=0.0)
        return UsageHistory(start=1_800_000_000, step=step, samples=[None] * (count - 1) + [used])


def make_action(**changes: Any) -> InstanceAction:
    values: dict[str, Any] = {
        "id": 1,
        "action": "create",
        "instance_uuid": "x",
        "request_id": "req-1",
        "user_id": "alice",
        "project_id": "demo",
        "start_time": NOW,
        "updated_at": NOW,
        "events": [
            InstanceActionEvent(
                event="compute__do_build_and_run_instance",
                start_time=NOW,
                finish_time=NOW,
                result="Error",
                traceback="Traceback ...",
                host="compute1",
                details="disk full",
            )
        ],
    }
    return InstanceAction(**(values | changes))


def make_fault() -> InstanceFault:
    return InstanceFault(code=500, message="No valid host was found.", details="who knows", created_at=NOW)


def _has(instance: Instance, address: str, network_id: str | None) -> bool:
    return any(vif.address == address and network_id in (None, vif.network.id) for vif in instance.vifs)
