"""Answers hosts' queries for their packet filter rules, in batches.

A change notification (`nova_lite.conductor.hosts.filter_publisher`) reaches many hosts at once, so their queries arrive
together. They read the same tables and often the same projects, so one transaction answers all of them. A single query
does not wait.

Build commands carry the rules of their guests, so that their hosts send no query (`of_builds`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from nova_lite.base import exceptions
from nova_lite.base.batching import BatchWindow, ResponseFuture
from nova_lite.base.context import RequestContext
from nova_lite.db import security_groups
from nova_lite.db.engine import Database, translate
from nova_lite.db.security_groups import FilterQuestion
from nova_lite.objects import PortFilters

LOG = logging.getLogger(__name__)

#: Seconds between two questions that come soon after one another, and those that the first of several waits for others.
CLOSE = 0.05
MOMENT = 0.1
#: Questions that are answered together at most.
MOST = 32
#: Seconds after its last question for which a host counts as one that filters.
ASKS = 600.0


class FilterQueries:
    """The RPC method `port_filters_get`. The endpoint has checked that the host asks for itself."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._moment: BatchWindow[FilterQuestion, PortFilters | Exception] = BatchWindow(
            self._answer, MOMENT, MOST, CLOSE
        )
        #: When each host has asked last, by the monotonic clock.
        self._asked: dict[str, float] = {}

    def port_filters_get(
        self, context: RequestContext, host: str, instance_uuids: list[str]
    ) -> PortFilters | ResponseFuture[PortFilters]:
        self._asked[host] = time.monotonic()
        told = self._moment.ask_later(FilterQuestion(host, instance_uuids))
        return told.mapped(lambda get: _raised(get())) if isinstance(told, ResponseFuture) else _raised(told)

    def of_builds(self, projects: Mapping[str, Collection[str]]) -> dict[str, PortFilters]:
        """By host, what it has to filter of these projects, whose servers it is about to build. To be asked once the
        places are committed: of what changes from then on, the host has news. Nothing of hosts that have not asked
        lately, as they may not filter at all, and of those of which it cannot be told now: they ask."""
        since = time.monotonic() - ASKS
        asked = [
            FilterQuestion(host, [], frozenset(theirs))
            for host, theirs in projects.items()
            if self._asked.get(host, since) > since
        ]
        try:
            answers = self._answer(asked) if asked else []
        except Exception as error:
            if not isinstance(translate(error), exceptions.DatabaseUnavailable):
                raise
            LOG.info("%d hosts ask themselves what they have to filter: %s", len(asked), error)
            return {}
        told = zip(asked, answers, strict=True)
        return {question.host: answer for question, answer in told if not isinstance(answer, Exception)}

    def _answer(self, questions: list[FilterQuestion]) -> list[PortFilters | Exception]:
        """By one transaction. If that fails, each by its own: a row that makes no sense is one host's alone."""
        if len(questions) > 1:
            try:
                return [*self._db.read(security_groups.filters_together, questions)]
            except Exception as error:
                if isinstance(translate(error), exceptions.DatabaseUnavailable):
                    raise
                told = " ".join(str(error).split())
                LOG.warning("What %d hosts have to filter is read one by one: %s", len(questions), told)
        return [self._answer_one(each) for each in questions]

    def _answer_one(self, question: FilterQuestion) -> PortFilters | Exception:
        try:
            return self._db.read(security_groups.filters, *question)
        except Exception as error:
            return error


def _raised(told: PortFilters | Exception) -> PortFilters:
    if isinstance(told, Exception):
        raise told
    return told
