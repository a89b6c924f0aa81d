"""Obstacles of a running guest on another host: processor, type of machine, and versions.

A guest has found out its processor when it started. It ends at an instruction that another processor lacks. So a host
needs every feature of the guest's processor, and more do not harm. The comparison is that of libvirt, without libvirt.
"""

from __future__ import annotations

import functools

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import HOST_CPU, GuestCpu, HostCpu, HostState


@functools.lru_cache(maxsize=1024)
def names(text: str) -> frozenset[str]:
    """Return the names in a text of `HostCpu`."""
    return frozenset(text.split())


def missing_features(guest: GuestCpu, host: HostCpu) -> list[str]:
    """Return the features of the guest's processor that the host lacks; none if the host does not know its own."""
    return sorted(names(guest.features) - names(host.features)) if host.features else []


def obstacles_at(host: HostState, guest: GuestCpu | None) -> list[str]:
    """Return `obstacles`; none if the processor of one of them is unknown."""
    cpu = _cpu_of(host)
    return [] if guest is None or cpu is None else obstacles(guest, cpu, host.hypervisor_version)


def distance(host: HostState, guest: GuestCpu | None) -> float:
    """Return the number of features that the host lacks; far more for another vendor's processor."""
    cpu = _cpu_of(host)
    if guest is None or cpu is None:
        return 0.0
    return len(missing_features(guest, cpu)) + 1000.0 * (guest.vendor not in ("", cpu.vendor))


def _cpu_of(host: HostState) -> HostCpu | None:
    found = host.capabilities.get(HOST_CPU)
    return None if found is None else msgspec.convert(found, HostCpu)


def obstacles(guest: GuestCpu, host: HostCpu, hypervisor: int) -> list[str]:
    """Return reasons why the guest cannot continue on the host; none if it can. ``hypervisor``: the host's version."""
    return [*of_processor(guest, host), *of_machine(guest, host, hypervisor)]


def of_processor(guest: GuestCpu, host: HostCpu) -> list[str]:
    if guest.vendor and host.vendor != guest.vendor:
        return [f"its processor is of {host.vendor or 'no known vendor'}, and the guest's of {guest.vendor}"]
    missing = missing_features(guest, host)
    return [f"its processor lacks {', '.join(missing)}"] if missing else []


def of_machine(guest: GuestCpu, host: HostCpu, hypervisor: int) -> list[str]:
    """Return the obstacles besides the processor."""
    found, machines = [], names(host.machines)
    if guest.virt_type and guest.virt_type != host.virt_type:
        found.append(f"its guests are of type {host.virt_type}, and this one is of type {guest.virt_type}")
    if guest.machine and machines and guest.machine not in machines:
        found.append(f"it has no machine type {guest.machine}")
    for name, here, there in (
        ("hypervisor", hypervisor, guest.hypervisor),
        ("libvirt", host.libvirt, guest.libvirt),
    ):
        # The third number changes no format. 0: unknown.
        if here and there and here // 1000 < there // 1000:
            found.append(f"its {name} {_show(here)} is older than {_show(there)}, where the guest is")
    return found


def require(found: list[str]) -> None:
    """Raise `MigrationPreCheckError` if there are obstacles."""
    if found:
        raise exceptions.MigrationPreCheckError(reason="the guest cannot continue on this host: " + "; ".join(found))


def _show(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}"
