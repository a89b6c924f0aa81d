"""Load balancers.

- `trees`: load balancers and their parts: acceptance of changes, and their end
- `checks`: checks of changes against other parts, subnets, and networks
- `hosts`: hosts of load balancers, their leases, and fail-over
- `limits`: quotas
- `secrets`: secrets of projects, containers of them, and the certificates of listeners
"""
