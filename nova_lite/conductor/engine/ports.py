"""Ports of the engine: what its modules need from outside, so that they import neither handlers nor clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.objects import ActionCommand, PortFilters

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

    def report_snapshot_later(self, action_id: int) -> None:
        """Report the status of a snapshot to Cinder for the action's `SnapshotStep`, and record the result."""


class SnapshotReports(Protocol):
    """Reports to Cinder about its snapshots."""

    def update_snapshot_status(self, snapshot_id: str, status: str) -> None:
        """Report that the host's part is done, with the status that Cinder's snapshot has now. May be repeated.

        Raises `SnapshotNotFound` or `InvalidVolume` if Cinder does not wait for it any more.
        """


class CapacityPublisher(Protocol):
    """Publishes changes of hosts to the schedulers."""

    def publish_before_refusal(self) -> int:
        """Publish all that a scheduler perhaps does not know, also from other conductors. It has found no host.

        Return the sum of the generations that a scheduler has to know before it refuses.
        """


class BuildFilters(Protocol):
    """Packet filter rules that build commands carry."""

    def rules_for_builds(self, builds: Mapping[str, Mapping[str, str]]) -> dict[str, PortFilters]:
        """Return the rules for builds, by host. ``builds``: projects by instance, by host. Hosts that ask for the rules
        themselves are left out.
        """
