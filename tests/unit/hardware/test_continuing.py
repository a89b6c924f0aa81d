"""Obstacles of a running guest on another host."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.hardware import continuing
from nova_lite.objects import GuestCpu, HostCpu

HOST = HostCpu(
    virt_type="kvm", vendor="Intel", features="aes avx", machines="pc-i440fx-7.2 pc-q35-7.2", libvirt=9_000_000
)
GUEST = GuestCpu(
    virt_type="kvm", vendor="Intel", features="aes", machine="pc-q35-7.2", hypervisor=7_002_022, libvirt=9_000_005
)


def obstacles(here: int = 7_002_000, **changes: Any) -> list[str]:
    values = {name: getattr(GUEST, name) for name in GUEST.__struct_fields__} | changes
    return continuing.obstacles(GuestCpu(**values), HOST, here)


def test_guest_with_less_than_the_host_has_no_obstacle() -> None:
    assert obstacles() == []
    assert obstacles(here=0, vendor="", machine="", libvirt=0) == [], "nothing is known to differ"


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({"features": "sse aes vmx"}, "its processor lacks sse, vmx"),
        ({"vendor": "AMD", "features": "svm"}, "its processor is of Intel, and the guest's of AMD"),
        ({"virt_type": "qemu"}, "its guests are of type kvm, and this one is of type qemu"),
        ({"machine": "pc-q35-8.0"}, "it has no machine type pc-q35-8.0"),
        ({"hypervisor": 8_000_000}, "its hypervisor 7.2 is older than 8.0, where the guest is"),
        ({"libvirt": 9_001_000}, "its libvirt 9.0 is older than 9.1, where the guest is"),
    ],
)
def test_each_obstacle_is_named(changes: dict[str, Any], obstacle: str) -> None:
    assert obstacles(**changes) == [obstacle]


def test_guest_of_another_architecture_needs_its_machine_and_emulator_only() -> None:
    assert obstacles(virt_type="", vendor="", features="") == []
    assert obstacles(virt_type="", vendor="", features="", machine="virt-7.2") == ["it has no machine type virt-7.2"]
    assert len(obstacles(virt_type="", vendor="", features="", hypervisor=8_000_000, libvirt=9_001_000)) == 2


def test_all_obstacles_are_named_together() -> None:
    assert len(obstacles(here=1, features="vmx", machine="x", virt_type="qemu", libvirt=10_000_000)) == 5


def test_host_that_does_not_know_its_features_is_not_judged_by_them() -> None:
    assert continuing.obstacles(GUEST, HostCpu(virt_type="kvm", vendor="Intel"), 0) == []


def test_host_without_a_list_of_machines_is_not_judged_by_it() -> None:
    assert continuing.obstacles(GUEST, HostCpu(virt_type="kvm", vendor="Intel", features="aes"), 0) == []
