"""Load balancers.

- `trees`: load balancers and their parts: acceptance of changes, and their end
- `checks`: what a change has to fit to: other parts, subnets, ports
- `hosts`: which hosts run which load balancer, leases, and fail-over
- `limits`: quotas
"""
