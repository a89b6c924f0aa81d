"""Filters: hosts that they accept or reject, requests that they ignore, and their reasons."""

from __future__ import annotations

import msgspec
import pytest

from nova_lite.objects import HOST_CPU, GuestCpu, HostCpu, HostState
from nova_lite.scheduler.filters import extra_spec_ops
from nova_lite.scheduler.filters.availability_zone import AvailabilityZoneFilter
from nova_lite.scheduler.filters.capacity import CoreFilter, DiskFilter, RamFilter
from nova_lite.scheduler.filters.compute import ComputeFilter
from nova_lite.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from nova_lite.scheduler.filters.image_properties import ImagePropertiesFilter
from nova_lite.scheduler.filters.live_migration import LiveMigrationFilter
from nova_lite.scheduler.filters.retry import RetryFilter
from nova_lite.scheduler.filters.server_group import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter

from .builders import flavor, group, host, image, spec


def test_retry_filter_rejects_hosts_already_tried() -> None:
    request = spec(ignore_hosts=["host1"])
    assert not RetryFilter().host_passes(host(1), request)
    assert RetryFilter().host_passes(host(2), request)
    assert RetryFilter().applies(request)
    assert not RetryFilter().applies(spec())


def test_availability_zone_filter_requires_the_zone() -> None:
    request = spec(availability_zone="east")
    assert AvailabilityZoneFilter().host_passes(host(availability_zone="east"), request)
    assert not AvailabilityZoneFilter().host_passes(host(availability_zone="west"), request)
    assert AvailabilityZoneFilter().applies(request)
    assert not AvailabilityZoneFilter().applies(spec())
    assert AvailabilityZoneFilter().summary(host(availability_zone="west"), request) == "not in availability zone east"


@pytest.mark.parametrize(
    ("used", "passes"), [(8192 - 512, True), (8192 - 511, False), (0, True), (8192, False), (9000, False)]
)
def test_ram_filter_fills_a_host_to_the_last_mb(used: int, passes: bool) -> None:
    assert RamFilter().host_passes(host(memory_mb_used=used), spec()) is passes


@pytest.mark.parametrize(("used", "passes"), [(93, True), (94, False)])
def test_disk_filter_counts_root_ephemeral_and_swap(used: int, passes: bool) -> None:
    request = spec(flavor=flavor(root_gb=4, ephemeral_gb=2, swap=1))
    assert DiskFilter().host_passes(host(disk_gb_used=used), request) is passes


@pytest.mark.parametrize(("used", "passes"), [(14, True), (15, False)])
def test_core_filter_counts_vcpus(used: int, passes: bool) -> None:
    assert CoreFilter().host_passes(host(vcpus_used=used), spec(flavor=flavor(vcpus=2))) is passes


def test_capacity_reasons_show_requested_and_free_amounts() -> None:
    tight, tighter = host(memory_mb_used=8000), host(memory_mb_used=9000)
    assert RamFilter().reason(tight, spec()) == "512 MB requested, 192 MB free"
    assert RamFilter().summary(tight, spec()) == "512 MB requested, at most 192 MB free"
    assert RamFilter().reason(tighter, spec()) == "512 MB requested, 0 MB free"
    assert RamFilter().shortfall(tight, spec()) < RamFilter().shortfall(tighter, spec())
    assert "1 GB requested" in DiskFilter().reason(host(disk_gb_used=100), spec())
    assert "1 vCPUs requested" in CoreFilter().reason(host(vcpus_used=16), spec())


@pytest.mark.parametrize(
    ("up", "disabled", "reason"), [(True, False, None), (False, False, "down"), (True, True, "disabled")]
)
def test_compute_filter_rejects_hosts_down_or_disabled(up: bool, disabled: bool, reason: str | None) -> None:
    state = host(up=up, disabled=disabled)
    assert ComputeFilter().host_passes(state, spec()) is (reason is None)
    if reason:
        assert ComputeFilter().reason(state, spec()) == reason


@pytest.mark.parametrize(
    ("value", "requirement", "matches"),
    [
        ("12", "= 10", True),
        ("12", "= 13", False),
        (12, "== 12.0", True),
        (12, "== 13", False),
        (12, "!= 13", True),
        (12, ">= 12", True),
        (12, "<= 11", False),
        ("many", ">= 1", False),
        (12, ">= many", False),
        (None, "== 1", False),
        (12, ">=", False),
        ("xyz", "s== xyz", True),
        ("xyz", "s== abc", False),
        ("xyz", "s!= abc", True),
        ("b", "s< c", True),
        ("b", "s<= b", True),
        ("b", "s> c", False),
        ("b", "s>= a", True),
        ("12", "s>= 2", False),
        ("sse avx", "<in> avx", True),
        ("sse avx", "<in> vmx", False),
        (["sse", "avx"], "<in> avx", True),
        (["sse", "avx2"], "<in> avx", False),
        (["aes", "mmx", "aux"], "<all-in> aes mmx", True),
        (["aes", "mmx", "aux"], "<all-in> aes txt", False),
        ("Xen", "<or> KVM <or> Xen", True),
        ("Xen PV", "<or> KVM <or> Xen PV", True),
        ("QEMU", "<or> KVM <or> Xen", False),
        ("xyz", "xyz", True),
        ("x y z", "x y z", True),
        (True, "True", True),
        (12, "12", True),
        ("", "", True),
        ("xyz", "", False),
    ],
)
def test_extra_spec_operator_matches_values(value: object, requirement: str, matches: bool) -> None:
    assert extra_spec_ops.match(value, requirement) is matches


CAPABLE = host(capabilities={"cpu_info": {"vendor": "Intel", "features": ["sse", "avx"]}, "gpu": "yes"})


@pytest.mark.parametrize(
    ("extra_specs", "passes"),
    [
        ({}, True),
        ({"capabilities:cpu_info:vendor": "Intel"}, True),
        ({"capabilities:cpu_info:vendor": "AMD"}, False),
        ({"capabilities:cpu_info:features": "<in> avx"}, True),
        ({"capabilities:cpu_info:features:deep": "x"}, False),
        ({"capabilities:unknown": "x"}, False),
        ({"capabilities:gpu": "yes", "capabilities:cpu_info:vendor": "AMD"}, False),
        ({"capabilities:hypervisor_version": ">= 6000000"}, True),
        ({"capabilities:hypervisor_type": "s== QEMU"}, True),
        ({"gpu": "no"}, False),
        ({"unknown": "no"}, True),
        ({"hw:cpu_policy": "dedicated"}, True),
        ({"trait:CUSTOM": "required"}, True),
    ],
)
def test_compute_capabilities_filter_compares_extra_specs(extra_specs: dict[str, str], passes: bool) -> None:
    request = spec(flavor=flavor(extra_specs=extra_specs))
    assert ComputeCapabilitiesFilter().host_passes(CAPABLE, request) is passes
    if not passes:
        assert ComputeCapabilitiesFilter().applies(request)
        assert "extra spec" in ComputeCapabilitiesFilter().reason(CAPABLE, request)


def test_compute_capabilities_filter_ignores_other_scopes() -> None:
    assert not ComputeCapabilitiesFilter().applies(spec(flavor=flavor(extra_specs={"hw:cpu_policy": "shared"})))


@pytest.mark.parametrize(
    ("properties", "unmet"),
    [
        ({}, None),
        ({"hw_architecture": "x86_64"}, None),
        ({"architecture": "amd64"}, None),
        ({"architecture": "i386"}, None),
        ({"hw_architecture": "aarch64"}, "architecture aarch64"),
        ({"img_hv_type": "QEMU"}, None),
        ({"hypervisor_type": "xen"}, "hypervisor type xen"),
        ({"hw_vm_mode": "hvm"}, None),
        ({"vm_mode": "hv"}, None),
        ({"vm_mode": "pv"}, "vm mode pv"),
        ({"hypervisor_version_requires": ">=7.0,<8"}, None),
        ({"img_hv_requested_version": ">= 7.2.1"}, "hypervisor version >= 7.2.1"),
        ({"hypervisor_version_requires": "newest"}, "hypervisor version newest"),
        ({"os_distro": "debian"}, None),
    ],
)
def test_image_properties_filter_names_the_unmet_demand(properties: dict[str, str], unmet: str | None) -> None:
    request = spec(image=image(**properties))
    assert ImagePropertiesFilter().host_passes(host(), request) is (unmet is None)
    if unmet:
        assert ImagePropertiesFilter().applies(request)
        assert ImagePropertiesFilter().reason(host(), request) == f"image needs {unmet}"


def test_image_properties_filter_falls_back_to_the_hypervisor_type() -> None:
    request = spec(image=image(img_hv_type="fake"))
    assert ImagePropertiesFilter().host_passes(host(supported_hv_types=[], hypervisor_type="Fake"), request)
    assert not ImagePropertiesFilter().host_passes(host(supported_hv_types=[]), request)


def test_image_properties_filter_ignores_requests_without_image() -> None:
    assert ImagePropertiesFilter().host_passes(host(), spec())
    assert not ImagePropertiesFilter().applies(spec())
    assert not ImagePropertiesFilter().applies(spec(image=image(os_distro="debian")))


@pytest.mark.parametrize(
    ("hosts", "limit", "passes"),
    [
        ([], None, True),
        (["host2"], None, True),
        (["host1"], None, False),
        (["host1"], 2, True),
        (["host1", "host1"], 2, False),
    ],
)
def test_anti_affinity_filter_limits_members_per_host(hosts: list[str], limit: int | None, passes: bool) -> None:
    request = spec(instance_group=group("anti-affinity", hosts, limit))
    assert ServerGroupAntiAffinityFilter().host_passes(host(1), request) is passes


@pytest.mark.parametrize(("hosts", "passes"), [([], True), (["host1"], True), (["host2"], False)])
def test_affinity_filter_follows_the_first_member(hosts: list[str], passes: bool) -> None:
    request = spec(instance_group=group("affinity", hosts))
    assert ServerGroupAffinityFilter().host_passes(host(1), request) is passes


def test_group_filters_apply_to_their_own_policy_only() -> None:
    for policy in ("soft-affinity", "soft-anti-affinity"):
        request = spec(instance_group=group(policy, ["host1"]))
        assert not ServerGroupAffinityFilter().applies(request)
        assert not ServerGroupAntiAffinityFilter().applies(request)
    assert not ServerGroupAntiAffinityFilter().applies(spec(instance_group=group("affinity")))
    assert not ServerGroupAffinityFilter().applies(spec(instance_group=group("anti-affinity")))
    assert not ServerGroupAffinityFilter().applies(spec())


def with_cpu(number: int, features: str, vendor: str = "Intel", version: int = 7_002_000) -> HostState:
    cpu = HostCpu(virt_type="kvm", vendor=vendor, features=features)
    return host(number, capabilities={HOST_CPU: msgspec.to_builtins(cpu)}, hypervisor_version=version)


def test_live_migration_filter_compares_the_guests_processor_and_the_versions() -> None:
    cpu = GuestCpu(virt_type="kvm", vendor="Intel", features="aes avx", hypervisor=7_002_000)
    request, judge = spec(guest_cpu=cpu), LiveMigrationFilter()
    hosts = [
        with_cpu(1, "aes avx"),
        with_cpu(2, "sse"),
        with_cpu(3, "aes"),
        with_cpu(4, "aes avx", "AMD"),
        with_cpu(5, "aes avx", version=7_001_000),
        host(6),
    ]
    assert [item.host for item in judge.passing(hosts, request)] == ["host1", "host6"]
    assert judge.reason(hosts[1], request) == "its processor lacks aes, avx"
    assert judge.reason(hosts[4], request) == "its hypervisor 7.1 is older than 7.2, where the guest is"
    closest = sorted(hosts[1:4], key=lambda item: judge.shortfall(item, request))
    assert [item.host for item in closest] == ["host3", "host2", "host4"]


def test_live_migration_filter_judges_running_guests_only_and_forced_hosts_too() -> None:
    assert not LiveMigrationFilter().applies(spec())
    assert LiveMigrationFilter.binds_forced_hosts
