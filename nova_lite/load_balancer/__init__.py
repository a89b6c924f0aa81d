"""Load balancers: the part of Octavia that clients use. A wing of its own: ``[DEFAULT] wings`` loads it.

- `objects`: load balancers with their parts, and what hosts and the conductor report to each other
- `haproxy`: the configuration of HAProxy for a load balancer
- `certificates`: certificates of listeners, checked by a process with limits

Its parts in the daemons:

- `nova_lite.api.load_balancer`: the API
- `nova_lite.api.key_manager`: the API for secrets with the certificates of listeners
- `nova_lite.conductor.load_balancer`: acceptance of changes, hosts, and fail-over
- `nova_lite.db.load_balancer`: rows
- `nova_lite.compute.load_balancer`: namespaces and processes on a host
"""
