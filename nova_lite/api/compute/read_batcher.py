"""Batches concurrent reads of one API process.

One message and one transaction of the conductor answer all requests that wait (`nova_lite.base.batching`).
"""

from __future__ import annotations

import threading
import typing
from collections.abc import Hashable
from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import Instance, InstanceFilters, InstanceQuery

#: Seconds for which a message waits at most for those who were answered together just now: a client that reads one
#: thing after the other is back within this.
LINGER = 0.006
#: Lists of which it is remembered for how many they were read last.
LISTS = 32


class ReadBatcher:
    """In place of a conductor's client. Those who ask share what they are answered, and change nothing of it."""

    def __init__(self, conductor: ConductorRPC) -> None:
        self._conductor = conductor
        self._instances = Batcher(self._get_instances, linger=LINGER)
        self._lock = threading.Lock()
        self._lists: dict[Hashable, tuple[Batcher[RequestContext, list[Instance]], list[None]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conductor, name)

    # --- different instances, by one question

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        found = self._instances.ask((context, instance_uuid))
        if found is None:
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        return found

    def _get_instances(self, asked: list[tuple[RequestContext, str]]) -> list[Instance | None]:
        if len(asked) == 1:
            return [self._get_instance(*asked[0])]
        questions = [
            InstanceQuery(uuid=uuid, project_id=context.project_id, is_admin=bool(context.is_admin))
            for context, uuid in asked
        ]
        found = {each.uuid: each for each in self._conductor.instances_get(asked[0][0], questions)}
        return [each if (each := found.get(q.uuid)) is not None and q.may_see(each) else None for q in questions]

    def _get_instance(self, context: RequestContext, instance_uuid: str) -> Instance | None:
        try:
            return self._conductor.instance_get(context, instance_uuid)
        except exceptions.InstanceNotFound:
            return None

    # --- the same list, asked for by several

    def instance_list(
        self, context: RequestContext, filters: InstanceFilters, *paging: Any, **named: Any
    ) -> list[Instance]:

        def ask(asked: list[RequestContext]) -> list[list[Instance]]:
            return [self._conductor.instance_list(asked[0], filters, *paging, **named)] * len(asked)

        key = (context.project_id, context.is_admin, repr(filters), repr(paging), repr(sorted(named.items())))
        with self._lock:
            if key not in self._lists:
                self._lists[key] = Batcher(ask, at_once=1, linger=LINGER), []
            line, users = self._lists[key]
            users.append(None)
        try:
            return line.ask(context)
        finally:
            with self._lock:
                users.pop()
                if len(self._lists) > LISTS:
                    self._lists = {key: each for key, each in self._lists.items() if each[1]}


def batched(conductor: ConductorRPC) -> ConductorRPC:
    return typing.cast(ConductorRPC, ReadBatcher(conductor))
