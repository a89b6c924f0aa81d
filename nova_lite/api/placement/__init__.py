"""The Placement API: inventories, usages and allocations of the compute hosts, to read.

- `app`: the application
- `resources`: resource providers, allocations, names of resource classes and traits
- `queries`: parameters of requests
- `matching`: comparison of resource providers with what a request asks for
- `versions`: the document of versions, and the microversion of a request
- `views`: documents of the Placement API

The conductor provides `ResourceProvider` and `ResourceAllocation` (`nova_lite.db.hosts.placement`).
Placements are made by the scheduler and the conductor's claims (`docs/adr/0007-no-cells-no-placement.md`), so no
request changes anything.
"""
