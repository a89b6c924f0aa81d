"""Batches concurrent create requests of one API process.

One message and one transaction of the conductor accept all requests that wait (`nova_lite.base.batching`).
"""

from __future__ import annotations

import typing
from typing import Any

from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import CreateRequest, CreateResult, Creation

Asked = tuple[RequestContext, CreateRequest]

#: Seconds after a message of creates ended within which as many are waited for as there were then.
LINGER = 0.04

#: Characters of user data with which a create travels with others at most: 64 of them are one message.
LONGEST_USER_DATA = 4096


class CreateBatcher:
    """In place of a conductor's client."""

    def __init__(self, conductor: ConductorRPC) -> None:
        self._conductor = conductor
        self._creates: Batcher[Asked, CreateResult | None] = Batcher(self._create, linger=LINGER, writes=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conductor, name)

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        accepted = self._creates.ask((context, request)) if _is_small(request) else None
        return accepted or self._conductor.create_instances(context, request)

    def _create(self, asked: list[Asked]) -> list[CreateResult | None]:
        """None: whoever asked for it asks by itself, and is told why it is refused, if it is."""
        if len(asked) == 1:
            return [self._conductor.create_instances(*asked[0])]
        creates = [Creation(context=context.to_rpc(), request=request) for context, request in asked]
        return self._conductor.create_instances_together(asked[0][0], creates)


def _is_small(request: CreateRequest) -> bool:
    return request.max_count == 1 and not request.injected_files and len(request.user_data or "") <= LONGEST_USER_DATA


def batched(conductor: ConductorRPC) -> ConductorRPC:
    return typing.cast(ConductorRPC, CreateBatcher(conductor))
