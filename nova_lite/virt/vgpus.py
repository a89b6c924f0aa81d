"""vGPUs of a host: ``[devices] enabled_mdev_types`` and ``[mdev_TYPE]`` in Nova's form, and places for vGPUs.

A GPU has places for vGPUs of one type. A place is a device of the host, ``0000:84:00.0#2``, which a server claims. Its
vGPU is a mediated device, which exists while a guest has it. Its uuid contains the place, so nothing else stores it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conf import pci as options
from nova_lite.objects import PCIDevice

#: Maximum number of places of a GPU, so that the address of each is short enough for the database.
MOST = 256

_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)
_PLACE = re.compile(_ADDRESS.pattern + r"#([0-9]{1,3})", re.ASCII)
_UUID = re.compile(r"6e6f7661-([0-9a-f]{4})-4000-8000-([0-9a-f]{2})([0-9a-f]{2})0([0-7])([0-9a-f]{6})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class MdevType(msgspec.Struct, frozen=True, kw_only=True):
    """Enabled type of mediated devices. ``addresses``: of the GPUs that have it; empty: all that can."""

    name: str
    addresses: frozenset[str]
    max_instances: int | None
    resource_class: str


class GPU(msgspec.Struct, frozen=True, kw_only=True):
    """GPU, or virtual function of one, that can have mediated devices.

    ``available``: by type, the number of devices that can be made besides the present ones. ``present``: types of these
    by uuid. ``node_device``: libvirt's name.
    """

    address: str
    available: Mapping[str, int]
    present: Mapping[str, str] = {}
    numa_cell: int | None = None
    node_device: str = ""


def parse(conf: cfg.ConfigOpts) -> list[MdevType]:
    """Parse the options. Raises `ConfigurationError`."""
    names = list(dict.fromkeys(conf.devices.enabled_mdev_types))
    types = [_type(conf, name) for name in names]
    owners: dict[str, str] = {}
    for kind in types:
        if len(types) > 1 and not kind.addresses:
            raise _mistake(kind.name, "it is needed, because several types are enabled")
        for address in sorted(kind.addresses):
            if owners.setdefault(address, kind.name) != kind.name:
                raise _mistake(kind.name, f"{address} has the type {owners[address]} already")
    return types


def _type(conf: cfg.ConfigOpts, name: str) -> MdevType:
    if not _NAME.fullmatch(name):
        raise exceptions.ConfigurationError(reason=f"[devices] enabled_mdev_types: {name!r} is not the name of a type.")
    group = options.register_mdev_type(conf, name)
    for address in group.device_addresses:
        if not _ADDRESS.fullmatch(address):
            raise _mistake(name, f"{address} is not a PCI address such as 0000:84:00.0")
    return MdevType(
        name=name,
        addresses=frozenset(group.device_addresses),
        max_instances=group.max_instances,
        resource_class=group.mdev_class,
    )


def _mistake(name: str, reason: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[{options.MDEV_GROUP}{name}] device_addresses: {reason}.")


def type_of(types: Iterable[MdevType], gpu: GPU) -> MdevType | None:
    """Return the type that the options give to a GPU, if it can have this type."""
    return next(
        (
            kind
            for kind in types
            if kind.name in gpu.available and (not kind.addresses or gpu.address in kind.addresses)
        ),
        None,
    )


def places(types: Sequence[MdevType], gpus: Iterable[GPU]) -> list[PCIDevice]:
    """Return the places for vGPUs, by GPU. Mediated devices that others have made take places away."""
    by_type: dict[str, list[PCIDevice]] = {kind.name: [] for kind in types}
    for gpu in sorted(gpus, key=lambda item: item.address):
        if (kind := type_of(types, gpu)) is not None:
            by_type[kind.name] += _places(kind, gpu)
    return [place for kind in types for place in by_type[kind.name][: kind.max_instances]]


def _places(kind: MdevType, gpu: GPU) -> list[PCIDevice]:
    ours = sum(name == kind.name and place_of(uuid) is not None for uuid, name in gpu.present.items())
    return [
        PCIDevice(
            address=f"{gpu.address}#{number}",
            vendor_id="",
            product_id="",
            numa_cell=gpu.numa_cell,
            parent=gpu.address,
            resource_class=kind.resource_class,
        )
        for number in range(min(gpu.available[kind.name] + ours, MOST))
    ]


def uuid_of(place: str) -> str:
    """Return the uuid of the mediated device in a place."""
    match = _PLACE.fullmatch(place)
    assert match is not None
    domain, bus, slot, function, number = match.groups()
    return f"6e6f7661-{domain}-4000-8000-{bus}{slot}0{function}{int(number):06x}"


def place_of(uuid: str) -> str | None:
    """Return the place of a mediated device. None: it is not one of ours."""
    match = _UUID.fullmatch(uuid)
    if match is None:
        return None
    domain, bus, slot, function, number = match.groups()
    return f"{domain}:{bus}:{slot}.{function}#{int(number, 16)}"
