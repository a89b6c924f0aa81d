"""Each message is accepted once, on each kind of database."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from oslo_config import cfg

from nova_lite import objects, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import ReceivedMessage
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core import replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.image import images
from tests.support import make
from tests.support.counted_cloud import Cloud, serve
from tests.support.verified_messages import VerifiedMessages
from tests.unit.conductor.test_recorded_messages import (  # noqa: F401
    test_boot_and_delete_need_a_statement_for_each_message_and_no_transaction,
    test_change_whose_commit_was_lost_is_not_made_twice,
    test_message_whose_commit_was_lost_gets_the_reply_of_its_work,
    test_taken_message_of_a_batch_is_refused_alone,
)
from tests.unit.conductor.test_replay_cache import test_expired_message_ids_are_deleted  # noqa: F401


@pytest.fixture
def cloud(db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, manager: ConductorManager) -> Cloud:
    return serve(db, conf, bus, manager)


@pytest.fixture
def image(db: Database, cloud: Cloud) -> objects.Image:
    return db.write(images.create, make.image())


@pytest.fixture
def messages(manager: ConductorManager) -> VerifiedMessages:
    return VerifiedMessages(manager.endpoint)


def test_a_message_is_taken_once(db: Database) -> None:
    assert [db.write(replay_cache.message_taken, number * 32) for number in "121"] == [True, True, False]


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_message_that_comes_twice_waits_for_the_end_of_the_first_transaction(
    db: Database, is_rolled_back: bool
) -> None:
    stored, waits, ends = threading.Event(), threading.Event(), threading.Event()
    contexts = [make.context(), make.context()]
    for context in contexts:
        context.message = ReceivedMessage("1" * 32)

    def first(uow: UnitOfWork) -> None:
        replay_cache.record(uow, contexts[0])
        stored.set()
        ends.wait(30)
        if is_rolled_back:
            raise KeyError

    def second(uow: UnitOfWork) -> None:
        replay_cache.record(uow, contexts[1])
        waits.set()

    outcomes: list[type[Exception] | None] = [None, None]

    def run(number: int, change: Callable[[UnitOfWork], None]) -> None:
        try:
            db.write(change)
        except (KeyError, exceptions.MessageRefused) as error:
            outcomes[number] = type(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate((first, second))]
    threads[0].start()
    assert stored.wait(30)
    threads[1].start()
    assert not waits.wait(0.3)
    ends.set()
    for thread in threads:
        thread.join(30)
    assert outcomes == ([KeyError, None] if is_rolled_back else [None, exceptions.MessageRefused])
    assert [context.message.is_recorded for context in contexts if context.message] == [
        not is_rolled_back,
        is_rolled_back,
    ]
