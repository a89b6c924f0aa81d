"""Networks of guests on this host.

``networks`` makes a libvirt network with a bridge for each network, and reserves the addresses of guests in its DHCP
server; ``dhcp`` releases the lease of a guest that is gone. ``interfaces`` attaches and detaches network cards.
``tunnels`` connects the bridges of several hosts by VXLAN. ``firewall`` restricts what guests reach of this host,
``security_groups`` filters their traffic, ``floating_ips`` translates addresses; all three load rules by ``nft``.
``dual_stack`` is the libvirt filter against forged addresses on interfaces with IPv6. ``neutron`` connects ports that
Neutron manages. ``names`` derives the names of bridges and devices.
"""
