"""The way of a packet, from the objects that hosts get: a pure model of what hosts do to it, hop by hop.

- `packets`: a packet, its hops, and where it ends
- `hosts`: a host's interfaces, filters and routers, as its compute daemon has them
- `rules`: the rule of a security group that a packet matches
- `walk`: the walk from the port to the destination
- `tenants`: the way as a tenant may see it
- `frames`: marked packets, and the filter by which the kernel finds them
- `probe`: the probe of a packet on the hosts, and its differences from the model

`nova_lite.db.network.packet_trace` reads the objects, and ``nova-lite-manage network trace`` shows the way.
``tests/integration/network/test_packet_traces.py`` compares the model with real packets.
"""
