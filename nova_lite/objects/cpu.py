"""Processors of guests: the largest one of a host, and that of a running guest."""

from __future__ import annotations

import msgspec

#: Key of `HostCpu` in the capabilities of a host.
HOST_CPU = "guest_cpu"


class HostCpu(msgspec.Struct, kw_only=True, frozen=True):
    """Largest processor that a host gives to guests of its type.

    Vendors, models and features have libvirt's names. ``definition``: the closest model, and the features that the
    processor has besides (``+avx``) or lacks (``-avx``). ``features`` (all of them) and ``machines`` (types of
    machines) are separated by spaces: there are hundreds, and one text is cheap to copy and compare. ``libvirt``: its
    version, as libvirt numbers it.
    """

    virt_type: str
    vendor: str = ""
    definition: str = ""
    features: str = ""
    machines: str = ""
    libvirt: int = 0


class GuestCpu(msgspec.Struct, kw_only=True, frozen=True):
    """Processor and machine of a running guest. A host that is to continue the guest needs all of it.

    The fields are those of `HostCpu`. ``virt_type`` is empty if the guest is of another architecture than its host:
    qemu emulates the same processor everywhere. ``machine``: its only type of machine. ``hypervisor``: version of the
    hypervisor (qemu), as libvirt numbers it.
    """

    virt_type: str
    vendor: str = ""
    features: str = ""
    machine: str = ""
    hypervisor: int = 0
    libvirt: int = 0
