"""Networks of guests on this host.

- `plugging`: the abilities: the host side and the guest side of interfaces, and their filters
- `networks`, `existing`, `uses`, `dhcp`: a libvirt network with a bridge and DHCP for each network, and its removal
- `interfaces`, `guest_interfaces`: network cards of guests, and their changes
- `tunnels`: VXLAN between the bridges of several hosts
- `routers`, `static_routes`: packets between networks
- `nft`, `firewall`, `anti_spoofing`, `security_groups`, `floating_ips`: tables of nftables: access to this host,
  forged addresses, security groups, floating addresses
- `address_pairs`, `dual_stack`: further addresses, and IPv6
- `migration_peers`: lets other hosts in while a guest comes from them
- `neutron`: ports that Neutron manages
- `names`: names of bridges and devices
- `names_of_guests`: names of guests in DNS
"""
