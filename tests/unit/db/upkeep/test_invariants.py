"""The audit finds each kind of damage, mends it, and lets what is right alone."""

from __future__ import annotations

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.db.core import models, quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts, services, unknown_domains
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import claims, instances, keypairs
from nova_lite.db.upkeep import invariants
from nova_lite.network.driver import Addresses
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import KeyPair, NetworkRequest, ReportNumber, Selection
from tests.support import make


@pytest.fixture
def healthy(db: Database, conf: cfg.ConfigOpts) -> str:
    """Create an ACTIVE instance with all its parts; return its uuid."""

    def fill(uow: UnitOfWork) -> str:
        hosts.record(uow, conf, make.report())
        network = builtin_networks.create(uow, make.network())
        uuid = make.instance(uow)
        row = instances.lock(uow, uuid)
        assert row is not None and claims.claim(uow, row, Selection(host="h1", node="n1"))
        LocalNetworks(conf).allocate(builtin_networks.Store(uow), uuid, [NetworkRequest(network_id=network.id)])
        quotas.take(uow, conf, "p1", {"instances": 1, "cores": 1, "ram": 64})
        key = KeyPair(name="k", user_id="u1", public_key="x", fingerprint="f")
        keypairs.create(uow, conf, make.context(), key)
        return uuid

    return db.write(fill)


def change(db: Database, uuid: str, **values: object) -> None:
    def run(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        for name, value in values.items():
            setattr(row, name, value)

    db.write(run)


def checks(db: Database) -> set[str]:
    return {problem.check for problem in db.read(invariants.find)}


def mend(db: Database) -> None:
    mended, _ = invariants.fix(db)
    assert mended
    assert db.read(invariants.find) == []


def test_healthy(db: Database, healthy: str) -> None:
    assert db.read(invariants.find) == []
    assert invariants.fix(db) == ([], [])


def test_used_counters(db: Database, healthy: str) -> None:
    db.write(lambda uow: uow.session.query(models.ComputeNode).update({"vcpus_used": 5}))
    (problem,) = db.read(invariants.find)
    assert (problem.check, problem.subject) == ("used", "host h1, node n1")
    assert "vcpus=5" in problem.found and "vcpus=1" in problem.expected
    mend(db)
    assert db.read(hosts.states)[0].vcpus_used == 1


def test_quota_counters(db: Database, conf: cfg.ConfigOpts, healthy: str) -> None:
    def damage(uow: UnitOfWork) -> None:
        uow.session.query(models.QuotaUsage).filter_by(resource="cores").delete()
        uow.session.query(models.QuotaUsage).filter_by(resource="key_pairs").update({"used": 9})
        uow.session.add(models.QuotaUsage(project_id="p9", resource="ram", used=3))

    db.write(damage)
    assert {problem.subject for problem in db.read(invariants.find)} == {
        "cores of project p1",
        "key_pairs of user u1",
        "ram of project p9",
    }
    mend(db)
    assert db.read(quotas.get, conf, "p1").quotas["cores"].used == 1


def test_task_without_action(db: Database, healthy: str) -> None:
    change(db, healthy, task_state="rebooting")
    assert checks(db) == {"task"}
    mend(db)
    instance = db.read(instances.get, make.ADMIN, healthy)
    assert (instance.vm_state, instance.task_state) == ("active", None)


def test_lost_build_ends_in_error(db: Database, healthy: str) -> None:
    change(db, healthy, task_state="spawning", vm_state="building")
    mend(db)
    instance = db.read(instances.get, make.ADMIN, healthy)
    assert (instance.vm_state, instance.task_state) == ("error", None)
    assert instance.fault is not None and "lost" in instance.fault.message


def test_open_action_explains_task_and_leftovers(db: Database, healthy: str) -> None:
    db.write(lambda uow: make.action(uow, healthy).id)
    change(db, healthy, task_state="rebooting")
    assert db.read(invariants.find) == []
    change(db, healthy, deleted=True)
    assert checks(db) == {"quota"}


def test_leftovers_of_a_deleted_instance(db: Database, healthy: str) -> None:
    change(db, healthy, deleted=True, vm_state="deleted")
    assert checks(db) == {"allocation", "port", "quota"}
    mend(db)
    (state,) = db.read(hosts.states)
    assert (state.vcpus_used, state.instances) == (0, [])


def test_missing_allocation(db: Database, healthy: str) -> None:
    db.write(claims.release, healthy)
    assert checks(db) == {"allocation"}
    mend(db)
    (state,) = db.read(hosts.states)
    assert (state.vcpus_used, state.instances) == (1, [healthy])


def test_ipv6_addresses_follow_from_mac_addresses(db: Database) -> None:
    def fill(uow: UnitOfWork) -> None:
        dual = builtin_networks.create(uow, make.network("dual", cidr6="fd00:1::/64"))
        plain = builtin_networks.create(uow, make.network("plain"))
        for network, number, address6 in (
            (dual, 2, "fd00:1::f816:3eff:fe00:2"),
            (dual, 3, "fd00:1::3"),
            (dual, 4, None),
            (plain, 5, None),
            (plain, 6, "fd00:1::6"),
        ):
            addresses = Addresses(f"10.0.0.{number}", f"fa:16:3e:00:00:{number:02x}", address6)
            builtin_networks.Store(uow).add_port(make.instance(uow), network.id, 0, addresses, None)

    db.write(fill)
    found = {(problem.found, problem.expected) for problem in db.read(invariants.find) if problem.check == "port"}
    assert found == {
        ("address fd00:1::3", "address fd00:1::f816:3eff:fe00:3"),
        ("address none", "address fd00:1::f816:3eff:fe00:4"),
        ("address fd00:1::6", "address none"),
    }
    invariants.fix(db)
    assert not [problem for problem in db.read(invariants.find) if problem.check == "port"]


def test_audit_writes_only_for_checks_that_find_something(
    db: Database, healthy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(db, healthy, task_state="spawning")
    written: list[tuple[object, ...]] = []
    write = db.write
    monkeypatch.setattr(db, "write", lambda func, *args: (written.append(args), write(func, *args))[1])
    mended, left = invariants.fix(db)
    assert ([problem.check for problem in mended], left) == (["task"], [])
    assert written == [(invariants.tasks_without_action,)]
    assert invariants.fix(db) == ([], []) and len(written) == 1
    assert invariants.find_apart(db) == []


# --- domains of hosts


def found_domains(db: Database, uuids: list[str], number: int | None = None, boot_id: str = "boot") -> None:
    """Record the unknown domains of a comparison of h1."""
    sent = None if number is None else ReportNumber(boot_id=boot_id, number=number)
    db.write(unknown_domains.record, "h1", uuids, [], [], sent)


def reported_domains(db: Database) -> list[str]:
    problems = [problem for problem in db.read(invariants.find) if problem.check == "domain"]
    assert all(problem.subject == "host h1" and problem.repair is None for problem in problems)
    return [problem.found for problem in problems]


def test_domain_of_no_server_is_found_until_its_host_has_none(db: Database, conf: cfg.ConfigOpts, healthy: str) -> None:
    found_domains(db, ["d1"])
    (problem,) = db.read(invariants.find)
    assert (problem.subject, problem.found) == ("host h1", "domain d1 of no server")
    assert "virsh dominfo d1" in problem.expected and "remove it there" in problem.expected
    assert invariants.fix(db) == ([], [problem])
    found_domains(db, ["d2", "d1"])
    assert reported_domains(db) == ["domain d1 of no server", "domain d2 of no server"]
    found_domains(db, [])
    assert db.read(invariants.find) == []


def test_domains_of_no_server_beyond_the_limit_are_only_counted(db: Database, healthy: str) -> None:
    found_domains(db, [f"d{number:03}" for number in reversed(range(unknown_domains.MAX_UUIDS + 2))])
    found = reported_domains(db)
    assert (found[0], found[-2]) == ("domain d000 of no server", "domain d099 of no server")
    assert found[-1] == "2 more domains of no server"


def test_server_whose_disks_are_missing_is_found_until_they_are_back(
    db: Database, conf: cfg.ConfigOpts, healthy: str
) -> None:
    def missing() -> list[str]:
        problems = [problem for problem in db.read(invariants.find) if problem.check == "disks"]
        assert all(problem.found == "disks that are missing on h1" and not problem.repair for problem in problems)
        return [problem.subject for problem in problems]

    for _ in range(2):
        db.write(unknown_domains.record, "h1", ["d1"], [healthy], [], None)
        assert missing() == [f"server {healthy}"] and reported_domains(db) == ["domain d1 of no server"]
    db.write(unknown_domains.record, "h1", [], [healthy], [], None)
    assert missing() == [f"server {healthy}"] and reported_domains(db) == []
    change(db, healthy, host="h2")
    assert missing() == []
    change(db, healthy, host="h1", deleted=True)
    assert missing() == []
    change(db, healthy, deleted=False)
    db.write(unknown_domains.record, "h1", ["d1"], [], [], None)
    assert missing() == [] and reported_domains(db) == ["domain d1 of no server"]


def test_late_comparison_does_not_hide_a_newer_one(db: Database, conf: cfg.ConfigOpts, healthy: str) -> None:
    report = make.report(number=5, boot_id="boot")
    db.write(hosts.record, conf, report)
    for number, boot_id in ((4, "boot"), (5, "boot"), (9, "an earlier start")):
        found_domains(db, ["d1"], number, boot_id)
        assert reported_domains(db) == []
    found_domains(db, ["d1"], 6)
    db.write(hosts.record, conf, msgspec.structs.replace(report, number=8))
    for number, boot_id in ((6, "boot"), (9, "an earlier start")):
        found_domains(db, [], number, boot_id)
        assert reported_domains(db) == ["domain d1 of no server"]
    found_domains(db, [], 9)
    assert reported_domains(db) == []


def test_domains_of_a_host_that_is_removed_or_unknown_are_not_found(db: Database, conf: cfg.ConfigOpts) -> None:
    found_domains(db, ["d1"])
    assert reported_domains(db) == []
    db.write(hosts.record, conf, make.report())
    found_domains(db, ["d1"])
    assert reported_domains(db) == ["domain d1 of no server"]
    (service,) = db.read(services.list_)
    db.write(services.delete, service.uuid)
    assert reported_domains(db) == []
