"""The scheduler: chooses a host for each new or moving server.

Terms:

- host state: one compute node with its capacity, its use and its capabilities (`HostState`). The daemon keeps all of
  them in memory (`hosts`); the conductor publishes changes.
- request spec: a request for hosts for some equal instances: flavor, image, zone, hints (`RequestSpec`).
- filter: decides whether a host can take one more instance of a request (`filters`).
- weigher: ranks the hosts that passed all filters (`weights`).
- destination: the selected host of one instance, with alternates: further hosts that the conductor tries if the
  selected host is full when it claims the place.
- reason: the text that explains why no host was found, by filter (`reasons`).

- `core`: makes the decision, without I/O
- `manager`: serves it over RPC, and keeps the host states fresh
- `hosts`: host states
- `filters`, `weights`: filters and weighers
- `reasons`: why no host was found
- `advice`, `changes`: the least change with which a refused request would fit
- `plans`: plans to drain and rebalance hosts, by the same core
- `uuids`: many uuids in little memory: 16 bytes each, while strings in a list take more than a hundred

The conductor's claim decides whether a place is really free.
"""
