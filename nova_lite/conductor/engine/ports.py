"""Ports of the engine: what its modules need from outside, so that they import neither handlers nor clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.objects import ActionCommand

#: Returns the handler of an operation by its kind.
HandlerLookup = Callable[[str], OperationHandler]


class Effects(Protocol):
    """Effects of the engine outside its transactions.

    The engine calls these methods after the commit that planned the effect. They return at once and raise nothing:
    an effect that fails or is lost is repeated by the reconciler.
    """

    def send_later(self, command: ActionCommand, context: RequestContext) -> None:
        """Send a command to its host."""

    def call_network_later(self, action_id: int) -> None:
        """Call the network service for the action's `NetworkStep`, and record the result."""

    def call_images_later(self, action_id: int) -> None:
        """Call the image backend for the action's `ImageStep`, and record the result."""
