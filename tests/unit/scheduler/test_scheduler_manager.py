"""The scheduler manager with a scripted conductor."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import Destination, HostAggregate, HostState, HostVersion, RequestSpec
from nova_lite.scheduler import core, filters, weights
from nova_lite.scheduler.manager import RESYNC_PAGE, RESYNC_PARTS, SchedulerManager

from .builders import flavor, group, host, image, spec

CONTEXT = get_admin_context()
#: Entry points of filters and weighers.
GROUPS = ("nova_lite.scheduler.filters", "nova_lite.scheduler.weights")


class Conductor:
    """A conductor whose `host_states_get` returns ``hosts`` or raises ``error``."""

    def __init__(self, hosts: list[HostState]) -> None:
        self.hosts = hosts
        self.error: exceptions.NovaLiteException | None = None
        self.reads = 0
        self.has_versions = True
        #: Ids that were read because of their versions.
        self.ids: list[int] = []
        self.reports: list[dict[str, str]] = []

    def host_states_get(
        self,
        context: RequestContext,
        after: int = 0,
        limit: int | None = None,
        ids: list[int] | None = None,
        timeout: float | None = None,
    ) -> list[HostState]:
        self.reads += 1
        if self.error:
            raise self.error
        if ids is not None:
            self.ids += ids
            return [copy.deepcopy(state) for state in self.hosts if state.id in ids]
        return [copy.deepcopy(state) for state in self.hosts if state.id > after][:limit]

    def host_versions_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: float | None = None
    ) -> list[HostVersion]:
        if not self.has_versions:
            return []
        found = (
            HostVersion(
                id=state.id,
                generation=state.generation,
                io_ops=state.io_ops,
                disk_available_least=state.disk_available_least,
            )
            for state in self.hosts
            if state.id > after
        )
        return list(found)[:limit]

    def report_service(self, context: RequestContext, **report: str) -> None:
        self.reports.append(report)


@pytest.fixture
def conf() -> Iterator[cfg.ConfigOpts]:
    options = cfg.ConfigOpts()
    configuration.register_opts(options)
    options([], default_config_files=[])
    options.set_override("host", "scheduler1")
    yield options
    options.reset()


@pytest.fixture
def conductor() -> Conductor:
    return Conductor([host(1), host(2)])


@pytest.fixture
def manager(conf: cfg.ConfigOpts, conductor: Conductor) -> SchedulerManager:
    return SchedulerManager(conf, conductor, random.Random(1))  # type: ignore[arg-type]


def test_manager_is_not_ready_before_the_hosts_are_loaded(manager: SchedulerManager, conductor: Conductor) -> None:
    with pytest.raises(exceptions.SchedulerNotReady):
        manager.select_destinations(CONTEXT, spec())
    conductor.error = exceptions.MessagingUnavailable(what="host_states_get")
    with pytest.raises(exceptions.MessagingUnavailable):
        manager.keep_fresh()
    with pytest.raises(exceptions.SchedulerNotReady):
        manager.select_destinations(CONTEXT, spec())
    conductor.error = None
    manager.keep_fresh()
    assert manager.select_destinations(CONTEXT, spec())[0].selected.host == "host1"


def test_hosts_are_read_again_after_the_resync_interval(manager: SchedulerManager, conductor: Conductor) -> None:
    manager.keep_fresh()
    manager.keep_fresh()
    assert conductor.reads == 1


def test_failed_read_is_retried_at_once(manager: SchedulerManager, conductor: Conductor) -> None:
    conductor.error = exceptions.DatabaseUnavailable()
    for _ in range(3):
        with pytest.raises(exceptions.DatabaseUnavailable):
            manager.keep_fresh()
    assert conductor.reads == 3


def test_request_is_refused_only_by_a_scheduler_that_knows_the_latest_generations(
    manager: SchedulerManager, conductor: Conductor
) -> None:
    manager.keep_fresh()
    known = sum(state.generation for state in conductor.hosts)
    with pytest.raises(exceptions.NoValidHost):
        manager.select_destinations(CONTEXT, msgspec.structs.replace(spec(33), known=known))
    manager.keep_fresh()
    assert conductor.reads == 1
    with pytest.raises(exceptions.SchedulerNotReady, match=r"reads them again\. By them: No valid host was found\."):
        manager.select_destinations(CONTEXT, msgspec.structs.replace(spec(33), known=known + 1))
    manager.keep_fresh()
    assert conductor.reads == 2
    assert manager.select_destinations(CONTEXT, msgspec.structs.replace(spec(1), known=known + 1))


def test_refusal_that_the_conductor_accepts_has_advice(manager: SchedulerManager) -> None:
    manager.keep_fresh()
    with pytest.raises(exceptions.NoValidHost) as first:
        manager.select_destinations(CONTEXT, spec(33))
    assert "Least change" not in first.value.message
    with pytest.raises(exceptions.NoValidHost) as last:
        manager.select_destinations(CONTEXT, msgspec.structs.replace(spec(33), known=1))
    assert last.value.message.endswith(" Least change: ask for 32 instead of 33 servers.")
    assert last.value.kwargs["details"].endswith("\nLeast change: ask for 32 instead of 33 servers.")


def test_request_is_refused_only_by_current_host_states(
    conf: cfg.ConfigOpts, manager: SchedulerManager, conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.keep_fresh()
    uptime = time.monotonic() + conf.scheduler.resync_interval
    monkeypatch.setattr(time, "monotonic", lambda: uptime)
    conductor.error = exceptions.MessagingUnavailable(what="host_states_get")
    with pytest.raises(exceptions.MessagingUnavailable):
        manager.keep_fresh()
    with pytest.raises(exceptions.SchedulerNotReady, match=r"may be outdated.* By them: No valid host was found\."):
        manager.select_destinations(CONTEXT, spec(33))
    with pytest.raises(exceptions.SchedulerNotReady):
        manager.select_destinations_batch(CONTEXT, [spec(1), spec(33)])
    assert manager.select_destinations(CONTEXT, spec(1))
    conductor.error = None
    manager.keep_fresh()
    with pytest.raises(exceptions.NoValidHost):
        manager.select_destinations(CONTEXT, spec(33))


def test_decision_calls_no_other_service(manager: SchedulerManager, conductor: Conductor) -> None:
    manager.keep_fresh()
    conductor.error = exceptions.MessagingUnavailable(what="anything")
    manager.select_destinations(CONTEXT, spec(4))
    assert conductor.reads == 1


def test_decision_sees_the_places_of_earlier_decisions(manager: SchedulerManager) -> None:
    manager.keep_fresh()
    chosen = [manager.select_destinations(CONTEXT, spec())[0].selected.host for _ in range(4)]
    assert chosen == ["host1", "host2", "host1", "host2"]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of instances of each decision."""
    counts: list[int] = []
    decide = core.select_destinations

    def recorded(hosts: Sequence[HostState], request: RequestSpec, *rest: Any) -> list[Destination]:
        counts.append(len(request.instance_uuids))
        return decide(hosts, request, *rest)

    monkeypatch.setattr(core, "select_destinations", recorded)
    return counts


def batch(*specs: RequestSpec) -> list[RequestSpec]:
    """Give the instances of all specs names of their own."""
    for number, item in enumerate(specs):
        item.instance_uuids = [f"{number}-{uuid}" for uuid in item.instance_uuids]
    return list(specs)


def test_alike_requests_of_a_batch_are_one_decision_whoever_owns_them(
    manager: SchedulerManager, decisions: list[int]
) -> None:
    manager.keep_fresh()
    asked = batch(spec(), spec(flavor=flavor(vcpus=2)), spec(2, project_id="other"), spec(user_id="other"))
    placements = manager.select_destinations_batch(CONTEXT, asked)
    assert decisions == [4, 1]
    for request, placement in zip(asked, placements, strict=True):
        assert [item.instance_uuid for item in placement.destinations] == request.instance_uuids
    hosts = [item.selected.host for placement in placements for item in placement.destinations]
    assert (hosts.count("host1"), hosts.count("host2")) in ((3, 2), (2, 3))


def test_requests_of_several_owners_are_decided_apart_if_hosts_are_reserved_for_projects(
    manager: SchedulerManager, conductor: Conductor, decisions: list[int]
) -> None:
    reserved = HostAggregate(id=1, name="a", metadata={"filter_tenant_id": "p1"})
    conductor.hosts = [host(1), host(2, aggregates=[reserved])]
    manager.keep_fresh()
    asked = batch(spec(project_id="p1"), spec(project_id="p2"), spec(project_id="p1"))
    placements = manager.select_destinations_batch(CONTEXT, asked)
    assert decisions == [2, 1]
    assert placements[1].destinations[0].selected.host == "host1"


def test_requests_that_do_not_all_fit_are_decided_one_by_one(manager: SchedulerManager, decisions: list[int]) -> None:
    manager.keep_fresh()
    placements = manager.select_destinations_batch(CONTEXT, batch(spec(12), spec(33), spec(4)))
    assert [len(item.destinations) for item in placements] == [12, 0, 4]
    assert placements[1].reason
    assert decisions == [49, 12, 33, 33, 4], "a refusal is decided twice: by the hosts' rows, too"


def test_requests_with_a_server_group_are_decided_alone(manager: SchedulerManager, decisions: list[int]) -> None:
    manager.keep_fresh()
    groups = [group("anti-affinity"), group("anti-affinity")]
    manager.select_destinations_batch(CONTEXT, batch(*(spec(instance_group=item) for item in groups)))
    assert decisions == [1, 1]


class Spied:
    """A request that tells who looks at its owner."""

    def __init__(self, request: RequestSpec) -> None:
        self._request = request
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in ("project_id", "user_id"):
            self.seen.add(name)
        return getattr(self._request, name)


@pytest.mark.parametrize("name", sorted(item.name for group in GROUPS for item in entry_points(group=group)))
def test_filter_or_weigher_that_looks_at_the_owner_says_so(name: str, conf: cfg.ConfigOpts) -> None:
    (point,) = (item for group in GROUPS for item in entry_points(group=group) if item.name == name)
    judge = point.load().from_conf(conf)
    reserved = HostAggregate(id=1, name="a", metadata={"filter_tenant_id": "p1", "filter_tenant_id2": "p2"})
    hosts = [host(1, aggregates=[reserved]), host(2)]
    spied = Spied(
        spec(
            image=image(hw_machine_type="q35"),
            availability_zone="nova",
            scheduler_hints={"query": '["=", "$vcpus", 16]'},
        )
    )
    if judge.applies(spied):
        for item in hosts:
            (judge.host_passes if hasattr(judge, "host_passes") else judge.weight)(item, spied)
    assert judge.judges_owner(hosts) == bool(spied.seen)
    assert not judge.judges_owner([host(3)])


def test_refused_request_consumes_nothing(manager: SchedulerManager) -> None:
    manager.keep_fresh()
    with pytest.raises(exceptions.NoValidHost):
        manager.select_destinations(CONTEXT, spec(33))
    assert len(manager.select_destinations(CONTEXT, spec(32))) == 32


def test_concurrent_decisions_never_share_a_place(conf: cfg.ConfigOpts, conductor: Conductor) -> None:
    class Slow(random.Random):
        """Lets other threads run in the middle of a decision."""

        def randrange(self, *arguments: int) -> int:
            time.sleep(0.001)
            return super().randrange(*arguments)

    conf.set_override("host_subset_size", 2, group="scheduler")
    manager = SchedulerManager(conf, conductor, Slow(1))  # type: ignore[arg-type]
    manager.keep_fresh()
    places: list[str] = []

    def ask() -> None:
        for _ in range(4):
            places.append(manager.select_destinations(CONTEXT, spec())[0].selected.host)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (places.count("host1"), places.count("host2")) == (16, 16)


def test_places_that_were_never_claimed_cause_no_refusal(manager: SchedulerManager) -> None:
    manager.keep_fresh()
    manager.select_destinations(CONTEXT, spec(32))
    assert len(manager.select_destinations(CONTEXT, spec(32))) == 32
    full = [host(number, generation=2, memory_mb_used=8192) for number in (1, 2)]
    manager.update_host_states(CONTEXT, full)
    with pytest.raises(exceptions.NoValidHost):
        manager.select_destinations(CONTEXT, spec())


def test_published_host_states_count_at_once(manager: SchedulerManager) -> None:
    manager.keep_fresh()
    manager.update_host_states(CONTEXT, [host(1, generation=2, up=False), host(2, generation=2, deleted=True)])
    with pytest.raises(exceptions.NoValidHost) as caught:
        manager.select_destinations(CONTEXT, spec())
    assert "Of 1 host, 1 failed ComputeFilter (down or disabled)." in caught.value.message


def test_heartbeat_is_sent_to_the_conductor(manager: SchedulerManager, conductor: Conductor) -> None:
    manager.report()
    (report,) = conductor.reports
    assert (report["host"], report["binary"], report["topic"]) == ("scheduler1", "nova-scheduler", "scheduler")


# --- plugins


def test_default_plugins_are_loaded_in_order(conf: cfg.ConfigOpts) -> None:
    names = [*conf.scheduler.enabled_filters, "LiveMigrationFilter"]
    assert [type(item).__name__ for item in filters.load(conf)] == names
    assert [type(item).__name__ for item in weights.load(conf)] == conf.scheduler.weight_classes


def test_multipliers_come_from_the_configuration(conf: cfg.ConfigOpts) -> None:
    for number, name in enumerate(("ram", "cpu", "disk")):
        conf.set_override(f"{name}_weight_multiplier", float(number), group="scheduler")
    assert [item.multiplier for item in weights.load(conf)][:3] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("option", ["enabled_filters", "weight_classes"])
def test_unknown_plugin_raises_a_configuration_error(conf: cfg.ConfigOpts, option: str) -> None:
    conf.set_override(option, ["RamFilter", "RAMWeigher", "Fancy"], group="scheduler")
    load = filters.load if option == "enabled_filters" else weights.load
    with pytest.raises(exceptions.ConfigurationError) as caught:
        load(conf)
    assert caught.value.message.startswith(f"[scheduler] {option}: unknown ")
    assert "Fancy. Known are " in caught.value.message
    assert ("RetryFilter" if option == "enabled_filters" else "CPUWeigher") in caught.value.message


def test_fitting_hosts_are_those_that_pass_all_filters_and_no_place_is_taken(
    manager: SchedulerManager, conductor: Conductor
) -> None:
    with pytest.raises(exceptions.SchedulerNotReady):
        manager.fitting_hosts(CONTEXT, [spec()])
    conductor.hosts = [host(1), host(2, disabled=True), host(3)]
    manager.keep_fresh()
    before = manager._hosts.snapshot()
    found = manager.fitting_hosts(
        CONTEXT, [spec(), spec(ignore_hosts=["host1"]), spec(ignore_hosts=["host1", "host3"])]
    )
    assert [sorted(names) for names in found] == [["host1", "host3"], ["host3"], []]
    assert manager._hosts.snapshot() == before


MANY = 3 * RESYNC_PAGE


def resync(manager: SchedulerManager) -> dict[int, HostState]:
    """Compare the hosts again, and return the known ones by id."""
    manager._next_resync = 0.0
    manager.keep_fresh()
    return {state.id: state for state in manager._hosts.snapshot()}


@pytest.fixture
def many(manager: SchedulerManager, conductor: Conductor) -> SchedulerManager:
    """Provide a scheduler that knows many hosts."""
    conductor.hosts = [host(number) for number in range(1, MANY + 1)]
    manager.keep_fresh()
    return manager


def test_resync_of_unchanged_hosts_reads_each_of_them_once_in_all_its_parts(
    many: SchedulerManager, conductor: Conductor
) -> None:
    for part in range(1, RESYNC_PARTS + 1):
        resync(many)
        assert len(conductor.ids) == part * MANY // RESYNC_PARTS
    assert sorted(conductor.ids) == list(range(1, MANY + 1))
    resync(many)
    assert conductor.ids[MANY:] == list(range(1, MANY // RESYNC_PARTS + 1))


def test_resync_reads_hosts_that_changed_without_a_message(many: SchedulerManager, conductor: Conductor) -> None:
    changed, older, gone = conductor.hosts[99:102]
    changed.generation, changed.vcpus_used = 7, 5
    older.generation, older.vcpus_used = -1, 3  # a database that was restored
    conductor.hosts.remove(gone)
    conductor.hosts.append(host(MANY + 1))
    known = resync(many)
    assert set(conductor.ids) - set(range(1, 1 + MANY // RESYNC_PARTS)) == {changed.id, older.id, MANY + 1}
    assert known.keys() == {state.id for state in conductor.hosts}
    assert (known[changed.id].vcpus_used, known[older.id].vcpus_used) == (5, 3)


def test_resync_takes_load_and_free_disk_of_hosts_from_their_versions(
    many: SchedulerManager, conductor: Conductor
) -> None:
    state = conductor.hosts[99]
    state.io_ops, state.disk_available_least = 3, 17
    known = resync(many)[state.id]
    assert state.id not in conductor.ids
    assert (known.io_ops, known.disk_available_least) == (3, 17)


def test_change_without_a_new_version_is_known_after_all_parts_were_read(
    many: SchedulerManager, conductor: Conductor
) -> None:
    conductor.hosts[99].flavors = {"small": 1}
    known = [resync(many)[100].flavors for _ in range(RESYNC_PARTS)]
    assert known[0] == {}
    assert known[-1] == {"small": 1}
