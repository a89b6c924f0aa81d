"""Comparison of ten processor generations: that of the scheduler, and that of libvirt at each host."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.hardware import baseline, continuing
from nova_lite.objects import HOST_CPU, HostCpu
from tests.integration.libvirt.conftest import Images, MakeDriver, guest_spec
from tests.support.cpu_generations import GENERATIONS, Host, features_of, make_template

_SERVERS = ("Skylake-Server-noTSX-IBRS", "Cascadelake-Server-noTSX", "Icelake-Server-noTSX")

#: Generations on which a guest of each one can continue, besides its own. In libvirt's map, Haswell lacks f16c and
#: rdrand, which IvyBridge has.
RUNS_ON = {
    "Nehalem": ("SandyBridge", "IvyBridge", "Haswell-noTSX", *_SERVERS),
    "SandyBridge": ("IvyBridge", "Haswell-noTSX", *_SERVERS),
    "IvyBridge": _SERVERS,
    "Haswell-noTSX": _SERVERS,
    "Skylake-Server-noTSX-IBRS": _SERVERS[1:],
    "Cascadelake-Server-noTSX": _SERVERS[2:],
    "Icelake-Server-noTSX": (),
    "EPYC": ("EPYC-Rome", "EPYC-Milan"),
    "EPYC-Rome": ("EPYC-Milan",),
    "EPYC-Milan": (),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    root = tmp_path_factory.mktemp("generations")
    template = make_template(root / "template")
    with contextlib.ExitStack() as stack:
        found = {}
        for generation in GENERATIONS:
            found[generation] = Host(template, root / generation, generation)
            stack.callback(found[generation].close)
        yield found


def test_host_of_a_generation_has_the_features_of_libvirts_map(hosts: dict[str, Host]) -> None:
    for generation, host in hosts.items():
        # libvirt 10.0 leaves out what it has added to a model later, and libvirt 11 does not.
        first = features_of(generation, [None])[0] | {"hypervisor"}
        assert first <= continuing.names(host.cpu.features) <= host.features, generation
        assert host.cpu.vendor == GENERATIONS[generation]
        assert "pc-q35-6.2" in host.cpu.machines.split()


def test_pairs_of_generations_have_the_verdict_of_libvirt(hosts: dict[str, Host]) -> None:
    """The scheduler accepts the pairs that libvirt accepts, and both name the same missing features."""
    possible = set()
    for source, target in itertools.product(hosts, hosts):
        guest, host = hosts[source].guest.guest_cpu, hosts[target].cpu
        assert guest is not None
        verdict = hosts[target].ask("check", hosts[source].guest)
        obstacles = continuing.obstacles(guest, host, guest.hypervisor)
        assert bool(verdict) == bool(obstacles), (source, target, verdict, obstacles)
        if guest.vendor == host.vendor:
            named = verdict.rpartition("lacks ")[2].split(", ") if verdict else []
            assert sorted(named) == continuing.missing_features(guest, host), (source, target)
        else:
            assert "vendor" in verdict
        if not verdict:
            possible.add((source, target))
    assert possible == {(source, target) for source, targets in RUNS_ON.items() for target in (source, *targets)}


@pytest.mark.parametrize(
    "group",
    [
        ("Cascadelake-Server-noTSX",),
        ("SandyBridge", "Haswell-noTSX", "Icelake-Server-noTSX"),
        ("IvyBridge", "Haswell-noTSX"),
        ("Skylake-Server-noTSX-IBRS", "Cascadelake-Server-noTSX", "Icelake-Server-noTSX"),
        ("EPYC", "EPYC-Rome", "EPYC-Milan"),
    ],
)
def test_baseline_of_generations_has_the_features_of_libvirts_and_runs_on_each(
    hosts: dict[str, Host], group: tuple[str, ...]
) -> None:
    known = {name: hosts[name].cpu for name in group}
    found = baseline.find(known)
    assert sorted(found.features) == hosts[group[0]].ask("baseline", list(known.values()))
    for name in group:
        answer = hosts[name].ask("lacking", found.definition)
        assert answer == {"lacking": [], "features": sorted(found.features)}, name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"libvirt__cpu_mode": "host-model"},
        {"libvirt__cpu_mode": "custom", "libvirt__cpu_models": ["Nehalem"]},
        {"libvirt__cpu_mode": "none"},
    ],
    ids=lambda options: options.get("libvirt__cpu_mode", "default"),
)
def test_emulated_guest_can_continue_on_an_equal_host_and_on_no_host_without_its_features(
    make_driver: MakeDriver, images: Images, options: dict[str, Any]
) -> None:
    driver = make_driver("one", **options)
    spec = guest_spec(images, [])
    driver.guests.spawn(spec)
    report = driver.guests.devices(spec.instance.uuid)
    source = driver.live_moves.check_source(spec.instance.uuid)
    assert report is not None
    assert report.cpu == source.guest_cpu
    guest = source.guest_cpu
    assert guest is not None
    assert {"sse2", "hypervisor"} <= set(guest.features.split())
    assert guest.machine.startswith("pc-i440fx-")
    host = msgspec.convert(driver.machine.inventory().capabilities[HOST_CPU], HostCpu)
    assert continuing.obstacles(guest, host, guest.hypervisor) == []
    driver.live_moves.check_destination(source)

    more = source.cpu_xml.replace("</cpu>", '<feature policy="require" name="avx512f" /></cpu>')
    with pytest.raises(exceptions.MigrationPreCheckError, match="its processor lacks avx512f"):
        driver.live_moves.check_destination(msgspec.structs.replace(source, cpu_xml=more))
    newer = msgspec.structs.replace(guest, machine="pc-i440fx-99.0", hypervisor=99_000_000)
    with pytest.raises(exceptions.MigrationPreCheckError, match=r"no machine type pc-i440fx-99.0; .* older than 99.0"):
        driver.live_moves.check_destination(msgspec.structs.replace(source, guest_cpu=newer))
