"""The RPC methods that create servers, and the batches in which creates are accepted."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher, send_isolated
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.operations.create.validate import validate
from nova_lite.conductor.operations.create.write import write
from nova_lite.db.core import replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork, is_isolated
from nova_lite.db.creates import CreateSnapshot, IncomingCreate, incoming_create, load, was_accepted
from nova_lite.db.servers import clones
from nova_lite.hardware import pci
from nova_lite.network.driver import NetworkBackend, NetworkCall, NetworkMethod, ResolvedNetworks
from nova_lite.objects import BatchedCreate, CreateRequest, CreateResult

#: Arguments: the transaction, the context of the user, the uuids of the source and of the clone.
BeginClone = Callable[[UnitOfWork, RequestContext, str, str], None]


class CreateEndpoints:
    """The RPC methods `create_instances` and `create_instances_batch`.

    ``begin_clone`` has the disk of the source of a clone frozen: `nova_lite.conductor.operations.clones.begin`.
    """

    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network: NetworkBackend,
        begin_clone: BeginClone,
        timing: ConductorTiming = TIMING.conductor,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network = network
        self._begin_clone = begin_clone
        self._max_batch = timing.create_batches.max_batch
        self._batcher: Batcher[list[IncomingCreate], list[CreateResult | Exception]] = Batcher(
            self._accept_messages, timing.create_batches
        )

    @rpc.records_message
    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Write ``request.min_count`` to ``max_count`` instances, as many as the quota allows, or refuse all.

        A call with the same request id or idempotency key returns the same instances.
        """
        if request.clone_of is not None:
            request = self.db.read(clones.completed, context, request)
        create = incoming_create(context, request)
        if self.network.remote and create.project_id:
            create = create._replace(resolution=self._resolve_networks(create))
        # A request for many servers would delay the others of its batch.
        (result,) = self._batcher.submit([create]) if request.max_count == 1 else [self._accept_one(create)]
        if isinstance(result, Exception):
            raise result
        return result

    @rpc.records_message
    def create_instances_batch(
        self, context: RequestContext, creates: list[BatchedCreate]
    ) -> list[CreateResult | None]:
        """Accept a batch of creates. None stands for a create that the API has to send alone.

        Such a create is refused, or needs a reply of a network service first.
        """
        if self.network.remote:
            return [None] * len(creates)
        incoming = [
            incoming_create(RequestContext.from_rpc(item.context, context.message), item.request) for item in creates
        ]
        return [None if isinstance(result, Exception) else result for result in self._batcher.submit(incoming)]

    def _resolve_networks(self, create: IncomingCreate) -> ResolvedNetworks | None:
        call = NetworkCall(method=NetworkMethod.RESOLVE, context=create.context, networks=create.request.networks)
        call.security_groups = create.request.security_groups
        try:
            resolution: ResolvedNetworks = self.network.call(call)
        except exceptions.NovaLiteException:
            # The first try of a repeated request may have taken the port that is now in use.
            if not self.db.read(was_accepted, create):
                raise
            return None
        return resolution

    def _accept_messages(self, messages: list[list[IncomingCreate]]) -> list[list[CreateResult | Exception]]:
        """Accept the creates of several messages, in transactions of at most ``max_batch`` creates."""
        creates = list(itertools.chain.from_iterable(messages))
        results: list[CreateResult | Exception] = []
        for start in range(0, len(creates), self._max_batch):
            results += self._accept(creates[start : start + self._max_batch])
        rest = iter(results)
        return [list(itertools.islice(rest, len(message))) for message in messages]

    def _accept(self, creates: list[IncomingCreate]) -> list[CreateResult | Exception]:
        """Accept creates in one transaction. If one of them is refused, accept each in its own transaction."""
        if len({create.seed for create in creates}) < len(creates):
            # A request that came twice has to find the instances of its first transaction.
            return [self._accept_one(create) for create in creates]
        return send_isolated(self._accept_batch, creates, is_isolated)

    def _accept_one(self, create: IncomingCreate) -> CreateResult | Exception:
        (result,) = send_isolated(self._accept_batch, [create], is_isolated)
        return result

    def _accept_batch(self, creates: list[IncomingCreate]) -> list[CreateResult]:
        """Accept creates in one transaction. Raises if one of them is refused."""
        # The transaction locks counters of several projects, so all transactions go by the same order.
        ordered = sorted(creates, key=lambda create: create.project_id)
        transact = self.db.write if len(ordered) > 1 else self.db.write_once_more
        accepted = transact(self._create_instances, ordered)
        results = {create.seed: result for create, result in zip(ordered, accepted, strict=True)}
        return [results[create.seed] for create in creates]

    def _create_instances(self, uow: UnitOfWork, creates: list[IncomingCreate]) -> list[CreateResult]:
        """Run the three passes in one transaction. Raises, and writes nothing, if one of the creates is refused."""
        replay_cache.record(uow, *(create.context for create in creates))
        loaded = load(uow, self.conf, self.network, creates)
        plans = [
            validate(create, snapshot)
            for create, snapshot in zip(creates, loaded, strict=True)
            if isinstance(snapshot, CreateSnapshot)
        ]
        for plan in plans:
            pci.requests(self.conf, plan.flavor, plan.boot.image, strict=True)
        made = write(uow, self.conf, self.network, plans)
        for plan, result in zip(plans, made, strict=True):
            if plan.create.request.clone_of is not None:
                self._begin_clone(uow, plan.create.context, plan.create.request.clone_of, result.instances[0].uuid)
        written = iter(made)
        return [next(written) if isinstance(item, CreateSnapshot) else item for item in loaded]
