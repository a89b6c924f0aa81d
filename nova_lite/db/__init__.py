"""All SQL: tables, queries by noun, and migrations. Only the conductor and the management commands import it.

A query function takes a `UnitOfWork` first. It returns typed objects, or rows for callers inside the conductor. It
never commits: `Database.write` commits once per message.

Each wing has the name that its subject has in the conductor and in the API. A wing imports wings below it only:
`upkeep` and `migrations`, `dns`, `load_balancer` and `trunks`, `backups` and `network`, `servers`, `volume`, `hosts`,
`image` and `identity`, `core`. `creates` is above them all.

- `core`: connections, transactions, tables, and what all wings use: the queue of actions, quotas, pages of lists
- `identity`: records of the identity service
- `image`: images of the built-in backend
- `hosts`: compute hosts: reports, leases, health, aggregates, and what happens when one is lost
- `volume`: volumes, their types, keys and backups, and the block devices of servers
- `servers`: servers, flavors, key pairs, server groups, and claims of room at hosts
- `network`: networks, ports, routers, security groups and floating addresses
- `dns`: zones and record sets of projects
- `backups`: backups by policies, and servers with a replica at another site
- `load_balancer`: load balancers
- `trunks`: trunks and their subports
- `upkeep`: consistency, purges, dumps, overviews, and the work of a reconciler sweep
- `migrations`: versions of the schema, and the scripts between them
- `creates`: the snapshot of all that a create needs from the wings
"""
