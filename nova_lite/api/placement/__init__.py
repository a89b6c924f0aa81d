"""The Placement API: inventories, usages and allocations of the compute hosts, to read.

- `app`: the application
- `allocations`: allocations of servers, usages of projects, candidates
- `names`: resource classes and traits
- `providers`: resource providers, which are the hosts
- `resource`: base of the resources
- `queries`: parameters of requests
- `matching`: comparison of resource providers with what a request asks for
- `versions`: the document of versions, and the microversion of a request
- `views`: documents of the Placement API

The conductor provides `ResourceProvider` and `ResourceAllocation` (`nova_lite.db.hosts.placement`).
Placements are made by the scheduler and the conductor's claims (`docs/adr/0007-no-cells-no-placement.md`), so no
request changes anything.
"""
