"""Queries of a host for its port filters."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.compute import port_filters
from nova_lite.compute.port_filters import PortFilterSync
from nova_lite.conductor.network.member_history import MemberHistory
from nova_lite.objects import PortFilters, QosLimits, SecurityGroup
from nova_lite.objects.security_group import LARGE, UNKNOWN, NetworkMembers
from nova_lite.virt.driver import Unsupported
from tests.support.compute_host import make_instance


class Driver:
    """Driver without filters at first."""

    def __init__(self) -> None:
        self.plugged = ["a"]
        self.applied: list[PortFilters] = []

    def instances(self) -> list[str]:
        return self.plugged

    def are_missing(self) -> bool:
        return bool(self.plugged) and not (self.applied and set(self.plugged) <= self.applied[-1].instances.keys())

    def apply(self, filters: PortFilters) -> None:
        self.applied.append(filters)


def group(project: str, *members: str) -> SecurityGroup:
    known = {"n": NetworkMembers(members=[*members])}
    return SecurityGroup(id=f"{project}-default", name="default", project_id=project, members_by_network=known)


def members_of(filters: PortFilters) -> list[str]:
    """Return the members of all groups."""
    lists = [item for group in filters.groups.values() for item in (group.members_by_network or {}).values()]
    return [member for item in lists for member in item.members]


class Conductor:
    """Conductor with port filters.

    ``projects``: by server. Each project has one group, whose members are its servers in ``members``.
    """

    def __init__(self) -> None:
        self.queries: list[list[str]] = []
        self.history = MemberHistory()
        #: Number of members in each reply.
        self.sent: list[int] = []
        self.error: Exception | None = None
        self.projects: dict[str, str] = {}
        self.members: list[str] = []
        #: The database's time in seconds. None: an older conductor does not send it.
        self.time: int | None = 0

    def port_filters_get(
        self,
        context: Any,
        host: str,
        instance_uuids: list[str],
        known: dict[str, str] | None = None,
        known_members: dict[str, dict[str, str]] | None = None,
    ) -> PortFilters:
        self.queries.append(instance_uuids)
        if self.error is not None:
            raise self.error
        assert known_members is not None
        (reply,) = self.history.reduced([(self.filters(instance_uuids), known_members)])
        self.sent.append(len(members_of(reply)))
        return reply

    def filters(self, instance_uuids: list[str]) -> PortFilters:
        projects = {self.projects[uuid] for uuid in instance_uuids if uuid in self.projects}
        groups = [group(project, *(m for m in self.members if self.projects[m] == project)) for project in projects]
        return PortFilters(
            groups={member.id: member for member in groups},
            instances={
                uuid: [f"{self.projects[uuid]}-default"] if uuid in self.projects else [] for uuid in instance_uuids
            },
            floating={f"port-{uuid}": uuid for uuid in self.members},
            read_at=None if self.time is None else datetime.datetime(2026, 1, 1, 0, 0, self.time),
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(port_filters.time, "monotonic", lambda: now[0])
    return now


def keeper(driver: Any, conductor: Conductor) -> PortFilterSync:
    return PortFilterSync("h1", SimpleNamespace(filters=driver), conductor, 60.0)  # type: ignore[arg-type]


def steady(driver: Any, conductor: Conductor) -> PortFilterSync:
    """Return an instance after its first interval, which has a random length."""
    sync = keeper(driver, conductor)
    sync._first = 60.0
    return sync


def test_filters_are_queried_at_start_after_a_notification_and_periodically(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    for _ in range(3):
        sync.tick()
    assert (conductor.queries, len(driver.applied)) == ([["a"]], 1)
    sync.refresh_soon()
    sync.tick()
    assert len(conductor.queries) == 2
    clock[0] += 59
    sync.tick()
    assert len(conductor.queries) == 2
    clock[0] += 1
    sync.tick()
    sync.tick()
    assert len(conductor.queries) == 3


def test_new_interface_is_queried_at_once(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    sync.tick()
    driver.plugged = ["a", "b"]
    sync.tick()
    sync.tick()
    assert conductor.queries == [["a"], ["a", "b"]]


def plug(driver: Driver, sync: PortFilterSync, uuid: str, project: str) -> None:
    driver.plugged = [*driver.plugged, uuid]
    sync.interfaces_plugged(make_instance(uuid, project_id=project))


def test_new_guest_queries_its_project_and_keeps_other_filters(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "p", "d": "q"}
    conductor.members = ["a"]
    sync.tick()
    conductor.members = ["a", "b"]
    plug(driver, sync, "b", "q")
    sync.tick()
    assert conductor.queries == [["a"], ["b"]]
    assert driver.applied[-1].groups == {"p-default": group("p", "a"), "q-default": group("q", "b")}
    assert driver.applied[-1].instances == {"a": ["p-default"], "b": ["q-default"]}
    assert driver.applied[-1].floating == {"port-a": "a", "port-b": "b"}

    conductor.members = ["a", "b", "c", "d"]
    plug(driver, sync, "c", "p")
    plug(driver, sync, "d", "q")
    driver.plugged.remove("b")
    sync.tick()
    assert conductor.queries[2:] == [["a", "c", "d"]]
    assert driver.applied[-1].groups == {"p-default": group("p", "a", "c"), "q-default": group("q", "b", "d")}
    assert driver.applied[-1].instances == {"a": ["p-default"], "c": ["p-default"], "d": ["q-default"]}
    sync.tick()
    assert len(conductor.queries) == 3


def test_guests_without_a_group_are_queried_with_any_new_guest(clock: list[float]) -> None:
    """An interface of theirs may be in a group of the new guest's project."""
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"b": "q"}
    sync.tick()
    plug(driver, sync, "b", "q")
    sync.tick()
    assert conductor.queries == [["a"], ["a", "b"]]


@pytest.mark.parametrize("why", ["notification", "somebody else", "time", "failure"])
def test_new_guest_queries_everything_for_another_reason(why: str, clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "q"}
    sync.tick()
    plug(driver, sync, "b", "q")
    if why == "notification":
        sync.refresh_soon()
    elif why == "somebody else":
        driver.plugged.append("c")
    elif why == "time":
        clock[0] += 60
    else:
        conductor.error = RuntimeError("x")
        with pytest.raises(RuntimeError):
            sync.tick()
        conductor.error = None
        clock[0] += port_filters.RETRY_PAUSE
    sync.tick()
    assert conductor.queries[-1] == driver.plugged


def test_host_without_guests_queries_nothing(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    driver.plugged = []
    keeper(driver, conductor).tick()
    keeper(Unsupported(), conductor).tick()
    assert conductor.queries == []


@pytest.mark.parametrize("error", [exceptions.MessagingUnavailable(what="x"), RuntimeError("x")])
def test_failed_query_is_repeated_after_a_pause(clock: list[float], error: Exception) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.error = error
    with pytest.raises(type(error)):
        sync.tick()
    sync.tick()
    assert len(conductor.queries) == 1
    conductor.error = None
    clock[0] += port_filters.RETRY_PAUSE
    sync.tick()
    assert len(conductor.queries) == 2
    assert len(driver.applied) == 1


# --- filters of build commands


@pytest.fixture
def synced(clock: list[float]) -> tuple[Driver, Conductor, PortFilterSync]:
    """Provide a host with a guest of project p and one of project q, after its first query."""
    driver, conductor = Driver(), Conductor()
    driver.plugged = ["a", "b"]
    sync = steady(driver, conductor)
    conductor.projects = {"a": "p", "b": "q", "c": "q", "d": "q", "e": "p"}
    conductor.members = ["a", "b"]
    sync.tick()
    conductor.queries.clear()
    driver.applied.clear()
    conductor.time, conductor.members = 1, ["a", "b", "c"]
    return driver, conductor, sync


Synced = tuple[Driver, Conductor, PortFilterSync]


def test_filters_of_a_build_command_are_not_queried(synced: Synced) -> None:
    driver, conductor, sync = synced
    update = conductor.filters(["b", "c"])
    update.qos = update.floating_qos = {"port": QosLimits(dscp=8)}
    sync.commands_received(["c"], update)
    sync.tick()
    assert driver.applied[-1].qos == driver.applied[-1].floating_qos == update.qos
    assert driver.applied[-1].groups == {"p-default": group("p", "a"), "q-default": group("q", "b", "c")}
    assert driver.applied[-1].instances == {"a": ["p-default"], "b": ["q-default"], "c": ["q-default"]}
    assert driver.applied[-1].read_at is None, "otherwise it would differ each time"
    plug(driver, sync, "c", "q")
    sync.tick()
    sync.tick()
    assert (conductor.queries, len(driver.applied)) == ([], 1)


def test_filters_of_several_builds_in_one_message(synced: Synced) -> None:
    driver, conductor, sync = synced
    sync.commands_received(["c", "d"], conductor.filters(["b", "c", "d"]))
    plug(driver, sync, "d", "q")
    sync.tick()
    plug(driver, sync, "c", "q")
    sync.tick()
    assert (conductor.queries, driver.applied[-1].instances.keys()) == ([], {"a", "b", "c", "d"})


def test_filters_of_a_build_survive_other_replies(synced: Synced) -> None:
    driver, conductor, sync = synced
    sync.commands_received(["c"], conductor.filters(["b", "c"]))
    sync.tick()
    conductor.time = 2
    plug(driver, sync, "e", "p")
    sync.tick()
    assert conductor.queries == [["a", "e"]]
    plug(driver, sync, "c", "q")
    sync.tick()
    assert len(conductor.queries) == 1 and driver.applied[-1].instances.keys() == {"a", "b", "c", "e"}


@pytest.mark.parametrize(
    "why", ["older", "same time", "no time", "never queried", "notification", "repeated command", "time"]
)
def test_filters_of_a_build_command_are_queried_if_outdated(synced: Synced, clock: list[float], why: str) -> None:
    """The filters may have changed since."""
    driver, conductor, sync = synced
    if why == "never queried":
        sync = steady(driver, conductor)
        driver.plugged = []
        sync.tick()
        driver.plugged = ["b"]
    conductor.time = {"older": 0, "same time": 0, "no time": None}.get(why, 1)
    filters = conductor.filters(["b", "c"])
    if why == "older":
        sync._current.read_at = datetime.datetime(2026, 1, 1, 0, 0, 5)
    sync.commands_received(["c"], filters)
    if why == "notification":
        sync.refresh_soon()
    if why == "repeated command":
        sync.commands_received(["c"], None)
    if why == "time":
        sync.tick()
        clock[0] += 60
    plug(driver, sync, "c", "q")
    sync.tick()
    assert len(conductor.queries) == 1 and "c" in conductor.queries[0]
    assert driver.applied[-1].instances["c"] == ["q-default"]


def test_failed_update_causes_a_query_of_everything(synced: Synced) -> None:
    """The stored filters do not count, because the driver has failed to apply them."""
    driver, conductor, sync = synced

    def fails(filters: PortFilters) -> None:
        raise exceptions.VirtDriverError(reason="x")

    driver.apply = fails  # type: ignore[method-assign]
    sync.commands_received(["c"], conductor.filters(["b", "c"]))
    with pytest.raises(exceptions.VirtDriverError):
        sync.tick()
    del driver.apply  # type: ignore[attr-defined]
    plug(driver, sync, "c", "q")
    sync._not_before = 0.0
    sync.tick()
    assert conductor.queries == [["a", "b", "c"]]


def test_driver_without_filters_stores_nothing(clock: list[float]) -> None:
    conductor = Conductor()
    sync = keeper(Unsupported(), conductor)
    for _ in range(3):
        sync.commands_received(["c"], conductor.filters(["c"]))
        sync.tick()
    assert not sync._received


def test_hosts_started_together_do_not_query_together(clock: list[float]) -> None:
    conductor = Conductor()
    hosts = [keeper(Driver(), conductor) for _ in range(100)]
    for host in hosts:
        host.tick()
    assert len(conductor.queries) == 100
    clock[0] += 30
    for host in hosts:
        host.tick()
    assert 110 < len(conductor.queries) < 190


def test_host_gets_only_the_changes_of_a_large_group(clock: list[float]) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    conductor.projects = {f"s{number}": "p" for number in range(1000)}
    conductor.members = [f"s{number}" for number in range(1000)]
    driver.plugged = ["s0"]

    def members() -> set[str]:
        sync.refresh_soon()
        sync.tick()
        return set(members_of(driver.applied[-1]))

    assert (members(), conductor.sent) == (set(conductor.members), [1000])
    conductor.projects["new"] = "p"
    conductor.members = [*conductor.members[2:], "new"]
    assert (members(), conductor.sent[1:]) == (set(conductor.members), [1])
    assert (members(), conductor.sent[2:]) == (set(conductor.members), [0])
    conductor.history = MemberHistory()
    conductor.members = conductor.members[1:]
    assert (members(), conductor.sent[3:]) == (set(conductor.members), [len(conductor.members)]), "another conductor"
    conductor.members = conductor.members[1:]
    assert (members(), conductor.sent[4:]) == (set(conductor.members), [0])
    conductor.members = conductor.members[:10]
    assert (members(), conductor.sent[5:]) == (set(conductor.members), [10]), "a small group is sent as a whole"


def test_names_of_a_large_network_are_queried_if_the_build_command_has_none_and_the_host_none(
    clock: list[float],
) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    sync.tick()
    whole = {"n1": NetworkMembers(members=["10.0.0.2 a "])}
    replies = [whole]
    conductor_filters = conductor.filters

    def with_names(uuids: list[str]) -> PortFilters:
        return msgspec.structs.replace(conductor_filters(uuids), names=replies[-1])

    conductor.filters = with_names  # type: ignore[method-assign]
    absent = {"n1": NetworkMembers(members=[], base=UNKNOWN), "n2": NetworkMembers(members=["10.0.1.2 b "])}
    for known in (False, True):
        conductor.time = (conductor.time or 0) + 1
        update = msgspec.structs.replace(conductor.filters([]), names=absent)
        queries = len(conductor.queries)
        sync.commands_received(["b"], update)
        sync.tick()
        sync.tick()
        assert len(conductor.queries) == queries + (not known)
        assert (driver.applied[-1].names or {})["n1"] == whole["n1"]
    assert (driver.applied[-1].names or {})["n2"] == absent["n2"]


def test_names_of_a_large_network_come_as_changes(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    driver, conductor = Driver(), Conductor()
    sync = steady(driver, conductor)
    many = [f"10.0.{number // 256}.{number % 256} s{number} " for number in range(LARGE + 1)]
    conductor_filters, lists = conductor.filters, [many, many[1:]]

    def with_names(uuids: list[str]) -> PortFilters:
        names = {"n1": NetworkMembers(members=sorted(lists[min(len(conductor.queries) - 1, 1)]))}
        return msgspec.structs.replace(conductor_filters(uuids), names=names)

    conductor.filters = with_names  # type: ignore[method-assign]
    sync.tick()
    sync.refresh_soon()
    sync.tick()
    assert [(item.names or {})["n1"].members for item in driver.applied] == [sorted(many), sorted(many[1:])]
