"""Weighers: raw weights, normalisation and multipliers."""

from __future__ import annotations

import pytest

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.weights.base import HostWeigher
from nova_lite.scheduler.weights.resources import CPUWeigher, DiskWeigher, RAMWeigher

from .builders import host, spec


@pytest.mark.parametrize(
    ("weigher", "field", "weight"),
    [(RAMWeigher(), "memory_mb_used", 8142), (CPUWeigher(), "vcpus_used", -34), (DiskWeigher(), "disk_gb_used", 50)],
)
def test_raw_weight_is_the_free_amount(weigher: HostWeigher, field: str, weight: float) -> None:
    assert weigher.weight(host(**{field: 50}), spec()) == weight


def test_weights_are_normalised_multiplied_and_added() -> None:
    hosts = [host(1, memory_mb_used=0, vcpus_used=16), host(2, memory_mb_used=4096), host(3, memory_mb_used=8192)]
    ranking = core.Ranking([RAMWeigher(2.0), CPUWeigher(1.0)], hosts, spec())
    assert [-cost for cost in ranking.costs] == pytest.approx([2.0, 2.0, 1.0])
    assert [ranking.cost(host) for host in hosts] == ranking.costs


def test_equal_weights_do_not_count() -> None:
    ranking = core.Ranking([RAMWeigher(1000.0)], [host(1), host(2)], spec())
    assert ranking.costs == [0.0, 0.0]
    assert ranking.cost(host(1, memory_mb_used=512)) > 0.0, "but a difference that comes up shows"


def test_negative_multiplier_stacks() -> None:
    ranking = core.Ranking([RAMWeigher(-1.0)], [host(1), host(2, memory_mb_used=512)], spec())
    assert ranking.costs[1] < ranking.costs[0]


def test_ranking_of_no_hosts_is_empty() -> None:
    assert core.Ranking([RAMWeigher()], [], spec()).costs == []


def test_host_that_gets_fuller_than_the_worst_sinks_below_it() -> None:
    class Fixed(HostWeigher):
        def weight(self, host: HostState, spec: RequestSpec) -> float:
            return host.memory_mb - host.memory_mb_used

    ranking = core.Ranking([Fixed()], [host(1), host(2, memory_mb_used=512)], spec())
    assert ranking.cost(host(1, memory_mb_used=1024)) > ranking.costs[1]
