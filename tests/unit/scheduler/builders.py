"""Hosts and requests with sensible defaults."""

from __future__ import annotations

from typing import Any

from nova_lite.objects import Flavor, HostState, Image, InstanceGroup, RequestSpec


def host(number: int = 1, **changes: Any) -> HostState:
    values: dict[str, Any] = {
        "id": number,
        "host": f"host{number}",
        "node": f"host{number}",
        "generation": 1,
        "up": True,
        "disabled": False,
        "vcpus": 16,
        "memory_mb": 8192,
        "disk_gb": 100,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 7_002_000,
        "supported_hv_types": ["kvm", "qemu"],
        "supported_vm_modes": ["hvm"],
    }
    return HostState(**(values | changes))


def flavor(**changes: Any) -> Flavor:
    values: dict[str, Any] = {"flavorid": "1", "name": "m1.tiny", "vcpus": 1, "memory_mb": 512, "root_gb": 1}
    return Flavor(**(values | changes))


def spec(count: int = 1, **changes: Any) -> RequestSpec:
    values: dict[str, Any] = {
        "instance_uuids": [f"uuid-{number}" for number in range(count)],
        "project_id": "project",
        "user_id": "user",
        "flavor": flavor(),
    }
    return RequestSpec(**(values | changes))


def image(**properties: str) -> Image:
    return Image(id="image", name="image", properties=properties)


def group(policy: str, hosts: list[str] | None = None, limit: int | None = None) -> InstanceGroup:
    return InstanceGroup(id="group", policy=policy, hosts=hosts or [], max_server_per_host=limit)
