"""Client side of the conductor: topic ``conductor``. The only way to the database.

Grouped by who asks. Every method answers within one transaction; `MessagingUnavailable` and `DatabaseUnavailable` (both
503) mean that the answer is unknown or that nothing was done: a retry with the same request id is safe.
"""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite import rpc
from nova_lite.context import RequestContext
from nova_lite.objects import (
    ActionTicket,
    Aggregate,
    AvailabilityZone,
    BuildNetworks,
    BuildResult,
    ComputeNode,
    CreateRequest,
    CreateResult,
    DomainReport,
    DomainVerdict,
    Flavor,
    HostReport,
    HostState,
    Image,
    Instance,
    InstanceAction,
    InstanceFilters,
    InstanceUsage,
    KeyPair,
    Limits,
    Network,
    ServerGroup,
    Service,
)

TOPIC = "conductor"
VERSION = "1.0"


class ConductorAPI:
    def __init__(self, transport: rpc.Transport) -> None:
        self._client = rpc.Client(transport, TOPIC, VERSION)

    # --- servers, for the API

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Check against flavor, image, key, networks and quota, and write instances and their create actions."""
        answer: CreateResult = self._client.call(context, "create_instances", returns=CreateResult, request=request)
        return answer

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Nudge: schedule and cast the builds of these instances now (the reconciler would, a little later)."""
        self._client.cast(context, "build_instances", instance_uuids=instance_uuids)

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionTicket:
        """Write the action's row and the task state, if the instance's state allows it (else 409). The ticket is then
        cast to its host by the caller."""
        answer: ActionTicket = self._client.call(
            context,
            "accept_action",
            returns=ActionTicket,
            instance_uuid=instance_uuid,
            action=action,
            payload=payload,
        )
        return answer

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        """Of the context's project, or any for an admin; else `InstanceNotFound`."""
        answer: Instance = self._client.call(context, "instance_get", returns=Instance, instance_uuid=instance_uuid)
        return answer

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]:
        answer: list[Instance] = self._client.call(
            context,
            "instance_list",
            returns=list[Instance],
            filters=filters,
            limit=limit,
            marker=marker,
            sort_keys=sort_keys,
            sort_dirs=sort_dirs,
        )
        return answer

    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        """Change ``display_name``, ``display_description``, ``hostname``, ``access_ip_v4``/``_v6`` or
        ``auto_disk_config``."""
        answer: Instance = self._client.call(
            context, "instance_update", returns=Instance, instance_uuid=instance_uuid, changes=changes
        )
        return answer

    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        """Add or change these items, or (``replace``) have no others; returns all of them."""
        answer: dict[str, str] = self._client.call(
            context,
            "instance_metadata_change",
            returns=dict[str, str],
            instance_uuid=instance_uuid,
            metadata=metadata,
            replace=replace,
        )
        return answer

    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None:
        self._client.call(context, "instance_metadata_delete", instance_uuid=instance_uuid, key=key)

    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        """Have these tags and no others; returns them, sorted."""
        answer: list[str] = self._client.call(
            context, "instance_tags_replace", returns=list[str], instance_uuid=instance_uuid, tags=tags
        )
        return answer

    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        """False: it was there already."""
        answer: bool = self._client.call(
            context, "instance_tag_add", returns=bool, instance_uuid=instance_uuid, tag=tag
        )
        return answer

    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None:
        self._client.call(context, "instance_tag_delete", instance_uuid=instance_uuid, tag=tag)

    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        """Forget the password that its guest posted."""
        self._client.call(context, "instance_password_clear", instance_uuid=instance_uuid)

    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None:
        self._client.call(context, "instance_lock", instance_uuid=instance_uuid, reason=reason)

    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        """``may_override``: also where the other side, owner or admin, holds the lock; else `PolicyNotAuthorized`."""
        self._client.call(context, "instance_unlock", instance_uuid=instance_uuid, may_override=may_override)

    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        """Raises `InstanceInvalidState` while what is being done to it must end by itself."""
        self._client.call(context, "instance_reset_state", instance_uuid=instance_uuid, vm_state=vm_state)

    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        """Newest first, without their events; also of a deleted instance."""
        answer: list[InstanceAction] = self._client.call(
            context, "action_list", returns=list[InstanceAction], instance_uuid=instance_uuid
        )
        return answer

    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        """One action with its events."""
        answer: InstanceAction = self._client.call(
            context, "action_get", returns=InstanceAction, instance_uuid=instance_uuid, request_id=request_id
        )
        return answer

    # --- catalogue, for the API

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
        """``is_public`` None: all of them."""
        answer: list[Flavor] = self._client.call(
            context,
            "flavor_list",
            returns=list[Flavor],
            is_public=is_public,
            min_ram=min_ram,
            min_disk=min_disk,
            limit=limit,
            marker=marker,
            sort_key=sort_key,
            sort_dir=sort_dir,
        )
        return answer

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        answer: Flavor = self._client.call(context, "flavor_get", returns=Flavor, flavor_id=flavor_id)
        return answer

    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        """An empty ``flavorid`` is filled with a new uuid."""
        answer: Flavor = self._client.call(context, "flavor_create", returns=Flavor, flavor=flavor)
        return answer

    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor:
        answer: Flavor = self._client.call(
            context, "flavor_update", returns=Flavor, flavor_id=flavor_id, description=description
        )
        return answer

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None:
        self._client.call(context, "flavor_delete", flavor_id=flavor_id)

    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        """Add or change these keys; returns all of them."""
        answer: dict[str, str] = self._client.call(
            context,
            "flavor_extra_specs_update",
            returns=dict[str, str],
            flavor_id=flavor_id,
            extra_specs=extra_specs,
        )
        return answer

    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None:
        self._client.call(context, "flavor_extra_spec_delete", flavor_id=flavor_id, key=key)

    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        """Ids of the projects that may use a private flavor, here and below; `FlavorAccessNotKept` for a public one."""
        answer: list[str] = self._client.call(context, "flavor_access_list", returns=list[str], flavor_id=flavor_id)
        return answer

    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        """`FlavorAccessExists`; `FlavorIsPublic` unless ``even_public``."""
        answer: list[str] = self._client.call(
            context,
            "flavor_access_add",
            returns=list[str],
            flavor_id=flavor_id,
            project_id=project_id,
            even_public=even_public,
        )
        return answer

    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]:
        answer: list[str] = self._client.call(
            context, "flavor_access_remove", returns=list[str], flavor_id=flavor_id, project_id=project_id
        )
        return answer

    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]:
        answer: list[KeyPair] = self._client.call(
            context, "keypair_list", returns=list[KeyPair], user_id=user_id, limit=limit, marker=marker
        )
        return answer

    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair:
        answer: KeyPair = self._client.call(context, "keypair_get", returns=KeyPair, user_id=user_id, name=name)
        return answer

    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        """Store a public key (the API generates and fingerprints; a private key never comes here)."""
        answer: KeyPair = self._client.call(context, "keypair_create", returns=KeyPair, keypair=keypair)
        return answer

    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None:
        self._client.call(context, "keypair_delete", user_id=user_id, name=name)

    def image_list(
        self, context: RequestContext, name: str | None, status: str | None, limit: int | None, marker: str | None
    ) -> list[Image]:
        """Images of the built-in backend that the context's project may see."""
        answer: list[Image] = self._client.call(
            context, "image_list", returns=list[Image], name=name, status=status, limit=limit, marker=marker
        )
        return answer

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        answer: Image = self._client.call(context, "image_get", returns=Image, image_id=image_id)
        return answer

    def image_create(self, context: RequestContext, image: Image) -> Image:
        """Write the image's row as it is given; raises `ImageExists` when its id is taken."""
        answer: Image = self._client.call(context, "image_create", returns=Image, image=image)
        return answer

    def image_update(
        self, context: RequestContext, image_id: str, changes: dict[str, Any], expected_status: str | None
    ) -> Image:
        """Set the fields in ``changes``; its ``properties`` are merged in, those that are None go away. Only the owner
        or an admin may; with ``expected_status`` only an image in that status is changed (else
        `ImageStatusConflict`)."""
        answer: Image = self._client.call(
            context,
            "image_update",
            returns=Image,
            image_id=image_id,
            changes=changes,
            expected_status=expected_status,
        )
        return answer

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        self._client.call(context, "image_delete", image_id=image_id)

    def network_list(self, context: RequestContext) -> list[Network]:
        """Networks of the built-in backend that the context's project may use."""
        answer: list[Network] = self._client.call(context, "network_list", returns=list[Network])
        return answer

    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> Limits:
        """What the project may use and uses, or one user in it."""
        answer: Limits = self._client.call(
            context, "limits_get", returns=Limits, project_id=project_id, user_id=user_id
        )
        return answer

    def quota_defaults_get(self, context: RequestContext) -> Limits:
        """What a project without limits of its own may use; no use is counted."""
        answer: Limits = self._client.call(context, "quota_defaults_get", returns=Limits)
        return answer

    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> Limits:
        """Set these defaults in place of ``[quota]``; returns all."""
        answer: Limits = self._client.call(context, "quota_defaults_update", returns=Limits, limits=limits)
        return answer

    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> Limits:
        """Set limits (-1: none) of a project, or of one user in it; returns all. Unless ``force``, `QuotaBelowUse` for
        one below what is used, and `QuotaAboveProject` for a user's."""
        answer: Limits = self._client.call(
            context,
            "quota_update",
            returns=Limits,
            project_id=project_id,
            limits=limits,
            force=force,
            user_id=user_id,
        )
        return answer

    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        """The project and its users have no limits of their own any more, or (``user_id``) only this user."""
        self._client.call(context, "quota_delete", project_id=project_id, user_id=user_id)

    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        """Instances that ran in the period, by project and uuid; ``project_id`` None: all projects, for an admin."""
        answer: list[InstanceUsage] = self._client.call(
            context,
            "usage_list",
            returns=list[InstanceUsage],
            project_id=project_id,
            start=start,
            end=end,
            limit=limit,
            marker=marker,
        )
        return answer

    # --- hosts, for the API

    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        """All zones, the control plane's ``internal`` included, with their hosts and services."""
        answer: list[AvailabilityZone] = self._client.call(
            context, "availability_zone_list", returns=list[AvailabilityZone]
        )
        return answer

    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]:
        answer: list[Service] = self._client.call(
            context, "service_list", returns=list[Service], host=host, binary=binary
        )
        return answer

    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        """``service_id``: uuid or numeric id. Changes: ``disabled``, ``disabled_reason``, ``forced_down``."""
        answer: Service = self._client.call(
            context, "service_update", returns=Service, service_id=service_id, changes=changes
        )
        return answer

    def service_delete(self, context: RequestContext, service_id: str) -> None:
        self._client.call(context, "service_delete", service_id=service_id)

    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        """``hostname_pattern``: substring of the node's name; ``marker``: uuid or numeric id."""
        answer: list[ComputeNode] = self._client.call(
            context,
            "compute_node_list",
            returns=list[ComputeNode],
            hostname_pattern=hostname_pattern,
            limit=limit,
            marker=marker,
        )
        return answer

    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        """``node_id``: uuid or numeric id."""
        answer: ComputeNode = self._client.call(context, "compute_node_get", returns=ComputeNode, node_id=node_id)
        return answer

    # --- aggregates and server groups, for the API

    def aggregate_list(self, context: RequestContext) -> list[Aggregate]:
        answer: list[Aggregate] = self._client.call(context, "aggregate_list", returns=list[Aggregate])
        return answer

    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        """``aggregate_id``, here and below: number, uuid or name; else `AggregateNotFound`."""
        answer: Aggregate = self._client.call(context, "aggregate_get", returns=Aggregate, aggregate_id=aggregate_id)
        return answer

    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate:
        answer: Aggregate = self._client.call(
            context, "aggregate_create", returns=Aggregate, name=name, availability_zone=availability_zone
        )
        return answer

    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        """Change ``name``, ``availability_zone`` (None: no zone)."""
        answer: Aggregate = self._client.call(
            context, "aggregate_update", returns=Aggregate, aggregate_id=aggregate_id, changes=changes
        )
        return answer

    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        """Add or change these keys; a value of None removes its key."""
        answer: Aggregate = self._client.call(
            context, "aggregate_set_metadata", returns=Aggregate, aggregate_id=aggregate_id, metadata=metadata
        )
        return answer

    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        """`InvalidAggregateAction` while it has hosts."""
        self._client.call(context, "aggregate_delete", aggregate_id=aggregate_id)

    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        answer: Aggregate = self._client.call(
            context, "aggregate_add_host", returns=Aggregate, aggregate_id=aggregate_id, host=host
        )
        return answer

    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        answer: Aggregate = self._client.call(
            context, "aggregate_remove_host", returns=Aggregate, aggregate_id=aggregate_id, host=host
        )
        return answer

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        """Have the aggregate's hosts fetch these images; returns when they were told. ``described``: those that are not
        in the database, by id. `ImageUnavailable` for one that the context's project may not see or that has no
        data."""
        self._client.call(
            context,
            "aggregate_cache_images",
            aggregate_id=aggregate_id,
            image_ids=image_ids,
            described=described,
        )

    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        """The project's; ``all_projects`` counts for admins."""
        answer: list[ServerGroup] = self._client.call(
            context,
            "server_group_list",
            returns=list[ServerGroup],
            all_projects=all_projects,
            limit=limit,
            offset=offset,
        )
        return answer

    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup:
        answer: ServerGroup = self._client.call(context, "server_group_get", returns=ServerGroup, group_id=group_id)
        return answer

    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        """``name``, ``policy`` and ``rules`` of ``group``, for the context's project; counts against its quota."""
        answer: ServerGroup = self._client.call(context, "server_group_create", returns=ServerGroup, group=group)
        return answer

    def server_group_delete(self, context: RequestContext, group_id: str) -> None:
        self._client.call(context, "server_group_delete", group_id=group_id)

    # --- for every daemon

    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Heartbeat of a daemon that is not a compute host."""
        self._client.cast(context, "report_service", host=host, binary=binary, topic=topic, version=version)

    # --- for the scheduler

    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: float | None = None
    ) -> list[HostState]:
        """Every host as it is now, or a page: those with an id above ``after``, in its order, at most ``limit``; the
        scheduler's resync. ``timeout`` in seconds, to ask again sooner while the conductor may be starting."""
        answer: list[HostState] = self._client.call(
            context, "host_states_get", returns=list[HostState], after=after, limit=limit, timeout=timeout
        )
        return answer

    # --- for compute

    def register_host(self, context: RequestContext, report: HostReport) -> int:
        """First report after start: services and nodes have their rows, and what is open on this host is due. Returns
        the host's epoch, which its heartbeats tell; `HostForcedDown` while it may not serve."""
        answer: int = self._client.call(context, "register_host", returns=int, report=report)
        return answer

    def report_state(self, context: RequestContext, report: HostReport, timeout: float | None = None) -> None:
        """Heartbeat: renews the host's lease and the leases of the work it names. Raises `HostNotAdmitted` when the
        host is, or has been, forced down since it registered. ``timeout``: seconds to wait for that."""
        self._client.call(context, "report_state", report=report, timeout=timeout)

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """The host begins: instance to BUILDING/spawning, and its interfaces are allocated. Raises `StaleReport` or
        `InstanceGone` when the build is not wanted (any more); `NoMoreFixedIps` and other 4xx abort it."""
        answer: BuildNetworks = self._client.call(
            context,
            "start_build",
            returns=BuildNetworks,
            instance_uuid=instance_uuid,
            host=host,
            generation=generation,
        )
        return answer

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Report a build's outcome. `StaleReport` or `InstanceGone` after BUILT: destroy what was built."""
        self._client.call(context, "finish_build", result=result)

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
    ) -> None:
        """Report a stop, start, reboot or delete as done (``error`` None) or failed. Reporting twice is harmless."""
        self._client.call(
            context,
            "finish_action",
            host=host,
            action_id=action_id,
            power_state=power_state,
            error=error,
            details=details,
        )

    def reconcile_domains(
        self, context: RequestContext, host: str, domains: list[DomainReport], leftovers: list[str]
    ) -> list[DomainVerdict]:
        """What to do with each of a host's domains, and (DESTROY) which leftovers without a domain to remove. Uuids
        that are left out of the answer are not to be touched."""
        answer: list[DomainVerdict] = self._client.call(
            context,
            "reconcile_domains",
            returns=list[DomainVerdict],
            host=host,
            domains=domains,
            leftovers=leftovers,
        )
        return answer
