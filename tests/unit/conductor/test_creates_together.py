"""Creates that come together are accepted by one transaction, and each as if it had come alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations.create import CreateEndpoints, endpoints
from nova_lite.conductor.operations.create.incoming import IncomingCreate, incoming_create
from nova_lite.db import flavor_access, flavors, hosts, images, networks, quotas
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.network.driver import load_backend
from nova_lite.objects import BatchedCreate, CreateResult
from tests.support import make
from tests.unit.conductor.test_statements import counting

DEADLINE = 30

#: To accept one create, or several, of whatever projects: what all read is read once, and what they write, together.
ACCEPTED = 9
#: SQLite's rows are written one after the other where their ids are asked for: an instance and an action for each more.
MORE_ON_SQLITE = 2


@pytest.fixture
def create(db: Database, conf: cfg.ConfigOpts) -> CreateEndpoints:
    db.write(hosts.register_host, conf, make.report())
    db.write(flavors.create, make.flavor())
    db.write(networks.create, make.network(is_default=True))
    return CreateEndpoints(db, conf, load_backend(conf))


@pytest.fixture
def image(db: Database) -> objects.Image:
    return db.write(images.create, make.image())


def asked(image: objects.Image, project: str = "p1", name: str = "vm", flavor: str = "1") -> IncomingCreate:
    request = objects.CreateRequest(name=name, flavor_id=flavor, image_ref=image.id, min_count=1, max_count=1)
    return incoming_create(make.context(project), request)


def named(db: Database) -> list[tuple[str, str]]:
    query = sa.select(Instance.project_id, Instance.display_name).order_by(Instance.display_name)
    return [tuple(row) for row in db.read(lambda uow: uow.rows(query).all())]


def uuid_of(accepted: CreateResult | Exception) -> str:
    assert isinstance(accepted, CreateResult), accepted
    return accepted.instances[0].uuid


@pytest.mark.parametrize("projects", [1, 4])
def test_what_all_of_them_read_is_read_once(
    db: Database, create: CreateEndpoints, image: objects.Image, projects: int
) -> None:
    expected = ACCEPTED + (3 * MORE_ON_SQLITE if db.is_sqlite else 0)
    for number in range(projects):
        create._accept([asked(image, f"p{number}", "first")])  # it makes the project's counters
    with counting() as counted:
        accepted = create._accept([asked(image, f"p{number % projects}", f"vm{number}") for number in range(4)])
    assert [each.instances[0].display_name for each in accepted if isinstance(each, CreateResult)] == [
        f"vm{number}" for number in range(4)
    ]
    assert (counted.transactions, len(counted.statements)) == (1, expected), counted.statements


def test_each_is_its_own_projects(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    """The answers are those of the questions, in whatever order they are written."""
    projects = ["p3", "p1", "p2", "p1"]
    accepted = create._accept([asked(image, each, f"vm{number}") for number, each in enumerate(projects)])
    told = [each.instances[0] for each in accepted if isinstance(each, CreateResult)]
    assert [(each.project_id, each.display_name) for each in told] == [
        (project, f"vm{number}") for number, project in enumerate(projects)
    ]
    assert named(db) == [(project, f"vm{number}") for number, project in enumerate(projects)]
    used = {each: db.read(quotas.get, create.conf, each).quotas["instances"].used for each in set(projects)}
    assert used == {"p1": 2, "p2": 1, "p3": 1}


def test_one_that_is_refused_takes_no_other_along(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    bad = [asked(image, name="bad", flavor="none"), asked(image, "", "nobodys")]
    accepted = create._accept([asked(image, name="one"), *bad, asked(image, name="two")])
    assert isinstance(accepted[1], exceptions.FlavorUnavailable)
    assert isinstance(accepted[2], exceptions.Forbidden)
    assert [isinstance(each, CreateResult) for each in accepted] == [True, False, False, True]
    assert named(db) == [("p1", "one"), ("p1", "two")]


def test_together_they_get_no_more_than_the_quota(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 3)
    accepted = create._accept([asked(image, name=f"vm{number}") for number in range(5)])
    assert [type(each) for each in accepted] == [CreateResult] * 3 + [exceptions.QuotaExceeded] * 2
    assert len(named(db)) == 3


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_one_projects_own_is_no_others(
    db: Database, create: CreateEndpoints, image: objects.Image, order: int
) -> None:
    """Neither an image, nor a flavor, nor a network, though what they asked for was read together."""
    private = db.write(images.create, make.image(id="i2", name="own", visibility="private", owner="p1"))
    db.write(flavors.create, make.flavor(flavorid="2", name="own", is_public=False))
    db.write(flavor_access.add, make.ADMIN, "2", "p1", False)
    own = db.write(networks.create, make.network(name="own", project_id="p1", is_default=True))
    asks = [
        (project, asked(*of, project, f"{project}{number}"))
        for project in ("p1", "p2")
        for number, of in enumerate([(image,), (private,)])
    ]
    asks += [(project, asked(image, project, f"{project}-flavor", "2")) for project in ("p1", "p2")]
    answers = create._accept([each for _, each in asks[::order]])[::order]
    told = [type(each) for each in answers]
    fine = CreateResult
    assert told == [fine, fine, fine, exceptions.ImageUnavailable, fine, exceptions.FlavorUnavailable]
    # As they are accepted together, if all can be.
    both = [asked(image, each, f"{each}-net") for each in ("p1", "p2")][::order]
    assert [type(each) for each in create._accept(both)] == [fine, fine]
    query = sa.select(Instance.project_id, Instance.request).where(Instance.display_name.like("%-net"))
    asked_for = dict(db.read(lambda uow: uow.rows(query).all()))
    assert asked_for["p1"]["networks"][0]["network_id"] == own.id != asked_for["p2"]["networks"][0]["network_id"]


def test_a_flavor_is_not_refused_for_whom_it_was_given(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    db.write(flavors.create, make.flavor(flavorid="2", name="own", is_public=False))
    for project in ("p1", "p2"):
        db.write(flavor_access.add, make.ADMIN, "2", project, False)
    accepted = db.write(create._create_instances, [asked(image, each, each, "2") for each in ("p1", "p2")])
    assert [result.instances[0].project_id for result, _ in accepted] == ["p1", "p2"]


def test_each_project_has_a_limit_of_its_own(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 1)
    db.write(quotas.set_limit, "p2", "cores", 64)
    asks = [asked(image, each, f"{each}{number}") for number in range(2) for each in ("p1", "p2", "p3")]
    with pytest.raises(exceptions.QuotaExceeded, match="instances"):
        db.write(create._create_instances, asks)
    assert db.read(quotas.get, create.conf, "p2").quotas["instances"].used == 0
    db.write(create._create_instances, [each for each in asks if each.context.project_id != "p1"] + asks[:1])
    used = [db.read(quotas.get, create.conf, each).quotas["cores"].used for each in ("p1", "p2", "p3")]
    assert used == [1, 2, 2]


def test_two_users_of_a_project_share_its_limit(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 3)
    db.write(quotas.set_limit, "p1", "instances", 1, "u2")

    def of(user: str, count: int) -> list[IncomingCreate]:
        some = [asked(image, name=f"{user}{number}") for number in range(count)]
        return [each._replace(context=RequestContext(user_id=user, project_id="p1", overwrite=False)) for each in some]

    for too_many in (of("u1", 3) + of("u2", 1), of("u1", 1) + of("u2", 2)):
        with pytest.raises(exceptions.QuotaExceeded, match="instances"):
            db.write(create._create_instances, too_many)
    db.write(create._create_instances, of("u1", 2) + of("u2", 1))
    assert db.read(quotas.get, create.conf, "p1").quotas["instances"].used == 3


def test_a_request_that_comes_twice_at_once_is_one(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    one, other = asked(image, name="vm"), asked(image, name="other")
    accepted = create._accept([one, other, one])
    assert uuid_of(accepted[0]) == uuid_of(accepted[2]) != uuid_of(accepted[1])
    assert named(db) == [("p1", "other"), ("p1", "vm")]


def test_those_that_find_others_under_way_are_one_transaction(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the front door, with many threads; one for several servers goes by itself."""
    create._batcher.limits = create._batcher.limits._replace(overlap_after=DEADLINE)
    gate, sizes = threading.Event(), []
    whole: Callable[..., Any] = create._create_instances

    def counted(uow: UnitOfWork, some: list[IncomingCreate]) -> Any:
        sizes.append(len(some))
        if some[0].request.name == "first":
            gate.wait(DEADLINE)
        return whole(uow, some)

    monkeypatch.setattr(create, "_create_instances", counted)

    def post(context: RequestContext, request: objects.CreateRequest) -> CreateResult:
        return create.create_instances(context, request)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(post, *asked(image, name="first")[:2])
        for _ in range(DEADLINE * 100):
            if sizes:
                break
            threading.Event().wait(0.01)
        others = [pool.submit(post, *asked(image, name=f"vm{number}")[:2]) for number in range(4)]
        for _ in range(DEADLINE * 100):
            if create._batcher.pending == 4:
                break
            threading.Event().wait(0.01)
        gate.set()
        assert first.result(DEADLINE).instances[0].display_name == "first"
        assert [each.result(DEADLINE).instances[0].display_name for each in others] == [f"vm{n}" for n in range(4)]
    assert sizes == [1, 4]
    several = asked(image, name="several")
    several.request.min_count = several.request.max_count = 2
    monkeypatch.setattr(create._batcher, "submit", lambda each: pytest.fail("it would hold up others"))
    assert len(create.create_instances(several.context, several.request).instances) == 2


def test_of_one_that_is_refused_in_the_line_its_own_asker_hears(create: CreateEndpoints, image: objects.Image) -> None:
    context, request, *_ = asked(image, flavor="none")
    with pytest.raises(exceptions.FlavorUnavailable):
        create.create_instances(context, request)


def creation(*args: Any, **kwargs: Any) -> BatchedCreate:
    context, request, *_ = asked(*args, **kwargs)
    return BatchedCreate(context=context.to_rpc(), request=request)


def test_those_of_one_message_are_one_transaction_and_each_is_its_own_askers(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    creates = [creation(image, project=f"p{number}", name=f"vm{number}") for number in (2, 1)]
    transactions = []
    whole: Callable[..., Any] = create._create_instances
    monkeypatch.setattr(create, "_create_instances", lambda *each: transactions.append(each) or whole(*each))
    answers = create.create_instances_batch(make.context("p3"), creates)
    assert [each.instances[0].project_id for each in answers if each is not None] == ["p2", "p1"]
    assert named(db) == [("p1", "vm1"), ("p2", "vm2")]
    assert len(transactions) == 1
    again = create.create_instances_batch(make.context("p3"), creates)
    assert [uuid_of(each) for each in again if each] == [uuid_of(each) for each in answers if each]


def test_of_one_message_the_refused_one_is_to_be_asked_for_by_itself(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    creates = [creation(image), creation(image, flavor="none"), creation(image, name="other")]
    answers = create.create_instances_batch(make.context(), creates)
    assert [each is None for each in answers] == [False, True, False]
    assert named(db) == [("p1", "other"), ("p1", "vm")]


def test_where_a_network_service_is_asked_first_each_is_asked_for_by_itself(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create.network, "remote", True)
    assert create.create_instances_batch(make.context(), [creation(image), creation(image)]) == [None, None]
    assert named(db) == []


def test_many_messages_are_several_transactions(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "LIMITS", endpoints.LIMITS._replace(max_batch=2))
    sizes = []
    whole: Callable[..., Any] = create._create_instances
    monkeypatch.setattr(create, "_create_instances", lambda uow, some: sizes.append(len(some)) or whole(uow, some))
    messages = [[asked(image, name=f"vm{message}{number}") for number in range(2 + message)] for message in range(2)]
    answers = create._accept_messages(messages)
    names = [[each.instances[0].display_name for each in some if isinstance(each, CreateResult)] for some in answers]
    assert names == [["vm00", "vm01"], ["vm10", "vm11", "vm12"]]
    assert sizes == [2, 2, 1]
