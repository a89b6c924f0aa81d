"""The conductor client of an API process: batches reads, shares objects, and caches flavors.

`ApiConductorClient` defines the methods that do more than send one message. `connect` adds all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TypeAlias, TypeVar

from nova_lite import rpc
from nova_lite.api.shared_objects import SharedFlavor, SharedInstance, SharedObjects
from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.objects import (
    Flavor,
    Instance,
    InstanceFilters,
    InstanceQuery,
)
from nova_lite.rpcapi.conductor import ConductorRPC, ConductorTexts

T = TypeVar("T")

#: Memory for instances and flavors that requests share. About a thousand instances.
MAX_INSTANCE_BYTES, MAX_FLAVOR_BYTES = 16 * 2**20, 2 * 2**20

#: Lists whose batchers are kept, since they remember how many requests came together.
MAX_LISTS = 32


class FlavorCache:
    """Cache of flavors that were read within the last ``seconds``. Flavors rarely change but many requests need them.

    All entries expire together, so that no request pays for an expiry of single entries.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: dict[Hashable, object] = {}
        self._expires_at = 0.0

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached result of ``read``. A result that was read before a `clear` is not kept after it."""
        now = time.monotonic()
        if now >= self._expires_at:
            self._entries, self._expires_at = {}, now + self._seconds
        entries = self._entries
        if key not in entries:
            entries[key] = read()
        result: T = entries[key]  # type: ignore[assignment]
        return result

    def clear(self) -> None:
        self._entries = {}


class ApiConductorClient(ConductorRPC):
    """The methods of `ConductorRPC` that an API process batches or caches. To be made by `connect`.

    Callers of the same batch or cache share the objects they receive and must not change them. ``texts``: the client
    that does not decode objects, so that requests can share them; None: they do not.
    """

    def __init__(
        self,
        client: ConductorRPC,
        timing: ApiTiming,
        texts: ConductorTexts | None,
    ) -> None:
        self._client = client
        self._reader: _Reader = client if texts is None else _SharingReader(texts)
        self._reads: Batcher[tuple[RequestContext, str], Instance] = Batcher(self._read_batch, timing.read_batches)
        self._list_limits = timing.list_batches
        self._lists_lock = threading.Lock()
        #: The batcher of each list, and the number of its callers.
        self._lists: dict[Hashable, tuple[Batcher[RequestContext, list[Instance]], list[None]]] = {}
        self._flavors = FlavorCache(timing.flavor_cache)

    # --- batched: reads

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        return self._reads.submit((context, instance_uuid))

    def _read_batch(self, requests: list[tuple[RequestContext, str]]) -> list[Instance | Exception]:
        if len(requests) == 1:
            return [self._reader.instance_get(*requests[0])]
        queries = [
            InstanceQuery(uuid=uuid, project_id=context.project_id, is_admin=bool(context.is_admin))
            for context, uuid in requests
        ]
        instances = {instance.uuid: instance for instance in self._reader.instances_get(requests[0][0], queries)}
        return [_visible(instances.get(query.uuid), query) for query in queries]

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]:
        """Read the list once for all callers that ask for the same one at the same time."""

        def send(contexts: list[RequestContext]) -> list[list[Instance]]:
            instances = self._reader.instance_list(contexts[0], filters, limit, marker, sort_keys, sort_dirs)
            return [instances] * len(contexts)

        key = (context.project_id, context.is_admin, repr((filters, limit, marker, sort_keys, sort_dirs)))
        with self._lists_lock:
            if key not in self._lists:
                self._lists[key] = Batcher(send, self._list_limits), []
            batcher, callers = self._lists[key]
            callers.append(None)
        try:
            return batcher.submit(context)
        finally:
            with self._lists_lock:
                callers.pop()
                if len(self._lists) > MAX_LISTS:
                    self._lists = {key: entry for key, entry in self._lists.items() if entry[1]}

    # --- cached: flavors. A change through this client is seen by the next read, any other within the cache's seconds.

    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
        name: str | None = None,
    ) -> list[Flavor]:
        query = is_public, min_ram, min_disk, limit, marker, sort_key, sort_dir, name
        key = context.project_id, context.is_admin, query
        return self._flavors.get(key, lambda: self._reader.flavor_list(context, *query))

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        key = context.project_id, context.is_admin, flavor_id
        return self._flavors.get(key, lambda: self._reader.flavor_get(context, flavor_id))

    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        return self._change_flavors(lambda: self._client.flavor_create(context, flavor))

    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor:
        return self._change_flavors(lambda: self._client.flavor_update(context, flavor_id, description))

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None:
        self._change_flavors(lambda: self._client.flavor_delete(context, flavor_id))

    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        return self._change_flavors(lambda: self._client.flavor_extra_specs_update(context, flavor_id, extra_specs))

    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None:
        self._change_flavors(lambda: self._client.flavor_extra_spec_delete(context, flavor_id, key))

    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        return self._change_flavors(lambda: self._client.flavor_access_add(context, flavor_id, project_id, even_public))

    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]:
        return self._change_flavors(lambda: self._client.flavor_access_remove(context, flavor_id, project_id))

    def _change_flavors(self, change: Callable[[], T]) -> T:
        try:
            return change()
        finally:
            self._flavors.clear()


class _SharingReader:
    """The reads whose objects requests share."""

    def __init__(self, texts: ConductorTexts) -> None:
        self._texts = texts
        self._instances = SharedObjects(SharedInstance, MAX_INSTANCE_BYTES)
        self._flavors = SharedObjects(SharedFlavor, MAX_FLAVOR_BYTES)

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        return self._instances.get(self._texts.instance_get(context, instance_uuid))

    def instances_get(self, context: RequestContext, queries: list[InstanceQuery]) -> list[Instance]:
        return [self._instances.get(text) for text in self._texts.instances_get(context, queries)]

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]:
        texts = self._texts.instance_list(context, filters, limit, marker, sort_keys, sort_dirs)
        return [self._instances.get(text) for text in texts]

    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
        name: str | None = None,
    ) -> list[Flavor]:
        query = is_public, min_ram, min_disk, limit, marker, sort_key, sort_dir, name
        return [self._flavors.get(text) for text in self._texts.flavor_list(context, *query)]

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        return self._flavors.get(self._texts.flavor_get(context, flavor_id))


_Reader: TypeAlias = ConductorRPC | _SharingReader


def connect(
    client: ConductorRPC,
    timing: ApiTiming = TIMING.api,
    texts: ConductorTexts | None = None,
) -> ApiConductorClient:
    """Return the client of an API process. ``client`` and ``texts`` send the messages."""
    return rpc.wrap(ApiConductorClient, client, timing, texts)


def _visible(instance: Instance | None, query: InstanceQuery) -> Instance | Exception:
    if instance is None or not query.may_see(instance):
        return exceptions.InstanceNotFound(instance_id=query.uuid)
    return instance
