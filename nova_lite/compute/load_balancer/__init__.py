"""Load balancers on a host.

- `wing`: reports to the conductor, and does what it says
- `backends`: what runs load balancers: HAProxy in namespaces, or nothing for the fake hypervisor
- `namespaces`: network namespaces of load balancers, and their addresses
- `processes`: processes of HAProxy
"""
