"""HTTP half of the network service. `nova_lite.network` lists the parts of the other daemons.

- `address_groups`: prefixes that rules of security groups name together
- `address_scopes`: sets of subnet pools whose prefixes do not overlap
- `agents`: agents and availability zones
- `app`: the network API: the part of Neutron's v2.0 API that clients use, on the built-in backend
- `availability`: numbers of addresses of networks that are in use, and providers of routers
- `dns`: names of networks, ports and floating addresses in DNS
- `extensions`: extensions of Neutron's API that this network API supports, by the aliases that clients look for
- `faults`: errors in Neutron's form, with Neutron's names and status codes
- `fields`: attributes of bodies: the types of their fields, each with the check of its value
- `fixed_addresses`: addresses of ports, as ``fixed_ips`` requests them
- `floating_ips`: floating addresses
- `listing`: lists in Neutron's form: filtered by any attribute, sorted, in pages, with the requested fields
- `networks`: networks of servers, and pools of floating addresses, which are external networks
- `objects`: base class of the resources that only the network API knows
- `ports`: of servers, and of users, who assign them to servers through the compute API
- `qos`: QoS policies and their rules
- `quotas`: quotas of projects
- `rbac_policies`: RBAC policies, by which other projects use networks, pools, scopes, groups and QoS policies
- `requests`: their bodies, and the objects that they describe
- `resource`: base class of the network API's resources
- `routers`: their gateways and interfaces
- `security_groups`: security groups and their rules
- `subnet_pools`: prefixes from which subnets get theirs
- `subnets`: subnets of networks and of pools of floating addresses
- `tags`: tags of resources: ``/tags`` below each of them
- `versions`: versions of the API, and their document
- `views`: responses of the network API in Neutron's form
"""
