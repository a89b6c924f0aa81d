"""Networks of guests on this host.

``networks`` makes a libvirt network with a bridge for each network, and reserves the addresses of guests in its DHCP
server; ``dhcp`` releases the lease of a guest that is gone. ``interfaces`` attaches and detaches network cards.
``tunnels`` connects the bridges of several hosts by VXLAN, ``routers`` connects networks. ``firewall`` restricts what
guests reach of this host and of other networks, ``anti_spoofing`` keeps them from forging addresses,
``security_groups`` filters their traffic, ``floating_ips`` translates addresses; all four load rules by ``nft``.
``dual_stack`` knows IPv6 addresses. ``migration_peers`` lets other hosts in while a
guest comes from them. ``neutron`` connects ports that Neutron manages. ``names`` derives the names of bridges and
devices.
"""
