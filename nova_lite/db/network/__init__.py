"""Networks, ports, routers, security groups and floating addresses.

- `networks`: networks and subnets of the network API
- `builtin_networks`: networks and ports as the built-in backend sees them: `NetworkStore`
- `external_networks`: external networks of the network API
- `spanning`: networks that span hosts
- `ports`: ports of the network API
- `port_devices`: requests and claims of the devices of hosts that ports have
- `port_quota`: quota of ports
- `pending_attaches`: interfaces that were ordered from another network service
- `floating_ips`: floating addresses and their pools
- `port_forwardings`: ports of floating addresses that lead to ports of interfaces
- `external_addresses`: which addresses of the pools are taken, and those of routers
- `routers`: routers and their interfaces
- `router_hosts`: routers as hosts carry them out
- `security_groups`: security groups, and the filter rules of hosts
- `packet_trace`: the objects of hosts, for the way of a packet
- `guest_names`: names of guests in DNS
- `member_versions`: versions of the members of security groups
- `address_groups`: address groups
- `address_scopes`: address scopes
- `overlaps`: ranges that may not overlap
- `subnet_pools`: subnet pools
- `rbac`: policies that share resources with other projects
- `qos`: QoS policies
- `api_resources`: `address_groups`, `address_scopes`, `subnet_pools`, `port_forwardings`, `qos` and `rbac`, by kind
- `bulk`: several resources in one transaction
- `network_tags`: tags
- `network_quotas`: quotas under Neutron's names
"""
