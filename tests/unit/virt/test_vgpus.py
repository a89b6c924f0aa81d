"""The options of vGPUs, and the places that they give to GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import exceptions
from nova_lite.objects import PCIDevice
from nova_lite.virt import vgpus
from nova_lite.virt.vgpus import GPU

Types = Callable[..., list[vgpus.MdevType]]

FIRST, SECOND = "0000:84:00.0", "0000:85:00.0"


@pytest.fixture
def types(tmp_path: Path) -> Types:
    """Return a function that parses a file with enabled types, and with the lines of the group of each type."""

    def parsed(enabled: str, **groups: str) -> list[vgpus.MdevType]:
        lines = [f"[devices]\nenabled_mdev_types = {enabled}"]
        lines += [f"[mdev_{name.replace('_', '-')}]\n{text}" for name, text in groups.items()]
        path = tmp_path / "compute.conf"
        path.write_text("\n".join(lines))
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf(["--config-file", str(path)])
        return vgpus.parse(conf)

    return parsed


def gpu(address: str, numa_cell: int | None = None, present: dict[str, str] | None = None, **more: int) -> GPU:
    available = {name.replace("_", "-"): number for name, number in more.items()}
    return GPU(address=address, available=available, present=present or {}, numa_cell=numa_cell)


def places(found: list[vgpus.MdevType], *gpus: GPU) -> list[str]:
    return [place.address for place in vgpus.places(found, gpus)]


def test_gpus_without_enabled_types_have_no_places(types: Types) -> None:
    assert places(types(""), gpu(FIRST, nvidia_35=4)) == []


def test_each_gpu_that_can_have_the_only_type_has_its_places(types: Types) -> None:
    found = vgpus.places(types("nvidia-35"), [gpu(SECOND, nvidia_35=1), gpu(FIRST, 1, nvidia_35=2, nvidia_36=9)])
    assert found[1] == PCIDevice(
        address=f"{FIRST}#1",
        vendor_id="",
        product_id="",
        numa_cell=1,
        parent=FIRST,
        resource_class="VGPU",
    )
    assert [place.address for place in found] == [f"{FIRST}#0", f"{FIRST}#1", f"{SECOND}#0"]
    assert places(types("nvidia-35"), gpu(FIRST, nvidia_36=9)) == []


def test_vgpu_of_a_guest_keeps_its_place_and_one_of_others_takes_a_place_away(types: Types) -> None:
    """A guest has the second place of four. The operator has made another vGPU, and one of another type."""
    present = {
        vgpus.uuid_of(f"{FIRST}#1"): "nvidia-35",
        "c60cc831-2f1c-4ad8-9ac5-ef1b3e0e5f1a": "nvidia-35",
        vgpus.uuid_of(f"{FIRST}#0"): "nvidia-36",
    }
    found = places(types("nvidia-35"), gpu(FIRST, present=present, nvidia_35=2))
    assert found == [f"{FIRST}#0", f"{FIRST}#1", f"{FIRST}#2"]


def test_types_are_divided_by_the_addresses_of_their_groups(types: Types) -> None:
    both = types(
        "nvidia-35,nvidia-36",
        nvidia_35=f"device_addresses = {FIRST}",
        nvidia_36=f"device_addresses = {SECOND}\nmdev_class = CUSTOM_BIG",
    )
    found = vgpus.places(both, [gpu(address, nvidia_35=1, nvidia_36=2) for address in (FIRST, SECOND)])
    expected = [(f"{FIRST}#0", "VGPU"), (f"{SECOND}#0", "CUSTOM_BIG"), (f"{SECOND}#1", "CUSTOM_BIG")]
    assert [(place.address, place.resource_class) for place in found] == expected


def test_maximum_of_a_type_holds_for_all_virtual_functions_of_a_mig_gpu(types: Types) -> None:
    """Each of them offers a vGPU until the GPU has all of its instances."""
    functions = [gpu(f"0000:84:00.{number}", nvidia_474=1) for number in range(8)]
    found = places(types("nvidia-474", nvidia_474="max_instances = 3"), *functions)
    assert found == ["0000:84:00.0#0", "0000:84:00.1#0", "0000:84:00.2#0"]


def test_place_is_found_by_the_uuid_of_its_vgpu(types: Types) -> None:
    longest = "ffff:ff:1f.7#255"
    assert len(longest) <= 16  # the database's column
    for place in (longest, f"{FIRST}#0"):
        assert vgpus.place_of(vgpus.uuid_of(place)) == place
    assert vgpus.uuid_of("0000:84:00.4#10") == "6e6f7661-0000-4000-8000-84000400000a"
    assert vgpus.place_of("c60cc831-2f1c-4ad8-9ac5-ef1b3e0e5f1a") is None
    assert len(places(types("nvidia-35"), gpu(FIRST, nvidia_35=1000))) == vgpus.MOST == 256


@pytest.mark.parametrize(
    ("enabled", "groups", "says"),
    [
        ("a/../b", {}, "enabled_mdev_types: 'a/../b' is not the name of a type"),
        ("a,b", {"a": f"device_addresses = {FIRST}"}, "[mdev_b] device_addresses: it is needed, because several"),
        ("a", {"a": "device_addresses = 84:00.0"}, "[mdev_a] device_addresses: 84:00.0 is not a PCI address"),
        (
            "a,b",
            {"a": f"device_addresses = {FIRST}", "b": f"device_addresses = {SECOND},{FIRST}"},
            f"[mdev_b] device_addresses: {FIRST} has the type a already",
        ),
    ],
)
def test_mistake_in_the_options_is_one_clear_line(
    types: Types, enabled: str, groups: dict[str, Any], says: str
) -> None:
    with pytest.raises(exceptions.ConfigurationError) as mistake:
        types(enabled, **groups)
    assert says in mistake.value.message
    assert "\n" not in mistake.value.message
