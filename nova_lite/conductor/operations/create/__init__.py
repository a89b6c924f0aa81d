"""Accepting a create: from the request of ``POST /servers`` to rows of instances, their actions, and quota.

Creates that arrive together are accepted in one transaction, which has three passes:

1. `load` reads everything that the requests refer to, as one `Snapshot` per create.
2. `validate` checks each request against its snapshot and returns a `Plan`. It is pure: no SQL, no clock.
3. `write` takes quota for all plans and inserts instances, volumes, group members, and actions.

After the commit the API sends `build_instances` to a conductor, which asks the scheduler for hosts.

- `endpoints`: the RPC methods, which put creates into batches
- `incoming`: recognises a request that was sent before
- `load`, `validate`, `write`: the three passes
- `devices`, `image_devices`: block devices of new servers, and of images
- `handler`: the end of a create: the server's access addresses
"""

from __future__ import annotations

from nova_lite.conductor.operations.create.endpoints import CreateEndpoints

__all__ = ["CreateEndpoints"]
