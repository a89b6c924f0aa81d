"""Give a new Neutron what this cloud begins with: fill_neutron.py AUTH_URL REGION CIDR

A network ``private`` that all share, and ping and SSH let in by the default groups of the projects admin and demo.
Standard input: the password of admin. It can be repeated.
"""

from __future__ import annotations

import sys
from typing import Any

import openstack

NETWORK = "private"
OPEN: tuple[dict[str, Any], ...] = (
    {"protocol": "icmp"},
    {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22},
)


def main(auth_url: str, region: str, cidr: str) -> None:
    cloud = openstack.connect(
        auth_url=auth_url,
        username="admin",
        password=sys.stdin.read().strip(),
        project_name="admin",
        user_domain_id="default",
        project_domain_id="default",
        region_name=region,
    )
    neutron: Any = cloud.network
    if neutron.find_network(NETWORK) is None:
        network = neutron.create_network(name=NETWORK, shared=True)
        neutron.create_subnet(network_id=network.id, name=NETWORK, ip_version=4, cidr=cidr)
    for name in ("admin", "demo"):
        project: Any = cloud.identity.find_project(name)
        [group] = neutron.security_groups(name="default", project_id=project.id)
        for rule in OPEN:
            try:
                neutron.create_security_group_rule(
                    security_group_id=group.id, project_id=project.id, direction="ingress", ether_type="IPv4", **rule
                )
            except openstack.exceptions.ConflictException:
                continue  # it is there


if __name__ == "__main__":
    main(*sys.argv[1:])
