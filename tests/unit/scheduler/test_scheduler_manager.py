"""The scheduler manager with a scripted conductor."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import HostState
from nova_lite.scheduler import filters, weights
from nova_lite.scheduler.manager import SchedulerManager

from .builders import host, spec

CONTEXT = get_admin_context()


class Conductor:
    """A conductor whose `host_states_get` returns ``hosts`` or raises ``error``."""

    def __init__(self, hosts: list[HostState]) -> None:
        self.hosts = hosts
        self.error: exceptions.NovaLiteException | None = None
        self.reads = 0
        self.reports: list[dict[str, str]] = []

    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: float | None = None
    ) -> list[HostState]:
        self.reads += 1
        if self.error:
            raise self.error
        return [state for state in self.hosts if state.id > after][:limit]

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
    assert [type(item).__name__ for item in filters.load(conf)] == conf.scheduler.enabled_filters
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
