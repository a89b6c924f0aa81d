"""Requests for devices: aliases of ``[pci] alias``, classes of vGPUs, and the choice for the filter and the claim."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware import fitting, mem_encryption, table
from nova_lite.hardware.fitting import FitError, Ratios
from nova_lite.hardware.numa import NUMARequest
from nova_lite.objects import Flavor, HostState, Image, InstanceNUMATopology, NUMACell, NUMAUsage
from nova_lite.objects.pci import (
    NUMA_LEGACY,
    NUMA_PREFERRED,
    NUMA_REQUIRED,
    OF_PORT,
    PORT_DEVICES,
    TYPE_PCI,
    TYPE_PF,
    TYPE_VF,
    PCIDevice,
    PCIKind,
    PCIRequest,
)

#: Extra spec that requests devices, and the settings of the NUMA policy in flavors and images.
ALIAS = "pci_passthrough:alias"
#: Beginning of the extra specs that request vGPUs by their resource class.
RESOURCES = "resources:"
_POLICIES = ("hw:pci_numa_affinity_policy", "hw_pci_numa_affinity_policy")

_KEYS = {
    "name", "capability_type", "vendor_id", "product_id", "device_type", "numa_policy", "live_migratable",
}  # fmt: skip
_PLACEMENT_KEYS = {"resource_class", "traits"}


class _Alias(msgspec.Struct):
    """Alias with its kinds of devices. Several entries of one name add kinds."""

    numa_policy: str
    kinds: list[PCIKind]


# --- aliases


def check_aliases(conf: cfg.ConfigOpts) -> None:
    """Raise `ConfigurationError` for a mistake in ``[pci] alias``."""
    _aliases(tuple(conf.pci.alias))


def requests(conf: cfg.ConfigOpts, flavor: Flavor, image: Image | None, strict: bool = False) -> list[PCIRequest]:
    """Return the requests of a server. Raises `HardwareRefused` if ``strict`` and an alias is not configured.

    If not ``strict``, such a request fits no host: an operator has removed the alias since the server was created.
    """
    values = (flavor.extra_specs.get(_POLICIES[0]), None if image is None else image.properties.get(_POLICIES[1]))
    policy = next((value for value in values if value is not None), None)
    own = mem_encryption.requests(flavor, image)
    return [*_of_aliases(conf, flavor, policy, strict), *_of_vgpus(flavor, policy), *own]


def of_port(port_id: str | None, vnic_type: str, physical_network: str | None) -> PCIRequest:
    """Return the request of a port for a device of its physical network."""
    kind = PCIKind(
        vendor_id="", product_id="", dev_type=PORT_DEVICES[vnic_type], physical_network=physical_network or ""
    )
    return PCIRequest(alias=f"{OF_PORT}{port_id}", count=1, kinds=[kind])


def wants_devices(flavor: Flavor) -> bool:
    """Return whether servers of a flavor have devices of their hosts."""
    return ALIAS in flavor.extra_specs or bool(_of_vgpus(flavor, None))


def _of_vgpus(flavor: Flavor, policy: str | None) -> list[PCIRequest]:
    """Return the requests for vGPUs. They are near to the guest's NUMA cells only if possible."""
    return [
        PCIRequest(
            alias=key,
            count=int(count),
            kinds=[PCIKind(vendor_id="", product_id="", resource_class=key.removeprefix(RESOURCES))],
            numa_policy=policy or NUMA_PREFERRED,
        )
        for key, count in flavor.extra_specs.items()
        if key.startswith(RESOURCES)
        and (definition := table.find_extra_spec(key)) is not None
        and definition.name in table.VGPU_CLASSES
        and definition.values.accepts(count)
        and int(count)
    ]


def _of_aliases(conf: cfg.ConfigOpts, flavor: Flavor, policy: str | None, strict: bool) -> list[PCIRequest]:
    text = flavor.extra_specs.get(ALIAS)
    if text is None:
        return []
    aliases = _aliases(tuple(conf.pci.alias))
    found = []
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        if strict and (name not in aliases or not count.isdecimal()):
            raise exceptions.HardwareRefused(
                reason=f"Extra spec '{ALIAS}' is {text}, and [pci] alias does not define {name}."
                if count.isdecimal()
                else f"Extra spec '{ALIAS}' is {text}: it takes aliases with numbers of devices, as gpu:1."
            )
        alias = aliases.get(name, _Alias(NUMA_LEGACY, []))
        numa_policy = policy or alias.numa_policy
        found.append(
            PCIRequest(
                alias=name, count=int(count) if count.isdecimal() else 1, kinds=alias.kinds, numa_policy=numa_policy
            )
        )
    return found


def check_live_migration(wanted: Iterable[PCIRequest]) -> None:
    """Raise `HardwareRefused` unless the devices of a guest can be migrated while it runs."""
    for request in wanted:
        if request.alias.startswith(OF_PORT):
            raise exceptions.HardwareRefused(
                reason=f"Migration pre-check error: the server's port {request.alias.removeprefix(OF_PORT)} has a "
                "device of its host, which cannot be migrated while the server runs. Migrate it while it is off."
            )
        if request.alias.startswith(RESOURCES):
            raise exceptions.HardwareRefused(
                reason="Migration pre-check error: the server has vGPUs, which cannot be migrated while it runs. "
                "Migrate it while it is off."
            )
        if not request.may_migrate_live:
            raise exceptions.HardwareRefused(
                reason=f"Migration pre-check error: the server has PCI devices {request.alias}, which cannot be "
                "migrated while it runs: live_migratable of this [pci] alias is not yes. Migrate it while it is off."
            )


@functools.lru_cache(maxsize=4)
def _aliases(entries: tuple[str, ...]) -> dict[str, _Alias]:
    """Parse the values of ``[pci] alias``."""
    aliases: dict[str, _Alias] = {}
    for entry in entries:
        values = parse_object("alias", entry)
        name, alias = _alias_of(values, entry)
        known = aliases.setdefault(name, alias)
        if known is alias:
            continue
        if known.numa_policy != alias.numa_policy:
            raise mistake("alias", entry, f"another entry of {name} has numa_policy {known.numa_policy}")
        if known.kinds[0].dev_type != alias.kinds[0].dev_type:
            raise mistake("alias", entry, f"another entry of {name} has another device_type")
        known.kinds.extend(alias.kinds)
    return aliases


def _alias_of(values: dict[str, Any], entry: str) -> tuple[str, _Alias]:
    if beyond := sorted(values.keys() & _PLACEMENT_KEYS):
        raise mistake("alias", entry, f"{beyond[0]} is not supported: ids name the kinds of devices")
    if unknown := sorted(values.keys() - _KEYS):
        raise mistake("alias", entry, f"{unknown[0]} is unknown; known are {', '.join(sorted(_KEYS))}")
    name = str(values.get("name", "")).strip()
    if not name or set(name) & set(":,"):
        raise mistake("alias", entry, "it needs a name, without ':' and ','")
    _one_of("alias", entry, "capability_type", values, ("pci",))
    kind = PCIKind(
        vendor_id=hex_id("alias", entry, "vendor_id", values),
        product_id=hex_id("alias", entry, "product_id", values),
        dev_type=_one_of("alias", entry, "device_type", values, (TYPE_PCI, TYPE_PF, TYPE_VF)),
        live_migratable=flag("alias", entry, "live_migratable", values),
    )
    policy = _one_of("alias", entry, "numa_policy", values, (NUMA_REQUIRED, NUMA_PREFERRED, NUMA_LEGACY))
    return name, _Alias(policy or NUMA_LEGACY, [kind])


# --- values of both options


def parse_object(option: str, entry: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `ConfigurationError`."""
    try:
        return msgspec.json.decode(entry, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise mistake(option, entry, f"it is not a JSON object ({error})") from error


def hex_id(option: str, entry: str, key: str, values: dict[str, Any], default: str | None = None) -> str:
    """Return an id of four hexadecimal digits, or the default. Raises `ConfigurationError`."""
    value = values.get(key, default)
    if default is not None and value == default:
        return default
    try:
        number = int(value, 16) if isinstance(value, str) else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise mistake(option, entry, f"{key} has to be a hexadecimal number up to ffff")
    return f"{number:04x}"


def flag(option: str, entry: str, key: str, values: dict[str, Any]) -> bool | None:
    """Return a boolean such as ``yes``; None if there is none. Raises `ConfigurationError`."""
    if key not in values:
        return None
    try:
        return strutils.bool_from_string(values[key], strict=True)
    except ValueError as error:
        raise mistake(option, entry, f"{key} has to be yes or no") from error


def _one_of(option: str, entry: str, key: str, values: dict[str, Any], words: Sequence[str]) -> str | None:
    value = values.get(key)
    if value is not None and value not in words:
        raise mistake(option, entry, f"{key} has to be one of {', '.join(words)}")
    return value


def mistake(option: str, entry: str, reason: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[pci] {option} = {entry}: {reason}.")


# --- choice


def place(
    wanted: Sequence[PCIRequest],
    devices: Sequence[PCIDevice],
    used: Collection[str],
    numa: NUMARequest | None,
    cells: Sequence[NUMACell],
    usage: NUMAUsage,
    ratios: Ratios,
) -> tuple[InstanceNUMATopology | None, list[PCIDevice]]:
    """Return a place in the host's NUMA cells, if requested, and a free device for each request. Raises `FitError`.

    ``used``: addresses of claimed devices. The devices are near to the guest's cells as far as the policies demand.
    """
    free = unused(devices, used)
    if numa is None:
        return None, choose(wanted, free, None)
    misses: list[FitError] = []
    for requested in _by_preference(wanted):
        misses.clear()
        for some in _candidates(cells, len(numa.cells) if wanted else len(cells)):
            try:
                topology = fitting.fit(numa, some, usage, ratios)
                return topology, choose(requested, free, {cell.cell for cell in topology.cells})
            except FitError as miss:
                misses.append(miss)
    raise misses[0]


def place_on_host(
    wanted: Sequence[PCIRequest], numa: NUMARequest | None, host: HostState
) -> tuple[InstanceNUMATopology | None, list[PCIDevice]]:
    """Call `place` with the scheduler's view of the host."""
    ratios = Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio)
    return place(wanted, host.pci, host.pci_used, numa, host.numa, host.numa_used, ratios)


def _by_preference(wanted: Sequence[PCIRequest]) -> Iterator[Sequence[PCIRequest]]:
    """Yield the requests with preferences as requirements, if there are any, and then as they are."""
    if any(request.numa_policy == NUMA_PREFERRED for request in wanted):
        yield [
            msgspec.structs.replace(request, numa_policy=NUMA_REQUIRED)
            if request.numa_policy == NUMA_PREFERRED
            else request
            for request in wanted
        ]
    yield wanted


def _candidates(cells: Sequence[NUMACell], count: int) -> Iterator[Sequence[NUMACell]]:
    """Yield all cells, of which a placement prefers the fullest, and then each combination."""
    yield cells
    if len(cells) > count:
        yield from itertools.combinations(cells, count)


def unused(devices: Sequence[PCIDevice], used: Collection[str]) -> list[PCIDevice]:
    """Return the devices that are not claimed. A physical function and its virtual functions exclude each other."""
    parents = {device.parent for device in devices if device.address in used and device.parent is not None}
    return [
        device
        for device in devices
        if device.address not in used and device.address not in parents and device.parent not in used
    ]


def choose(wanted: Sequence[PCIRequest], free: Sequence[PCIDevice], near: Collection[int] | None) -> list[PCIDevice]:
    """Return devices for all requests, with the aliases. ``near``: the guest's NUMA cells. Raises `FitError`.

    Physical functions are chosen first, because their virtual functions are not free then.
    """
    ordered = sorted(wanted, key=lambda request: all(kind.dev_type != TYPE_PF for kind in request.kinds))
    chosen: list[PCIDevice] = []
    for _, group in itertools.groupby(ordered, key=lambda request: any(k.dev_type == TYPE_PF for k in request.kinds)):
        left = unused([*free, *chosen], {device.address for device in chosen}) if chosen else free
        chosen += _matched(list(group), left, near)
    return chosen


def _matched(wanted: Sequence[PCIRequest], free: Sequence[PCIDevice], near: Collection[int] | None) -> list[PCIDevice]:
    """Return a different device for each unit of the requests. Uses augmenting paths."""
    units = [request for request in wanted for _ in range(request.count)]
    options = {request.alias: _options(request, free, near) for request in wanted}
    owner: dict[str, int] = {}

    def assign(number: int, seen: set[str]) -> bool:
        for device in sorted(options[units[number].alias], key=lambda option: option.address in owner):
            if device.address in seen:
                continue
            seen.add(device.address)
            if device.address not in owner or assign(owner[device.address], seen):
                owner[device.address] = number
                return True
        return False

    for number, request in enumerate(units):
        if not assign(number, set()):
            raise _miss(request, options[request.alias], near)
    by_address = {device.address: device for device in free}
    return [
        msgspec.structs.replace(by_address[address], alias=units[number].alias)
        for address, number in sorted(owner.items(), key=lambda item: (item[1], item[0]))
    ]


def _options(request: PCIRequest, free: Sequence[PCIDevice], near: Collection[int] | None) -> list[PCIDevice]:
    """Return the devices that fit a request: near ones first, those of an unknown cell last."""
    found = [device for device in free if request.matches(device)]
    if near is None or request.numa_policy == NUMA_PREFERRED:
        return sorted(found, key=lambda device: (near is not None and device.numa_cell not in near, device.address))
    allowed = {*near} if request.numa_policy == NUMA_REQUIRED else {*near, None}
    return sorted(
        (device for device in found if device.numa_cell in allowed),
        key=lambda device: (device.numa_cell is None, device.address),
    )


def _miss(request: PCIRequest, options: Sequence[PCIDevice], near: Collection[int] | None) -> FitError:
    if not request.kinds:
        return FitError(f"PCI alias {request.alias} is not configured any more")
    where = "" if near is None or request.numa_policy == NUMA_PREFERRED else " in the guest's NUMA cells"
    what = request.kinds[0].resource_class or f"PCI devices {request.alias}"
    if request.alias.startswith(OF_PORT):
        (kind,) = request.kinds
        what = f"devices ({kind.dev_type}) of physical network {kind.physical_network}"
    return FitError(f"{request.count} {what} requested, {len(options)} free{where}")
