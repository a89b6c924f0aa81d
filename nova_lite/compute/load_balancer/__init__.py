"""Load balancers on a host.

- `wing`: reports to the conductor, and does what it says
- `backends`: programs that run load balancers: HAProxy in namespaces, or none for the fake hypervisor
- `namespaces`: network namespaces of load balancers, and their addresses
- `processes`: processes of HAProxy
"""
