"""Hosts ask what they have to filter: those that ask soon after one another are answered together.

News of a change (`nova_lite.conductor.filter_news`) goes to many hosts at a time, so they ask at a time. What they are
told is mostly of the same tables, and often of the same projects. One that asks alone, as for a boot in a quiet cloud,
does not wait.
"""

from __future__ import annotations

import logging

from nova_lite import exception
from nova_lite.conductor.db import security_groups
from nova_lite.conductor.db.engine import Database, translate
from nova_lite.conductor.db.security_groups import FilterQuestion
from nova_lite.context import RequestContext
from nova_lite.gathering import Moment
from nova_lite.objects import PortFilters

LOG = logging.getLogger(__name__)

#: Seconds between two questions that come soon after one another, and those that the first of several waits for others.
CLOSE = 0.05
MOMENT = 0.1
#: Questions that are answered together at most.
MOST = 16


class FilterQuestions:
    """The RPC method `port_filters_get`. That a host asks for itself alone was checked before (`ALLOWED`)."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._moment: Moment[FilterQuestion, PortFilters | Exception] = Moment(self._answer, MOMENT, MOST, CLOSE)

    def port_filters_get(self, context: RequestContext, host: str, instance_uuids: list[str]) -> PortFilters:
        told = self._moment.ask(FilterQuestion(host, instance_uuids))
        if isinstance(told, Exception):
            raise told
        return told

    def _answer(self, questions: list[FilterQuestion]) -> list[PortFilters | Exception]:
        """By one transaction. If that fails, each by its own: a row that makes no sense is one host's alone."""
        if len(questions) > 1:
            try:
                return [*self._db.read(security_groups.filters_together, questions)]
            except Exception as error:
                if isinstance(translate(error), exception.DatabaseUnavailable):
                    raise
                told = " ".join(str(error).split())
                LOG.warning("What %d hosts have to filter is read one by one: %s", len(questions), told)
        return [self._answer_one(each) for each in questions]

    def _answer_one(self, question: FilterQuestion) -> PortFilters | Exception:
        try:
            return self._db.read(security_groups.filters, *question)
        except Exception as error:
            return error
