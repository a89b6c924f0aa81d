"""Comparison of ten processor generations: that of the scheduler, and that of libvirt at each host."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from nova_lite.hardware import continuing
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
        expected = features_of(generation)[0] | {"hypervisor"}
        assert continuing.names(host.cpu.features) == expected, generation
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
