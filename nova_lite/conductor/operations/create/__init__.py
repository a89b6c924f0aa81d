"""Accepting a create: from the request of ``POST /servers`` to rows of instances, their actions, and quota.

Creates that arrive together are accepted in one transaction, which has three passes:

1. `nova_lite.db.creates.load` reads everything that the requests refer to, as one `CreateSnapshot` per create. It also
   recognises a request that was accepted before.
2. `validate` checks each request against its snapshot and returns a `Plan`. It is pure: no SQL, no clock.
3. `write` takes quota for all plans and inserts instances, volumes, group members, and actions.

After the commit the API sends `build_instances` to a conductor, which asks the scheduler for hosts.

- `endpoints`: the RPC methods, which put creates into batches
- `validate`, `write`: the second and third pass
- `devices`: block devices of new servers
- `handler`: the end of a create: the server's access addresses
"""

from __future__ import annotations

from nova_lite.conductor.operations.create.endpoints import CreateEndpoints

__all__ = ["CreateEndpoints"]
