"""Creates that arrive together are accepted in one transaction, with the same results as alone."""

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
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.operations.create import CreateEndpoints
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.creates import IncomingCreate, incoming_create
from nova_lite.db.hosts import hosts
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavor_access, flavors
from nova_lite.network.driver import load_backend
from nova_lite.objects import BatchedCreate, CreateResult
from tests.support import make
from tests.support.statements import counting
from tests.support.waiting import wait_for

DEADLINE = 30

#: Statements to accept any number of creates, of any projects.
ACCEPTED = 10
#: Further statements for each further create on SQLite, which inserts rows with generated ids one by one.
MORE_ON_SQLITE = 2


@pytest.fixture
def create(db: Database, conf: cfg.ConfigOpts) -> CreateEndpoints:
    db.write(hosts.register_host, conf, make.report())
    db.write(flavors.create, make.flavor())
    db.write(builtin_networks.create, make.network(is_default=True))
    return CreateEndpoints(db, conf, load_backend(conf), lambda *_: None)


@pytest.fixture
def image(db: Database) -> objects.Image:
    return db.write(images.create, make.image())


def incoming(image: objects.Image, project: str = "p1", name: str = "vm", flavor: str = "1") -> IncomingCreate:
    request = objects.CreateRequest(name=name, flavor_id=flavor, image_ref=image.id, min_count=1, max_count=1)
    return incoming_create(make.context(project), request)


def named(db: Database) -> list[tuple[str, str]]:
    query = sa.select(Instance.project_id, Instance.display_name).order_by(Instance.display_name)
    return [tuple(row) for row in db.read(lambda uow: uow.rows(query).all())]


def uuid_of(accepted: CreateResult | Exception) -> str:
    assert isinstance(accepted, CreateResult), accepted
    return accepted.instances[0].uuid


@pytest.mark.parametrize("projects", [1, 4])
def test_batched_creates_share_their_reads(
    db: Database, create: CreateEndpoints, image: objects.Image, projects: int
) -> None:
    expected = ACCEPTED + (3 * MORE_ON_SQLITE if db.is_sqlite else 0)
    for number in range(projects):
        create._accept([incoming(image, f"p{number}", "first")])  # it makes the project's counters
    with counting() as counted:
        accepted = create._accept([incoming(image, f"p{number % projects}", f"vm{number}") for number in range(4)])
    assert [item.instances[0].display_name for item in accepted if isinstance(item, CreateResult)] == [
        f"vm{number}" for number in range(4)
    ]
    assert (counted.transactions, len(counted.statements)) == (1, expected), counted.statements


def test_batched_creates_belong_to_their_own_projects(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    """Results have the order of the requests, whatever the order of the rows is."""
    projects = ["p3", "p1", "p2", "p1"]
    accepted = create._accept([incoming(image, item, f"vm{number}") for number, item in enumerate(projects)])
    results = [item.instances[0] for item in accepted if isinstance(item, CreateResult)]
    assert [(item.project_id, item.display_name) for item in results] == [
        (project, f"vm{number}") for number, project in enumerate(projects)
    ]
    assert named(db) == [(project, f"vm{number}") for number, project in enumerate(projects)]
    used = {item: db.read(quotas.get, create.conf, item).quotas["instances"].used for item in set(projects)}
    assert used == {"p1": 2, "p2": 1, "p3": 1}


def test_refused_create_does_not_affect_others(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    bad = [incoming(image, name="bad", flavor="none"), incoming(image, "", "nobodys")]
    accepted = create._accept([incoming(image, name="one"), *bad, incoming(image, name="two")])
    assert isinstance(accepted[1], exceptions.FlavorUnavailable)
    assert isinstance(accepted[2], exceptions.Forbidden)
    assert [isinstance(item, CreateResult) for item in accepted] == [True, False, False, True]
    assert named(db) == [("p1", "one"), ("p1", "two")]


def test_batched_creates_stay_within_the_quota(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 3)
    accepted = create._accept([incoming(image, name=f"vm{number}") for number in range(5)])
    assert [type(item) for item in accepted] == [CreateResult] * 3 + [exceptions.QuotaExceeded] * 2
    assert len(named(db)) == 3


@pytest.mark.parametrize("order", [1, -1])
def test_private_resources_are_not_shared_within_a_batch(
    db: Database, create: CreateEndpoints, image: objects.Image, order: int
) -> None:
    """Images, flavors and networks of one project are not used for another, although reads are shared."""
    private = db.write(images.create, make.image(id="i2", name="own", visibility="private", owner="p1"))
    db.write(flavors.create, make.flavor(flavorid="2", name="own", is_public=False))
    db.write(flavor_access.add, make.ADMIN, "2", "p1", False)
    own = db.write(builtin_networks.create, make.network(name="own", project_id="p1", is_default=True))
    creates = [
        (project, incoming(*of, project, f"{project}{number}"))
        for project in ("p1", "p2")
        for number, of in enumerate([(image,), (private,)])
    ]
    creates += [(project, incoming(image, project, f"{project}-flavor", "2")) for project in ("p1", "p2")]
    results = create._accept([item for _, item in creates[::order]])[::order]
    assert [type(result) for result in results] == [
        CreateResult,
        CreateResult,
        CreateResult,
        exceptions.ImageUnavailable,
        CreateResult,
        exceptions.FlavorUnavailable,
    ]
    # Two creates that are accepted in one transaction.
    both = [incoming(image, project, f"{project}-net") for project in ("p1", "p2")][::order]
    assert [type(item) for item in create._accept(both)] == [CreateResult, CreateResult]
    query = sa.select(Instance.project_id, Instance.request).where(Instance.display_name.like("%-net"))
    requested = dict(db.read(lambda uow: uow.rows(query).all()))
    assert requested["p1"]["networks"][0]["network_id"] == own.id != requested["p2"]["networks"][0]["network_id"]


def test_private_flavor_is_usable_by_all_projects_with_access(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    db.write(flavors.create, make.flavor(flavorid="2", name="own", is_public=False))
    for project in ("p1", "p2"):
        db.write(flavor_access.add, make.ADMIN, "2", project, False)
    accepted = db.write(create._create_instances, [incoming(image, item, item, "2") for item in ("p1", "p2")])
    assert [result.instances[0].project_id for result in accepted] == ["p1", "p2"]


def test_batched_creates_are_limited_by_project(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 1)
    db.write(quotas.set_limit, "p2", "cores", 64)
    creates = [incoming(image, project, f"{project}{number}") for number in range(2) for project in ("p1", "p2", "p3")]
    with pytest.raises(exceptions.QuotaExceeded, match="instances"):
        db.write(create._create_instances, creates)
    assert db.read(quotas.get, create.conf, "p2").quotas["instances"].used == 0
    db.write(create._create_instances, [item for item in creates if item.context.project_id != "p1"] + creates[:1])
    used = [db.read(quotas.get, create.conf, item).quotas["cores"].used for item in ("p1", "p2", "p3")]
    assert used == [1, 2, 2]


def test_users_of_a_project_share_its_limit(db: Database, create: CreateEndpoints, image: objects.Image) -> None:
    db.write(quotas.set_limit, "p1", "instances", 3)
    db.write(quotas.set_limit, "p1", "instances", 1, "u2")

    def of(user: str, count: int) -> list[IncomingCreate]:
        batch = [incoming(image, name=f"{user}{number}") for number in range(count)]
        return [item._replace(context=RequestContext(user_id=user, project_id="p1", overwrite=False)) for item in batch]

    for too_many in (of("u1", 3) + of("u2", 1), of("u1", 1) + of("u2", 2)):
        with pytest.raises(exceptions.QuotaExceeded, match="instances"):
            db.write(create._create_instances, too_many)
    db.write(create._create_instances, of("u1", 2) + of("u2", 1))
    assert db.read(quotas.get, create.conf, "p1").quotas["instances"].used == 3


def test_request_that_comes_twice_in_a_batch_is_accepted_once(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    one, other = incoming(image, name="vm"), incoming(image, name="other")
    accepted = create._accept([one, other, one])
    assert uuid_of(accepted[0]) == uuid_of(accepted[2]) != uuid_of(accepted[1])
    assert named(db) == [("p1", "other"), ("p1", "vm")]


def test_creates_that_arrive_during_a_transaction_share_the_next(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The RPC method is called in many threads. A request for several servers is not batched."""
    create._batcher.limits = create._batcher.limits._replace(overlap_after=DEADLINE)
    gate, sizes = threading.Event(), []
    original: Callable[..., Any] = create._create_instances

    def counted(uow: UnitOfWork, batch: list[IncomingCreate]) -> Any:
        sizes.append(len(batch))
        if batch[0].request.name == "first":
            gate.wait(DEADLINE)
        return original(uow, batch)

    monkeypatch.setattr(create, "_create_instances", counted)

    def post(context: RequestContext, request: objects.CreateRequest) -> CreateResult:
        return create.create_instances(context, request)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(post, *incoming(image, name="first")[:2])
        wait_for("the first batch runs", lambda: sizes, DEADLINE)
        others = [pool.submit(post, *incoming(image, name=f"vm{number}")[:2]) for number in range(4)]
        wait_for("all others are pending", lambda: create._batcher.pending == 4, DEADLINE)
        gate.set()
        assert first.result(DEADLINE).instances[0].display_name == "first"
        assert [item.result(DEADLINE).instances[0].display_name for item in others] == [f"vm{n}" for n in range(4)]
    assert sizes == [1, 4]
    several = incoming(image, name="several")
    several.request.min_count = several.request.max_count = 2
    monkeypatch.setattr(create._batcher, "submit", lambda item: pytest.fail("it would hold up others"))
    assert len(create.create_instances(several.context, several.request).instances) == 2


def test_refused_create_raises_for_its_caller(create: CreateEndpoints, image: objects.Image) -> None:
    context, request, *_ = incoming(image, flavor="none")
    with pytest.raises(exceptions.FlavorUnavailable):
        create.create_instances(context, request)


def creation(*args: Any, **kwargs: Any) -> BatchedCreate:
    context, request, *_ = incoming(*args, **kwargs)
    return BatchedCreate(context=context.to_rpc(), request=request)


def test_message_with_several_creates_is_one_transaction(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    creates = [creation(image, project=f"p{number}", name=f"vm{number}") for number in (2, 1)]
    transactions = []
    original: Callable[..., Any] = create._create_instances
    monkeypatch.setattr(create, "_create_instances", lambda *item: transactions.append(item) or original(*item))
    results = create.create_instances_batch(make.context("p3"), creates)
    assert [item.instances[0].project_id for item in results if item is not None] == ["p2", "p1"]
    assert named(db) == [("p1", "vm1"), ("p2", "vm2")]
    assert len(transactions) == 1
    again = create.create_instances_batch(make.context("p3"), creates)
    assert [uuid_of(item) for item in again if item] == [uuid_of(item) for item in results if item]


def test_refused_create_of_a_message_is_returned_as_none(
    db: Database, create: CreateEndpoints, image: objects.Image
) -> None:
    creates = [creation(image), creation(image, flavor="none"), creation(image, name="other")]
    results = create.create_instances_batch(make.context(), creates)
    assert [item is None for item in results] == [False, True, False]
    assert named(db) == [("p1", "other"), ("p1", "vm")]


def test_creates_with_a_remote_network_service_are_not_batched(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create.network, "remote", True)
    assert create.create_instances_batch(make.context(), [creation(image), creation(image)]) == [None, None]
    assert named(db) == []


def test_large_batches_are_split_into_transactions(
    db: Database, create: CreateEndpoints, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ConductorTiming.create_batches._replace(max_batch=2)
    timing = ConductorTiming(create_batches=limits)
    create = CreateEndpoints(db, db.conf, create.network, lambda *_: None, timing)
    sizes = []
    original: Callable[..., Any] = create._create_instances
    monkeypatch.setattr(
        create, "_create_instances", lambda uow, batch: sizes.append(len(batch)) or original(uow, batch)
    )
    messages = [[incoming(image, name=f"vm{message}{number}") for number in range(2 + message)] for message in range(2)]
    results = create._accept_messages(messages)
    names = [[item.instances[0].display_name for item in batch if isinstance(item, CreateResult)] for batch in results]
    assert names == [["vm00", "vm01"], ["vm10", "vm11", "vm12"]]
    assert sizes == [2, 2, 1]
