"""PCI aliases, and the choice of devices that a request gets."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.hardware import pci
from nova_lite.hardware.fitting import FitError, Ratios
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import Flavor, Image, NUMACell, NUMAPages
from nova_lite.objects.pci import TYPE_PCI, TYPE_PF, TYPE_VF, PCIDevice, PCIKind, PCIRequest
from tests.support import make

GPU = {"name": "gpu", "vendor_id": "10DE", "product_id": "1eb8"}
CELLS = [
    NUMACell(id=number, memory_mb=1024, shared_cpus=cpus, pages=[NUMAPages(size_kb=4, total=262144)])
    for number, cpus in enumerate(("0-3", "4-7", "8-11"))
]
ONE_NODE = NUMARequest(cells=(NUMACellRequest(0, (0,), 64),))


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    return make.conf("sqlite://")


def aliases(conf: cfg.ConfigOpts, *values: dict[str, Any] | str) -> None:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    conf.set_override("alias", texts, "pci")


def flavor(text: str | None = None, **specs: str) -> Flavor:
    own = ({} if text is None else {pci.ALIAS: text}) | {key.replace("__", ":"): value for key, value in specs.items()}
    return Flavor(flavorid="1", name="f", vcpus=1, memory_mb=64, root_gb=1, extra_specs=own)


def device(address: str, cell: int | None = None, kind: str = TYPE_PCI, **more: Any) -> PCIDevice:
    product = {TYPE_PCI: "1eb8", TYPE_PF: "1592", TYPE_VF: "1889"}[kind]
    return PCIDevice(address=address, vendor_id="10de", product_id=product, dev_type=kind, numa_cell=cell, **more)


def want(count: int = 1, policy: str = "legacy", kind: str | None = None, alias: str = "gpu") -> PCIRequest:
    product = {None: "1eb8", TYPE_PF: "1592", TYPE_VF: "1889"}[kind]
    kinds = [PCIKind(vendor_id="10de", product_id=product, dev_type=kind)]
    return PCIRequest(alias=alias, count=count, kinds=kinds, numa_policy=policy)


def chosen(wanted: list[PCIRequest], free: list[PCIDevice], near: set[int] | None = None) -> list[str]:
    return [item.address for item in pci.choose(wanted, free, near)]


# --- aliases


def test_alias_of_a_flavor_becomes_a_request(conf: cfg.ConfigOpts) -> None:
    aliases(conf, {**GPU, "numa_policy": "required", "live_migratable": "yes", "device_type": TYPE_VF})
    (request,) = pci.requests(conf, flavor("gpu:2"), None)
    kind = PCIKind(vendor_id="10de", product_id="1eb8", dev_type=TYPE_VF, live_migratable=True)
    assert request == PCIRequest(alias="gpu", count=2, kinds=[kind], numa_policy="required")
    assert request.may_migrate_live
    assert pci.requests(conf, flavor(), None) == []


def test_alias_entries_of_one_name_add_up(conf: cfg.ConfigOpts) -> None:
    aliases(conf, GPU, {**GPU, "product_id": "1db6"}, {**GPU, "name": "other"})
    first, second = pci.requests(conf, flavor("gpu:1,other:3"), None)
    assert [kind.product_id for kind in first.kinds] == ["1eb8", "1db6"]
    assert (second.alias, second.count) == ("other", 3)


@pytest.mark.parametrize("where", ["flavor", "image"])
def test_numa_policy_of_flavor_or_image_replaces_that_of_the_alias(conf: cfg.ConfigOpts, where: str) -> None:
    aliases(conf, {**GPU, "numa_policy": "preferred"})
    specs = {"hw__pci_numa_affinity_policy": "required"} if where == "flavor" else {}
    properties = {} if where == "flavor" else {"hw_pci_numa_affinity_policy": "required"}
    (request,) = pci.requests(conf, flavor("gpu:1", **specs), Image(id="i", name="i", properties=properties))
    assert request.numa_policy == "required"


def test_unknown_alias_is_refused_for_a_new_server_and_fits_no_host_later(conf: cfg.ConfigOpts) -> None:
    with pytest.raises(exceptions.HardwareRefused, match="alias does not define gpu") as refused:
        pci.requests(conf, flavor("gpu:1"), None, strict=True)
    assert refused.value.code == 400
    (request,) = pci.requests(conf, flavor("gpu:1"), None)
    with pytest.raises(FitError, match="alias gpu is not configured any more"):
        pci.choose([request], [device("0000:41:00.0")], None)


def test_alias_without_a_number_is_refused_for_a_new_server(conf: cfg.ConfigOpts) -> None:
    aliases(conf, GPU)
    with pytest.raises(exceptions.HardwareRefused, match="with numbers of devices, as gpu:1"):
        pci.requests(conf, flavor("gpu"), None, strict=True)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["{"], "is not a JSON object"),
        (['["gpu"]'], "is not a JSON object"),
        ([{"vendor_id": "10de", "product_id": "1eb8"}], "needs a name"),
        ([{**GPU, "name": "a:b"}], "needs a name"),
        ([{"name": "gpu", "vendor_id": "10de"}], "product_id has to be a hexadecimal number"),
        ([{**GPU, "vendor_id": "10dez"}], "vendor_id has to be a hexadecimal number"),
        ([{**GPU, "vendor_id": 10}], "vendor_id has to be a hexadecimal number"),
        ([{**GPU, "device_type": "type-VDPA"}], "device_type has to be one of type-PCI, type-PF, type-VF"),
        ([{**GPU, "numa_policy": "socket"}], "numa_policy has to be one of required, preferred, legacy"),
        ([{**GPU, "live_migratable": "perhaps"}], "live_migratable has to be yes or no"),
        ([{**GPU, "resource_class": "PGPU"}], "resource_class is not supported: ids name the kinds of devices"),
        ([{**GPU, "traits": "X"}], "traits is not supported"),
        ([{**GPU, "colour": "red"}], "colour is unknown"),
        ([GPU, {**GPU, "numa_policy": "required"}], "another entry of gpu has numa_policy legacy"),
        ([GPU, {**GPU, "device_type": "type-VF"}], "another entry of gpu has another device_type"),
    ],
)
def test_mistake_in_an_alias_is_one_clear_line(conf: cfg.ConfigOpts, values: list[Any], says: str) -> None:
    aliases(conf, *values)
    with pytest.raises(exceptions.ConfigurationError) as mistake:
        pci.check_aliases(conf)
    assert mistake.value.message.startswith("[pci] alias = ")
    assert says in mistake.value.message
    assert "\n" not in mistake.value.message


# --- vgpus


def place(number: int, resource_class: str = "VGPU", cell: int | None = None) -> PCIDevice:
    address = f"0000:84:00.0#{number}"
    return PCIDevice(
        address=address,
        vendor_id="",
        product_id="",
        numa_cell=cell,
        parent="0000:84:00.0",
        resource_class=resource_class,
    )


def test_resource_class_of_a_flavor_becomes_a_request_for_vgpus(conf: cfg.ConfigOpts) -> None:
    aliases(conf, {**GPU, "name": "VGPU"})
    specs = {"resources__VGPU": "2", "resources__CUSTOM_BIG": "1", "resources__CUSTOM_NONE": "0"}
    wanted = pci.requests(conf, flavor("VGPU:1", **specs), None, strict=True)
    devices = [device("0000:01:00.0"), place(0, "CUSTOM_BIG"), place(1), place(2), place(3, "CUSTOM_BIG")]
    found = [(item.address, item.alias) for item in pci.choose(wanted, devices, None)]
    assert found == [
        ("0000:01:00.0", "VGPU"),
        ("0000:84:00.0#1", "resources:VGPU"),
        ("0000:84:00.0#2", "resources:VGPU"),
        ("0000:84:00.0#0", "resources:CUSTOM_BIG"),
    ]


def test_flavor_with_devices_is_one_with_an_alias_or_vgpus() -> None:
    found = [
        pci.wants_devices(flavor(text, **specs)) for text, specs in (("gpu:1", {}), (None, {"resources__VGPU": "1"}))
    ]
    assert found == [True, True]
    others: list[dict[str, str]] = [{}, {"resources__VGPU": "0"}, {"resources__VCPU": "1"}, {"resources__VGPU": "x"}]
    assert not any(pci.wants_devices(flavor(None, **specs)) for specs in others)


def test_vgpus_are_near_to_the_guest_only_if_possible(conf: cfg.ConfigOpts) -> None:
    wanted = pci.requests(conf, flavor(resources__VGPU="1"), None)
    assert chosen(wanted, [place(0, cell=0), place(1, cell=1)], {1}) == ["0000:84:00.0#1"]
    assert chosen(wanted, [place(0, cell=0)], {1}) == ["0000:84:00.0#0"]
    strict = pci.requests(conf, flavor(resources__VGPU="1", hw__pci_numa_affinity_policy="required"), None)
    with pytest.raises(FitError, match=r"^1 VGPU requested, 0 free in the guest's NUMA cells$"):
        chosen(strict, [place(0, cell=0)], {1})


def test_gpu_and_its_vgpus_exclude_each_other() -> None:
    gpu, places = device("0000:84:00.0"), [place(0), place(1)]
    assert pci.unused([gpu, *places], {gpu.address}) == []
    assert pci.unused([gpu, *places], {places[0].address}) == [places[1]]


def test_server_with_vgpus_is_not_migrated_while_it_runs(conf: cfg.ConfigOpts) -> None:
    with pytest.raises(exceptions.HardwareRefused, match="has vGPUs, which cannot be migrated while it runs"):
        pci.check_live_migration(pci.requests(conf, flavor(resources__VGPU="1"), None))


# --- choice


def test_devices_are_chosen_by_address_and_each_once() -> None:
    free = [device(f"0000:0{number}:00.0") for number in (3, 1, 2)]
    assert chosen([want(2)], free) == ["0000:01:00.0", "0000:02:00.0"]
    with pytest.raises(FitError, match="4 PCI devices gpu requested, 3 free"):
        chosen([want(4)], free)


def test_requests_that_compete_for_devices_both_get_some() -> None:
    either = PCIRequest(alias="either", count=1, kinds=[*want().kinds, *want(kind=TYPE_VF).kinds])
    free = [device("0000:01:00.0"), device("0000:02:00.0", kind=TYPE_VF)]
    assert chosen([either, want()], free) == ["0000:02:00.0", "0000:01:00.0"]


def test_physical_function_is_chosen_only_where_an_alias_names_its_type() -> None:
    free = [device("0000:01:00.0", kind=TYPE_PF)]
    plain = PCIRequest(alias="nic", count=1, kinds=[PCIKind(vendor_id="10de", product_id="1592")])
    with pytest.raises(FitError):
        chosen([plain], free)
    assert chosen([want(kind=TYPE_PF)], free) == ["0000:01:00.0"]


def test_physical_function_and_its_virtual_functions_exclude_each_other() -> None:
    card, others = device("0000:01:00.0", kind=TYPE_PF), device("0000:02:00.0", kind=TYPE_PF)
    functions = [device(f"0000:01:01.{number}", kind=TYPE_VF, parent=card.address) for number in range(2)]
    devices = [card, others, *functions]
    assert pci.unused(devices, {card.address}) == [others]
    assert pci.unused(devices, {functions[0].address}) == [others, functions[1]]
    both = [want(kind=TYPE_VF, alias="vf"), want(kind=TYPE_PF, alias="pf")]
    with pytest.raises(FitError, match="vf"):
        chosen(both, [card, *functions])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("required", ["0000:02:00.0"]),
        ("legacy", ["0000:02:00.0", "0000:03:00.0"]),
        ("preferred", ["0000:02:00.0", "0000:01:00.0", "0000:03:00.0"]),
    ],
)
def test_numa_policy_says_which_devices_a_guest_in_a_cell_gets(policy: str, expected: list[str]) -> None:
    free = [device("0000:01:00.0", 0), device("0000:02:00.0", 1), device("0000:03:00.0")]
    assert chosen([want(len(expected), policy)], free, {1}) == expected
    with pytest.raises(FitError):
        chosen([want(len(expected) + 1, policy)], free, {1})
    assert len(chosen([want(3, policy)], free, None)) == 3, "a guest in no cell has no far devices"


@pytest.mark.parametrize("policy", ["required", "legacy", "preferred"])
def test_guest_is_placed_in_the_cell_of_the_device(policy: str) -> None:
    free = [device("0000:02:00.0", 2)]
    topology, devices = pci.place([want(1, policy)], free, (), ONE_NODE, CELLS, {}, Ratios())
    assert topology is not None
    assert ([cell.cell for cell in topology.cells], devices[0].address) == ([2], "0000:02:00.0")


def test_preferred_device_is_a_far_one_where_its_cell_is_full() -> None:
    cells = [CELLS[0]]
    topology, devices = pci.place(
        [want(1, "preferred")], [device("0000:02:00.0", 1)], (), ONE_NODE, cells, {}, Ratios()
    )
    assert topology is not None and len(devices) == 1
    with pytest.raises(FitError, match="1 PCI devices gpu requested, 0 free in the guest's NUMA cells"):
        pci.place([want(1, "required")], [device("0000:02:00.0", 1)], (), ONE_NODE, cells, {}, Ratios())


ADDRESSES = [f"0000:0{number}:00.0" for number in range(5)]
DEVICES = st.lists(
    st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(["a", "b"]), st.sampled_from([None, 0, 1])),
    unique_by=lambda item: item[0],
    max_size=5,
)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ab"]), st.integers(1, 2), st.sampled_from(["required", "legacy", "preferred"])
    ),
    min_size=1,
    max_size=3,
)


@given(DEVICES, REQUESTS, st.sampled_from([None, {0}, {0, 1}]))
@settings(max_examples=300, deadline=None)
def test_choice_is_found_exactly_if_there_is_one(
    found: list[tuple[str, str, int | None]], asked: list[tuple[str, int, str]], near: set[int] | None
) -> None:
    free = [PCIDevice(address=address, vendor_id="1", product_id=kind, numa_cell=cell) for address, kind, cell in found]
    wanted = [
        PCIRequest(
            alias=str(number),
            count=count,
            kinds=[PCIKind(vendor_id="1", product_id=kind) for kind in kinds],
            numa_policy=policy,
        )
        for number, (kinds, count, policy) in enumerate(asked)
    ]
    units = [request for request in wanted for _ in range(request.count)]
    possible = any(
        all(fits(request, item, near) for request, item in zip(units, order, strict=True))
        for order in itertools.permutations(free, len(units))
    )
    try:
        got = pci.choose(wanted, free, near)
    except FitError:
        assert not possible
        return
    assert len({item.address for item in got}) == len(got)
    assert Counter(item.alias for item in got) == {request.alias: request.count for request in wanted}
    by_alias = {request.alias: request for request in wanted}
    assert all(fits(by_alias[item.alias], item, near) for item in got)


def fits(request: PCIRequest, item: PCIDevice, near: set[int] | None) -> bool:
    if item.product_id not in {kind.product_id for kind in request.kinds}:
        return False
    if near is None or request.numa_policy == "preferred":
        return True
    return item.numa_cell in near or (item.numa_cell is None and request.numa_policy == "legacy")


def test_live_migration_needs_devices_that_can_be_migrated() -> None:
    pci.check_live_migration([])
    kind = PCIKind(vendor_id="1", product_id="2", live_migratable=True)
    pci.check_live_migration([PCIRequest(alias="nic", count=1, kinds=[kind])])
    with pytest.raises(exceptions.HardwareRefused, match="PCI devices gpu, which cannot be migrated") as refused:
        pci.check_live_migration([want()])
    assert refused.value.code == 400
