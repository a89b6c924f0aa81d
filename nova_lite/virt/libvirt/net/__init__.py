"""Networks of guests on this host.

- `plugging`: the abilities: the host side and the guest side of interfaces, and their filters
- `networks`, `uses`, `removal`, `former_networks`: networks of this host, their removal, and those of older versions
- `realms`, `namespaces`, `links`: a network namespace for each router, its gateways, and its link to the host
- `reservations`, `port_options`, `dhcp`: who gets which address and which options, and the DHCP server of each network
- `interfaces`, `guest_interfaces`: network cards of guests, and their changes
- `tunnels`: VXLAN between the bridges of several hosts
- `routers`: packets between networks
- `nft`, `firewall`, `anti_spoofing`, `security_groups`, `floating_ips`: tables of nftables: access to this host,
  forged addresses, security groups, floating addresses
- `group_members`, `conntrack_zones`: equal addresses of two networks in security groups, and their connections
- `untracked`: interfaces with stateless security groups
- `probes`: marked packets of guests, and where this host sees them
- `qos`: limits and marks of QoS policies
- `address_pairs`, `dual_stack`: further addresses, and IPv6
- `migration_peers`: lets other hosts in while a guest comes from them
- `neutron`: ports that Neutron manages
- `names`: names of bridges and devices
- `names_of_guests`: names of guests in DNS
"""
