"""The traces of real servers are paths of the model, and with a protection out of the code they are not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.model import forbidden_runs, paths
from tests.model.paths import Event, Trace
from tests.model.protections import PROTECTIONS
from tests.model.unguarded import GUARDS
from tests.model.unreliable_cloud import ATTEMPTS, UnreliableCloud

IS_LONG = os.environ.get("NOVA_LITE_LONG") == "1"
#: Servers of the unreliable cloud.
RUNS = 200 if IS_LONG else 3


def trace(**streams: list[tuple[object, ...]]) -> Trace:
    """Return a trace of one create on host A whose values come one after another in each stream."""
    named = {name.replace("_", " "): values for name, values in streams.items()}
    return Trace({name: tuple(Event(value, 0.0, float("inf")) for value in values) for name, values in named.items()})


PLACED = ("building", 0, 1, 0, False, "create", "build")
ACTIVE = ("active", 0, 1, 0, False, "", "")
BUILT = {"rows": [PLACED, ACTIVE], "domain_A": [(1, 1), (1, 2)], "tokens_A": [(0, 1)]}


def test_path_of_a_build_is_found() -> None:
    verdict = paths.check(trace(**BUILT))
    assert verdict.refused is None
    assert verdict.path[-1] == "A: build: finish_build(built), accepted: True"


@pytest.mark.parametrize(
    ("changed", "stream"),
    [
        ({"tokens_A": []}, "rows"),  # it was reported before its host had noted it
        ({"domain_A": [(1, 1), (1, 2), (0, 0)]}, "domain A"),
        ({"domain_B": [(1, 1)]}, "domain B"),
        ({"rows": [PLACED, ("building", 1, 2, 1, False, "create", "build")]}, "rows"),
        ({"rows": [PLACED, ACTIVE, ("deleted", 0, 1, -1, True, "", "")]}, "rows"),
    ],
)
def test_path_with_a_step_that_the_model_lacks_is_refused(
    changed: dict[str, list[tuple[object, ...]]], stream: str
) -> None:
    refused = paths.check(trace(**BUILT | changed)).refused
    assert refused is not None and refused[0] == stream


def test_path_whose_values_come_in_an_impossible_order_is_refused() -> None:
    streams = dict(trace(**BUILT).streams) | {"tokens A": (Event((0, 1), 8.0, 9.0),)}
    placed = Event(PLACED, 1.0, 2.0)
    later = Trace(streams | {"rows": (placed, Event(ACTIVE, 10.0, 11.0))})
    earlier = Trace(streams | {"rows": (placed, Event(ACTIVE, 3.0, 4.0))})
    assert paths.check(later).refused is None
    assert paths.check(earlier).refused is not None


def test_path_on_which_a_host_loses_its_power_and_a_new_domain_is_found() -> None:
    lost = [PLACED, ACTIVE, ("error", 0, 1, 0, False, "", "")]
    streams = trace(**BUILT | {"rows": lost, "domain_A": [(1, 1), (1, 2), (0, 0)]}).streams
    assert paths.check(Trace(streams, crashes=1, power_cuts=True)).refused is None
    assert paths.check(Trace(streams, crashes=1)).refused is not None


def test_path_on_which_a_host_that_has_lost_its_power_starts_a_guest_again_is_found() -> None:
    started = [PLACED, ACTIVE, ("stopped", 0, 1, 0, False, "start", "perform")]
    streams = trace(**BUILT | {"rows": started, "domain_A": [(1, 1), (1, 2), (1, 1)]}).streams
    assert paths.check(Trace(streams, actions=2, crashes=1, power_cuts=True)).refused is None
    assert paths.check(Trace(streams, actions=2, crashes=1)).refused is not None


def test_path_on_which_a_host_removes_the_disks_of_a_deleted_server_whose_domain_is_lost_is_found() -> None:
    deleted = [
        *(PLACED, ACTIVE, ("active", 0, 1, 0, False, "delete", "perform")),
        ("deleted", 0, 1, 0, True, "delete", "cleanup"),
    ]
    streams = trace(**BUILT | {"domain_A": [(1, 1), (1, 2), (0, 0)], "tokens_A": [(0, 1), (0, 0)]}).streams
    lost = Trace(streams | trace(rows=deleted).streams, actions=2, crashes=1, power_cuts=True)
    assert paths.check(lost).refused is None
    assert paths.check(Trace(streams, actions=2, crashes=1, power_cuts=True)).refused is not None


def test_path_of_a_build_that_a_full_disk_ends_and_that_is_repeated_is_found() -> None:
    twice = [(1, 1), (1, 2), (0, 0), (1, 1), (1, 2)]
    streams = trace(**BUILT | {"domain_A": twice}).streams
    assert paths.check(Trace(streams, full_disk=True)).refused is None
    assert paths.check(Trace(streams)).refused is not None


def test_path_of_a_build_whose_host_asks_whether_its_command_is_open_is_found() -> None:
    asked = BUILT | {"commands_A": [(1, False)]}
    assert paths.check(trace(**asked)).refused is None


def test_path_of_a_deleted_server_whose_host_gets_a_fence_after_it_has_forgotten_its_record_is_found() -> None:
    gone = [PLACED, ACTIVE, (*ACTIVE[:5], "delete", "perform"), ("deleted", 0, 1, -1, True, "", "")]
    domains, tokens = [*BUILT["domain_A"], (0, 0)], [(0, 1), (1, 1), (1, 0)]
    commands = [(2, False), (2, True), (0, False)]
    forgotten = trace(rows=gone, domain_A=domains, tokens_A=tokens, commands_A=commands).streams
    assert paths.check(Trace(forgotten, actions=2)).refused is None


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnreliableCloud]:
    made = UnreliableCloud(tmp_path_factory.mktemp("cloud"))
    with made.recorder.recording():
        yield made
    made.close()


def judged(cloud: UnreliableCloud) -> paths.Verdict:
    """Return the verdict on the newest server."""
    return paths.check(cloud.recorder.trace(cloud.last_created, ATTEMPTS))


@pytest.mark.timeout(3600)
def test_path_of_each_server_of_an_unreliable_cloud_is_found(cloud: UnreliableCloud) -> None:
    for seed in range(RUNS):
        cloud.run(seed)
        verdict = judged(cloud)
        assert verdict.refused is None, f"seed {seed}:\n{verdict}"


@pytest.mark.parametrize("rule", GUARDS)
def test_path_needs_each_protection(cloud: UnreliableCloud, rule: str) -> None:
    """The same run is a path with the protection in the code, and none without it."""
    forbidden_runs.run(cloud, rule, contextlib.nullcontext())
    verdict = judged(cloud)
    assert verdict.refused is None, str(verdict)
    forbidden_runs.run(cloud, rule, GUARDS[rule]())
    assert judged(cloud).refused is not None


def test_guards_and_runs_are_of_rules_of_the_model() -> None:
    assert GUARDS.keys() == forbidden_runs.RUNS.keys()
    assert GUARDS.keys() <= {item.rule for item in PROTECTIONS}
