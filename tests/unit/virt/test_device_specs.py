"""The option ``[pci] device_spec``: which devices of a machine it offers, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import PCIDevice
from nova_lite.objects.pci import TYPE_PF, TYPE_VF
from nova_lite.virt import device_specs
from nova_lite.virt.device_specs import FoundDevice
from tests.support import make

CARD = "0000:c1:00.0"
MACHINE = [
    FoundDevice(PCIDevice(address="0000:41:00.0", vendor_id="10de", product_id="1eb8", numa_cell=0)),
    FoundDevice(PCIDevice(address="0000:81:00.0", vendor_id="10de", product_id="1db6", numa_cell=1)),
    FoundDevice(PCIDevice(address="0001:81:00.1", vendor_id="8086", product_id="0443")),
    FoundDevice(PCIDevice(address=CARD, vendor_id="8086", product_id="1592", dev_type=TYPE_PF), ("ens1",)),
    FoundDevice(
        PCIDevice(address="0000:c1:01.0", vendor_id="8086", product_id="1889", dev_type=TYPE_VF, parent=CARD),
        ("ens1v0", "ens1"),
    ),
]


def parse(*values: Any) -> list[device_specs.DeviceSpec]:
    conf = make.conf("sqlite://")
    conf.set_override(
        "device_spec", [value if isinstance(value, str) else json.dumps(value) for value in values], "pci"
    )
    return device_specs.parse(conf)


def offered(*values: Any) -> list[str]:
    return [device.address for device in device_specs.offered(parse(*values), MACHINE)]


ALL = sorted(found.device.address for found in MACHINE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, ALL),
        ({"vendor_id": "10de"}, ["0000:41:00.0", "0000:81:00.0"]),
        ({"vendor_id": "10DE", "product_id": "1EB8"}, ["0000:41:00.0"]),
        ({"vendor_id": "*", "product_id": "443"}, ["0001:81:00.1"]),
        ({"address": "*:81:00.*"}, ["0000:81:00.0", "0001:81:00.1"]),
        ({"address": ":81:00."}, ["0000:81:00.0", "0001:81:00.1"]),
        ({"address": "81:00"}, ["0000:81:00.0", "0001:81:00.1"]),
        ({"address": "0:81:0.0"}, ["0000:81:00.0"]),
        ({"address": "*:*:*.1"}, ["0001:81:00.1"]),
        ({"address": {"bus": "[48]1", "domain": "0000"}}, ["0000:41:00.0", "0000:81:00.0"]),
        ({"address": {"domain": ".*", "bus": "c1", "slot": "0[1-2]", "function": ".*"}}, ["0000:c1:01.0"]),
        ({"address": "0000:c1:00.0"}, [CARD, "0000:c1:01.0"]),
        ({"address": "0000:C1:00.0", "product_id": "1889"}, ["0000:c1:01.0"]),
        ({"devname": "ens1"}, [CARD, "0000:c1:01.0"]),
        ({"devname": "ens1v0"}, ["0000:c1:01.0"]),
        ({"devname": "ens2"}, []),
        ([{"product_id": "1eb8"}, {"product_id": "0443"}], ["0000:41:00.0", "0001:81:00.1"]),
    ],
)
def test_device_spec_matches_devices_as_with_nova(value: Any, expected: list[str]) -> None:
    assert offered(value) == expected


def test_device_spec_describes_its_devices() -> None:
    tags = {"physical_network": "net1", "managed": "no", "live_migratable": "yes", "trusted": "false"}
    specs = parse({"address": "0000:c1:01.0", **tags}, {"vendor_id": "8086"}, {"address": "*:c1:*.*", "managed": "no"})
    found = {device.address: device for device in device_specs.offered(specs, MACHINE)}
    function, card = found["0000:c1:01.0"], found[CARD]
    assert (function.physical_network, function.managed, function.live_migratable) == ("net1", False, True)
    assert (function.parent, function.dev_type) == (CARD, TYPE_VF)
    assert (card.physical_network, card.managed, card.live_migratable) == (None, True, False), "the first match counts"


def test_device_spec_that_is_missing_offers_nothing() -> None:
    assert offered() == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "neither a JSON object nor a list of objects"),
        ("[1]", "neither a JSON object nor a list of objects"),
        ({"address": "*:81:00.*", "devname": "ens1"}, "address and devname exclude each other"),
        ({"address": "0:0:0:0.0"}, "domain:bus:slot.function"),
        ({"address": "0000:81:2f.0"}, "the slot of its address has to be * or a hexadecimal number up to 1f"),
        ({"address": "0000:81:00.8"}, "the function of its address has to be * or a hexadecimal number up to 7"),
        ({"address": "0000:8?:00.0"}, "the bus of its address"),
        ({"address": "10000:81:00.0"}, "the domain of its address"),
        ({"address": 81}, "address has to be a text or an object"),
        ({"address": {"bus": "["}}, "address is not a regular expression"),
        ({"address": {"bus": 81}}, "address is not a regular expression"),
        ({"address": {"device": "0"}}, "address has device; its parts are domain, bus, slot, function"),
        ({"vendor_id": "x"}, "vendor_id has to be a hexadecimal number"),
        ({"product_id": None}, "product_id has to be a hexadecimal number"),
        ({"devname": 1}, "devname has to be a text"),
        ({"managed": "maybe"}, "managed has to be yes or no"),
        ({"live_migratable": "maybe"}, "live_migratable has to be yes or no"),
        ({"trusted": "true"}, "trusted is not supported, because no port is trusted"),
        ({"remote_managed": "true"}, "remote_managed is not supported"),
        ({"resource_class": "PGPU"}, "resource_class is not supported, because ids name the kinds"),
        ({"traits": "X"}, "traits is not supported"),
        ({"colour": "red"}, "colour is unknown"),
    ],
)
def test_mistake_in_a_device_spec_is_one_clear_line(value: Any, says: str) -> None:
    with pytest.raises(exceptions.ConfigurationError) as mistake:
        parse(value)
    assert mistake.value.message.startswith("[pci] device_spec = ")
    assert says in mistake.value.message
    assert "\n" not in mistake.value.message
