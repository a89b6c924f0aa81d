"""HTTP half of secrets: the part of Barbican's API that users of load balancers need.

`nova_lite.load_balancer` lists the parts of the other daemons, which are those of load balancers.

- `app`: the application
- `resource`: base class of the resources, and lists
- `secrets`: secrets with their payloads and metadata
- `containers`: containers of secrets
- `versions`: the document of versions
"""
