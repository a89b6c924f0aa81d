"""Give a new Keystone what this cloud needs of it:

    fill_keystone.py AUTH_URL REGION COMPUTE_URL IMAGE_URL NETWORK_URL VOLUME_URL NETWORK

``VOLUME_URL``: empty where volumes are ours. ``NETWORK``: ``neutron`` where it is Neutron that is at ``NETWORK_URL``.
Standard input: the passwords of admin (whom ``keystone-manage bootstrap`` made), demo, nova-lite, glance, cinder and
neutron, one a line. It can be repeated; passwords are set when a user is made, and never after.
"""

from __future__ import annotations

import sys
from typing import Any

import openstack

DOMAIN = "default"


class Keystone:
    def __init__(self, auth_url: str, region: str, password: str) -> None:
        self._region = region
        self._identity: Any = openstack.connect(
            auth_url=auth_url,
            username="admin",
            password=password,
            project_name="admin",
            user_domain_id=DOMAIN,
            project_domain_id=DOMAIN,
            region_name=region,
        ).identity
        self._roles = {role.name: role for role in self._identity.roles()}

    def project(self, name: str, description: str) -> Any:
        return self._identity.find_project(name, domain_id=DOMAIN) or self._identity.create_project(
            name=name, domain_id=DOMAIN, description=description
        )

    def user(self, name: str, password: str, project: Any, *roles: str) -> None:
        user = self._identity.find_user(name, domain_id=DOMAIN) or self._identity.create_user(
            name=name, password=password, domain_id=DOMAIN, default_project_id=project.id
        )
        for role in roles:
            if role not in self._roles:
                self._roles[role] = self._identity.create_role(name=role)
            self._identity.assign_project_role_to_user(project, user, self._roles[role])

    def service(self, name: str, type_: str, url: str) -> None:
        """Create the service and its public endpoint, which all clients use."""
        service = next(iter(self._identity.services(type=type_)), None)
        service = service or self._identity.create_service(name=name, type=type_)
        endpoint = next(iter(self._identity.endpoints(service_id=service.id, interface="public")), None)
        if endpoint is None:
            self._identity.create_endpoint(
                service_id=service.id, interface="public", url=url, region_id=self._region, is_enabled=True
            )
        elif endpoint.url != url:
            self._identity.update_endpoint(endpoint, url=url)


def main(
    auth_url: str, region: str, compute_url: str, image_url: str, network_url: str, volume_url: str, network: str
) -> None:
    admin, demo, nova_lite, glance, cinder, neutron = sys.stdin.read().split()
    keystone = Keystone(auth_url, region, admin)
    keystone.service("keystone", "identity", auth_url)
    keystone.service("nova-lite", "compute", compute_url)
    keystone.service("glance", "image", image_url)
    keystone.service("neutron" if network == "neutron" else "nova-lite-networks", "network", network_url)
    if volume_url:
        keystone.service("cinder", "block-storage", volume_url)
    keystone.user("demo", demo, keystone.project("demo", "For trying things out"), "member")
    service = keystone.project("service", "Users of the cloud's own services")
    keystone.user("nova-lite", nova_lite, service, "service", "admin")
    keystone.user("glance", glance, service, "service")
    if volume_url:
        keystone.user("cinder", cinder, service, "service")
    if network == "neutron":
        keystone.user("neutron", neutron, service, "service", "admin")


if __name__ == "__main__":
    main(*sys.argv[1:])
