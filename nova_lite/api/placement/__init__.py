"""The Placement API: inventories, usages and allocations of the compute hosts, to read.

- `app` has the routes and handlers, `views` the documents, `versions` the microversions.
- `queries` parses the parameters of requests; `matching` compares providers with them.
- The conductor provides `ResourceProvider` and `ResourceAllocation` (`nova_lite.db.hosts.placement`).

Placements are made by the scheduler and the conductor's claims (`docs/adr/0007-no-cells-no-placement.md`), so no
request changes anything.
"""
