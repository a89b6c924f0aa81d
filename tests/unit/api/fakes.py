"""Control plane in memory: the RPC clients' methods, without a bus."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import msgspec

from nova_lite import exception, states
from nova_lite.context import RequestContext
from nova_lite.objects import (
    VIF,
    ActionTicket,
    Aggregate,
    AvailabilityZone,
    ComputeNode,
    CpuDiagnostics,
    CreateRequest,
    CreateResult,
    Diagnostics,
    DiskDiagnostics,
    Fault,
    Flavor,
    Image,
    Instance,
    InstanceAction,
    InstanceActionEvent,
    InstanceFilters,
    InstanceUsage,
    Inventory,
    KeyPair,
    Limits,
    Network,
    NicDiagnostics,
    QuotaUsage,
    ServerGroup,
    Service,
)

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


class FakeConductor:
    """`nova_lite.conductor.rpcapi.ConductorRPC`, as far as the API calls it; keeps what it was asked in ``asked``."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.flavors = {"1": FLAVOR}
        self.keypairs: dict[tuple[str, str], KeyPair] = {}
        self.images = {
            IMAGE_ID: Image(
                id=IMAGE_ID, name="cirros", size=100, min_ram=1, properties={"k": "v"}, created_at=NOW, updated_at=NOW
            )
        }
        self.actions: dict[str, list[InstanceAction]] = {}
        self.access: list[str] = []
        self.limits: dict[str, int] = {}
        self.usages: list[InstanceUsage] = []
        self.aggregates: dict[str, Aggregate] = {}
        self.groups: dict[str, ServerGroup] = {}
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
        self.asked: list[tuple[str, Any]] = []
        self.contexts: list[RequestContext] = []
        self.error: Exception | None = None
        self.cast_error: Exception | None = None

    def add(self, **changes: Any) -> Instance:
        instance = make_instance(**changes)
        self.instances[instance.uuid] = instance
        return instance

    def _note(self, context: RequestContext, method: str, *arguments: Any) -> None:
        self.contexts.append(context)
        self.asked.append((method, arguments))
        if self.error is not None:
            raise self.error

    # --- servers

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        self._note(context, "create_instances", request)
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

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        self.asked.append(("build_instances", (instance_uuids,)))
        if self.cast_error is not None:
            raise self.cast_error

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionTicket:
        self._note(context, "accept_action", instance_uuid, action, payload)
        instance = self._get(context, instance_uuid)
        return ActionTicket(
            action_id=1,
            action=action,
            instance=instance,
            generation=1,
            host=instance.host,
            request_id=context.request_id,
            payload=payload,
        )

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        self._note(context, "instance_get", instance_uuid)
        return self._get(context, instance_uuid)

    def _get(self, context: RequestContext, instance_uuid: str, deleted: bool = False) -> Instance:
        instance = self.instances.get(instance_uuid)
        if (
            instance is None
            or (instance.deleted and not deleted)
            or not (context.is_admin or instance.project_id == context.project_id)
        ):
            raise exception.InstanceNotFound(instance_id=instance_uuid)
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
        self._note(context, "instance_list", filters, limit, marker, sort_keys, sort_dirs)
        found = [
            item
            for item in self.instances.values()
            if filters.project_id in (None, item.project_id)
            and (filters.deleted or not item.deleted)
            and (filters.uuids is None or item.uuid in filters.uuids)
        ]
        if marker is not None:
            ids = [item.uuid for item in found]
            if marker not in ids:
                raise exception.MarkerNotFound(marker=marker)
            found = found[ids.index(marker) + 1 :]
        return found[:limit]

    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        self._note(context, "instance_update", instance_uuid, changes)
        instance = self._get(context, instance_uuid)
        for name, value in changes.items():
            setattr(instance, name, value)
        return instance

    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        self._note(context, "instance_metadata_change", instance_uuid, metadata, replace)
        instance = self._get(context, instance_uuid)
        instance.metadata = metadata if replace else {**instance.metadata, **metadata}
        return instance.metadata

    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None:
        self._note(context, "instance_metadata_delete", instance_uuid, key)
        if self._get(context, instance_uuid).metadata.pop(key, None) is None:
            raise exception.MetadataItemNotFound()

    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        self._note(context, "instance_tags_replace", instance_uuid, tags)
        self._get(context, instance_uuid).tags = sorted(set(tags))
        return sorted(set(tags))

    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        self._note(context, "instance_tag_add", instance_uuid, tag)
        tags = self._get(context, instance_uuid).tags
        if tag in tags:
            return False
        tags.append(tag)
        return True

    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None:
        self._note(context, "instance_tag_delete", instance_uuid, tag)
        tags = self._get(context, instance_uuid).tags
        if tag not in tags:
            raise exception.TagNotFound(instance_id=instance_uuid, tag=tag)
        tags.remove(tag)

    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        self._note(context, "instance_password_clear", instance_uuid)
        self._get(context, instance_uuid).system_metadata = {}

    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None:
        self._note(context, "instance_lock", instance_uuid, reason)
        self._get(context, instance_uuid).locked = True

    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        self._note(context, "instance_unlock", instance_uuid, may_override)
        self._get(context, instance_uuid).locked = False

    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        self._note(context, "instance_reset_state", instance_uuid, vm_state)
        self._get(context, instance_uuid).vm_state = vm_state

    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        self._note(context, "action_list", instance_uuid)
        self._get(context, instance_uuid, deleted=True)
        return self.actions.get(instance_uuid, [])

    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        self._note(context, "action_get", instance_uuid, request_id)
        self._get(context, instance_uuid, deleted=True)
        for action in self.actions.get(instance_uuid, []):
            if action.request_id == request_id:
                return action
        raise exception.InstanceActionNotFound(request_id=request_id, instance_id=instance_uuid)

    # --- catalogue

    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
    ) -> list[Flavor]:
        self._note(context, "flavor_list", is_public, min_ram, min_disk, limit, marker, sort_key, sort_dir)
        return list(self.flavors.values())[:limit]

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        self._note(context, "flavor_get", flavor_id)
        if flavor_id not in self.flavors:
            raise exception.FlavorNotFound(flavor_id=flavor_id)
        return self.flavors[flavor_id]

    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        self._note(context, "flavor_create", flavor)
        flavor.flavorid = flavor.flavorid or str(uuid.uuid4())
        if flavor.flavorid in self.flavors:
            raise exception.FlavorExists(attr="ID", value=flavor.flavorid)
        self.flavors[flavor.flavorid] = flavor
        return flavor

    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor:
        self._note(context, "flavor_update", flavor_id, description)
        flavor = self.flavors[flavor_id]
        flavor.description = description
        return flavor

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None:
        self._note(context, "flavor_delete", flavor_id)
        self.flavor_get(context, flavor_id)

    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        self._note(context, "flavor_extra_specs_update", flavor_id, extra_specs)
        return extra_specs

    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None:
        self._note(context, "flavor_extra_spec_delete", flavor_id, key)

    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        self._note(context, "flavor_access_list", flavor_id)
        return self.access

    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        self._note(context, "flavor_access_add", flavor_id, project_id, even_public)
        self.access.append(project_id)
        return self.access

    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]:
        self._note(context, "flavor_access_remove", flavor_id, project_id)
        self.access.remove(project_id)
        return self.access

    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]:
        self._note(context, "keypair_list", user_id, limit, marker)
        return [key for (owner, _), key in self.keypairs.items() if owner == user_id][:limit]

    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair:
        self._note(context, "keypair_get", user_id, name)
        try:
            return self.keypairs[user_id, name]
        except KeyError:
            raise exception.KeypairNotFound(name=name, user_id=user_id) from None

    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        self._note(context, "keypair_create", keypair)
        if (keypair.user_id, keypair.name) in self.keypairs:
            raise exception.KeypairExists(name=keypair.name)
        stored = KeyPair(
            id=len(self.keypairs) + 1,
            name=keypair.name,
            user_id=keypair.user_id,
            type=keypair.type,
            public_key=keypair.public_key,
            fingerprint=keypair.fingerprint,
            created_at=NOW,
        )
        self.keypairs[keypair.user_id, keypair.name] = stored
        return stored

    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None:
        self._note(context, "keypair_delete", user_id, name)
        del self.keypairs[user_id, name]

    def image_list(
        self, context: RequestContext, name: str | None, status: str | None, limit: int | None, marker: str | None
    ) -> list[Image]:
        self._note(context, "image_list", name, status, limit, marker)
        return list(self.images.values())

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        self._note(context, "image_get", image_id)
        if image_id not in self.images:
            raise exception.ImageNotFound(image_id=image_id)
        return self.images[image_id]

    def image_create(self, context: RequestContext, image: Image) -> Image:
        self._note(context, "image_create", image)
        if image.id in self.images:
            raise exception.ImageExists(image_id=image.id)
        self.images[image.id] = msgspec.structs.replace(image, created_at=NOW)
        return self.images[image.id]

    def image_update(
        self, context: RequestContext, image_id: str, changes: dict[str, Any], expected_status: str | None
    ) -> Image:
        self._note(context, "image_update", image_id, changes, expected_status)
        if image_id not in self.images:
            raise exception.ImageNotFound(image_id=image_id)
        image = self.images[image_id]
        if expected_status not in (None, image.status):
            raise exception.ImageStatusConflict(image_id=image_id, status=image.status, expected=expected_status)
        own = {**image.properties, **changes.get("properties", {})}
        properties = {name: value for name, value in own.items() if value is not None}
        self.images[image_id] = msgspec.structs.replace(image, **{**changes, "properties": properties})
        return self.images[image_id]

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        self._note(context, "image_delete", image_id)
        del self.images[image_id]

    def network_list(self, context: RequestContext) -> list[Network]:
        self._note(context, "network_list")
        return [NETWORK]

    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> Limits:
        self._note(context, "limits_get", project_id, user_id)
        return self._limits(project_id)

    def _limits(self, project_id: str = "") -> Limits:
        quotas = {
            **dict.fromkeys(("instances", "key_pairs", "server_groups", "server_group_members"), QuotaUsage(limit=10)),
            "cores": QuotaUsage(limit=20, used=2),
            "ram": QuotaUsage(limit=51200, used=1024),
            "metadata_items": QuotaUsage(limit=128),
            "injected_files": QuotaUsage(limit=5),
            "injected_file_content_bytes": QuotaUsage(limit=10240),
            "injected_file_path_length": QuotaUsage(limit=255),
        }
        own = {name: QuotaUsage(limit=limit) for name, limit in self.limits.items()}
        return Limits(project_id=project_id, quotas=quotas | own)

    def quota_defaults_get(self, context: RequestContext) -> Limits:
        self._note(context, "quota_defaults_get")
        return self._limits()

    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> Limits:
        self._note(context, "quota_defaults_update", limits)
        self.limits |= limits
        return self._limits()

    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> Limits:
        self._note(context, "quota_update", project_id, limits, force, user_id)
        self.limits |= limits
        return self._limits(project_id)

    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        self._note(context, "quota_delete", project_id, user_id)
        self.limits.clear()

    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        self._note(context, "usage_list", project_id, start, end, limit, marker)
        return [usage for usage in self.usages if project_id in (None, usage.project_id)][:limit]

    # --- aggregates

    def aggregate_list(self, context: RequestContext) -> list[Aggregate]:
        self._note(context, "aggregate_list")
        return list(self.aggregates.values())

    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        self._note(context, "aggregate_get", aggregate_id)
        if aggregate_id not in self.aggregates:
            raise exception.AggregateNotFound(aggregate_id=aggregate_id)
        return self.aggregates[aggregate_id]

    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate:
        self._note(context, "aggregate_create", name, availability_zone)
        made = Aggregate(id=len(self.aggregates) + 1, uuid=str(uuid.uuid4()), name=name, created_at=NOW)
        self.aggregates[str(made.id)] = made
        return made

    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        self._note(context, "aggregate_update", aggregate_id, changes)
        return self.aggregate_get(context, aggregate_id)

    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        self._note(context, "aggregate_set_metadata", aggregate_id, metadata)
        return self.aggregate_get(context, aggregate_id)

    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        self._note(context, "aggregate_delete", aggregate_id)
        self.aggregate_get(context, aggregate_id)

    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        self._note(context, "aggregate_add_host", aggregate_id, host)
        self.aggregate_get(context, aggregate_id).hosts.append(host)
        return self.aggregates[aggregate_id]

    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        self._note(context, "aggregate_remove_host", aggregate_id, host)
        self.aggregate_get(context, aggregate_id).hosts.remove(host)
        return self.aggregates[aggregate_id]

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        self._note(context, "aggregate_cache_images", aggregate_id, image_ids, described)
        self.aggregate_get(context, aggregate_id)

    # --- server groups

    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        self._note(context, "server_group_list", all_projects, limit, offset)
        return [group for group in self.groups.values() if group.project_id == context.project_id][:limit]

    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup:
        self._note(context, "server_group_get", group_id)
        group = self.groups.get(group_id)
        if group is None or not (context.is_admin or group.project_id == context.project_id):
            raise exception.ServerGroupNotFound(group_uuid=group_id)
        return group

    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        self._note(context, "server_group_create", group)
        owner = {"project_id": context.project_id, "user_id": context.user_id}
        made = msgspec.structs.replace(group, id=str(uuid.uuid4()), **owner)
        self.groups[made.id] = made
        return made

    def server_group_delete(self, context: RequestContext, group_id: str) -> None:
        self._note(context, "server_group_delete", group_id)
        del self.groups[self.server_group_get(context, group_id).id]

    # --- hosts

    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        self._note(context, "availability_zone_list")
        return [
            AvailabilityZone(name="internal", available=True),
            AvailabilityZone(name="nova", available=True, hosts={"compute1": [self.service]}),
        ]

    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]:
        self._note(context, "service_list", host, binary)
        return [self.service] if host in (None, self.service.host) else []

    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        self._note(context, "service_update", service_id, changes)
        for name, value in changes.items():
            setattr(self.service, name, value)
        return self.service

    def service_delete(self, context: RequestContext, service_id: str) -> None:
        self._note(context, "service_delete", service_id)

    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        self._note(context, "compute_node_list", hostname_pattern, limit, marker)
        return [self.node] if (hostname_pattern or "") in self.node.node else []

    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        self._note(context, "compute_node_get", node_id)
        if node_id not in (str(self.node.id), self.node.uuid):
            raise exception.ComputeNodeNotFound(node_id=node_id)
        return self.node


class FakeCompute:
    """`nova_lite.compute.rpcapi.ComputeRPC`, as far as the API calls it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.error: Exception | None = None
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

    def _note(self, method: str, *arguments: Any) -> None:
        self.asked.append((method, arguments))
        if self.error is not None:
            raise self.error

    def order(
        self, context: RequestContext, host: str, method: str, ticket: ActionTicket, version: str = "1.0"
    ) -> None:
        self._note(method, host, ticket)

    def get_console_output(self, context: RequestContext, host: str, instance_uuid: str, length: int | None) -> str:
        self._note("get_console_output", host, instance_uuid, length)
        return self.output

    def get_instance_diagnostics(self, context: RequestContext, host: str, instance_uuid: str) -> Diagnostics:
        self._note("get_instance_diagnostics", host, instance_uuid)
        return self.diagnostics


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


def make_fault() -> Fault:
    return Fault(code=500, message="No valid host was found.", details="who knows", created_at=NOW)
