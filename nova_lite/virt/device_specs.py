"""The devices of a host that its operator offers to guests: the option ``[pci] device_spec``, in Nova's form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.hardware import pci
from nova_lite.objects import PCIDevice

_OPTION = "device_spec"
_ANY = "*"
_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")

#: Parts of an address: their names in a regular expression's object, their largest values, and their digits.
_PARTS = (("domain", 0xFFFF, 4), ("bus", 0xFF, 2), ("slot", 0x1F, 2), ("function", 0x7, 1))
_KEYS = {
    "vendor_id", "product_id", "address", "devname", "physical_network", "trusted", "remote_managed", "managed",
    "live_migratable",
}  # fmt: skip

#: Keys that are not supported, and the reason.
_UNSUPPORTED = {
    "resource_class": "ids name the kinds of devices",
    "traits": "ids name the kinds of devices",
}
_UNSUPPORTED_FLAGS = {
    "trusted": "no port is trusted",
    "remote_managed": "ports have devices of the host itself",
}


class FoundDevice(msgspec.Struct, frozen=True):
    """Device of a machine. ``names``: of its network interface, and of that of its physical function."""

    device: PCIDevice
    names: tuple[str, ...] = ()


class DeviceSpec(msgspec.Struct, frozen=True):
    """Part of the option: a pattern of devices, and their description.

    ``address``: a pattern for each part of an address. ``exact``: the address, if it is the only one.
    """

    vendor_id: str = _ANY
    product_id: str = _ANY
    address: tuple[re.Pattern[str], ...] = ()
    exact: str | None = None
    devname: str | None = None
    physical_network: str | None = None
    managed: bool = True
    live_migratable: bool = False

    def matches(self, found: FoundDevice) -> bool:
        device = found.device
        if self.vendor_id not in (_ANY, device.vendor_id) or self.product_id not in (_ANY, device.product_id):
            return False
        if self.devname is not None:
            return self.devname in found.names
        if self.exact is not None:
            return self.exact in (device.address, device.parent)  # a physical function stands for its virtual ones
        parts = _ADDRESS.fullmatch(device.address)
        assert parts is not None
        return all(pattern.match(part) for pattern, part in zip(self.address, parts.groups(), strict=True))


def parse(conf: cfg.ConfigOpts) -> list[DeviceSpec]:
    """Parse the option. Raises `ConfigurationError`."""
    specs = []
    for entry in conf.pci.device_spec:
        try:
            items = msgspec.json.decode(entry, type=dict[str, Any] | list[dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise _mistake(entry, f"it is neither a JSON object nor a list of objects ({error})") from error
        specs += [_spec(entry, item) for item in (items if isinstance(items, list) else [items])]
    return specs


def offered(specs: Sequence[DeviceSpec], machine: Iterable[FoundDevice]) -> list[PCIDevice]:
    """Return the devices that guests may have, by address. The first matching part of the option describes each."""
    devices = []
    for found in machine:
        spec = next((item for item in specs if item.matches(found)), None)
        if spec is not None:
            devices.append(
                msgspec.structs.replace(
                    found.device,
                    physical_network=spec.physical_network,
                    managed=spec.managed,
                    live_migratable=spec.live_migratable,
                )
            )
    return sorted(devices, key=lambda device: device.address)


def _spec(entry: str, values: dict[str, Any]) -> DeviceSpec:
    for key, reason in _UNSUPPORTED.items():
        if key in values:
            raise _mistake(entry, f"{key} is not supported, because {reason}")
    for key, reason in _UNSUPPORTED_FLAGS.items():
        if pci.flag(_OPTION, entry, key, values):
            raise _mistake(entry, f"{key} is not supported, because {reason}")
    if unknown := sorted(values.keys() - _KEYS):
        raise _mistake(entry, f"{unknown[0]} is unknown; known are {', '.join(sorted(_KEYS))}")
    if "address" in values and "devname" in values:
        raise _mistake(entry, "address and devname exclude each other")
    for key in ("devname", "physical_network"):
        if not isinstance(values.get(key), str | None):
            raise _mistake(entry, f"{key} has to be a text")
    patterns = _patterns(entry, values.get("address", ""))
    return DeviceSpec(
        vendor_id=pci.hex_id(_OPTION, entry, "vendor_id", values, _ANY),
        product_id=pci.hex_id(_OPTION, entry, "product_id", values, _ANY),
        address=patterns,
        exact=_exact(values.get("address")),
        devname=values.get("devname"),
        physical_network=values.get("physical_network"),
        managed=pci.flag(_OPTION, entry, "managed", values) is not False,
        live_migratable=bool(pci.flag(_OPTION, entry, "live_migratable", values)),
    )


def _patterns(entry: str, address: Any) -> tuple[re.Pattern[str], ...]:
    """Return a pattern for each part of an address: of a text with asterisks, or an object of regular expressions."""
    if isinstance(address, dict):
        names = [name for name, *_ in _PARTS]
        if unknown := sorted(address.keys() - set(names)):
            raise _mistake(entry, f"address has {unknown[0]}; its parts are {', '.join(names)}")
        try:
            return tuple(re.compile(address.get(name, ".*")) for name in names)
        except (re.error, TypeError) as error:
            raise _mistake(entry, f"address is not a regular expression ({error})") from error
    if not isinstance(address, str):
        raise _mistake(entry, "address has to be a text or an object of regular expressions")
    return tuple(
        re.compile(".*" if text == _ANY else _digits(entry, text, *part) + r"\Z")
        for text, part in zip(_split(entry, address), _PARTS, strict=True)
    )


def _split(entry: str, address: str) -> list[str]:
    """Return domain, bus, slot and function. Missing parts are asterisks: domain and bus may be left out."""
    front, _, function = address.partition(".")
    parts = [part.strip() for part in front.split(":")] if front else []
    if len(parts) > len(_PARTS) - 1:
        raise _mistake(entry, "address has to be of the form domain:bus:slot.function, as 0000:81:00.*")
    missing = [""] * (len(_PARTS) - 1 - len(parts))
    return [part or _ANY for part in (*missing, *parts, function.strip())]


def _digits(entry: str, text: str, name: str, largest: int, digits: int) -> str:
    try:
        number = int(text, 16)
    except ValueError:
        number = -1
    if not 0 <= number <= largest:
        raise _mistake(entry, f"the {name} of its address has to be * or a hexadecimal number up to {largest:x}")
    return f"{number:0{digits}x}"


def _exact(address: Any) -> str | None:
    """Return the address if it is a whole one."""
    text = address.strip().lower() if isinstance(address, str) else ""
    return text if _ADDRESS.fullmatch(text) else None


def _mistake(entry: str, reason: str) -> exceptions.ConfigurationError:
    return pci.mistake(_OPTION, entry, reason)
