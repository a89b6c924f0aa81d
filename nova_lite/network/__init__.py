"""Network service: networks, ports, routers, security groups and floating addresses. It stands in for Neutron.

``[network] backend = local`` is the built-in service: everything is a row of the conductor's database, and compute
hosts connect guests with libvirt and nftables. ``[network] backend = neutron`` uses a real Neutron, and the network API
is not served. ``none`` gives servers no interfaces.

Backend::

    network/driver.py           port: NetworkBackend and NetworkStore, inside the conductor
    network/local.py            backend ``local``
    network/neutron.py          backend ``neutron``
    network/neutron_client.py   requests to Neutron
    network/none.py             backend ``none``
    network/fake.py             backend ``fake``, for tests of faults
    network/factory.py          builds and validates a new network
    network/factory6.py         builds and validates the IPv6 subnet of a network
    network/security_rules.py   validates a new security group rule
    network/address_pool.py     addresses that a network may allocate
    conf/network.py             options ``[network]``
    conf/neutron.py             options ``[neutron]``

- `trace`: the way of a packet, as a model of what hosts do to it
- `trunks`: trunks, their subports, and the messages about them

API, with Neutron's v2.0 endpoints::

    api/network/                     app, requests, views, listing, versions, and a file for each resource
    api/compute/networks.py          ``/os-networks`` of the compute API, until 2.35
    api/compute/floating_ips.py      ``/os-floating-ips``, until 2.35
    api/compute/security_groups.py   ``/os-security-groups``, until 2.35
    policies/network_service.py      rules
    cmd/manage/networks.py           ``nova-lite-manage network``

Conductor::

    conductor/network/                   RPC methods, attach with Neutron, packet filters
    conductor/operations/interfaces.py   attach and detach
    conductor/engine/network_calls.py    calls to the backend during an action
    conductor/trunks/, db/trunks/        the wing of trunks
    db/network/                          SQL: networks, ports with their devices, routers, security groups, addresses
    objects/network.py                   Network, VIF, NetworkRequest
    objects/router.py                    Router, HostRouter

Compute::

    compute/port_filters.py                packet filters, routers and tunnels of the host
    compute/operations/interfaces.py       attach and detach on the host
    compute/trunks/                        VLANs of guests' interfaces on bridges
    virt/libvirt/net/networks.py           bridges, NAT and DHCP
    virt/libvirt/net/security_groups.py    nftables: security groups
    virt/libvirt/net/routers.py            packets between networks
    virt/libvirt/net/realms.py             a network namespace for each router
    virt/libvirt/net/address_pairs.py      further addresses of guests
    virt/libvirt/net/guest_interfaces.py   changes of interfaces of running guests
    virt/libvirt/net/anti_spoofing.py      nftables: own addresses only
    virt/libvirt/net/neutron.py            interfaces on Open vSwitch

Tests: ``tests/unit/network``, ``tests/unit/api/network``, ``tests/functional/test_network_api.py``,
``tests/functional/test_neutron.py``.
"""
