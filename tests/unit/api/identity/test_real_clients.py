"""The identity API as keystoneauth and openstacksdk use it, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keystoneauth1.exceptions
import openstack.connection
import pytest
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from tests.support.http_site import HttpSite
from tests.support.identity_api import PASSWORDS, World

DEFAULT = {"user_domain_name": "default", "project_domain_name": "DEFAULT", "project_name": "demo"}


@pytest.fixture
def url(world: World) -> Iterator[str]:
    """Serve the identity and the compute API, and return the URL of the former."""
    sites = {
        name: HttpSite(lambda *given, name=name: world.app(name)(*given), 4) for name in ("osapi_compute", "identity")
    }
    urls = {name: "http://{}:{}".format(*site.address) for name, site in sites.items()}
    world.conf.set_override("compute_endpoint", f"{urls['osapi_compute']}/v2.1", "identity")
    world.conf.set_override("identity_endpoint", f"{urls['identity']}/v3", "identity")
    yield f"{urls['identity']}/v3"
    for site in sites.values():
        site.stop()


def session(url: str, user: str, **scope: str) -> Session:
    auth = v3.Password(url, username=user, password=PASSWORDS[user], **(DEFAULT | scope))
    return Session(auth, timeout=60)


def sdk(url: str, user: str) -> Any:
    return openstack.connection.Connection(session=session(url, user), region_name="RegionOne").identity


def by_credential(url: str, secret: str, **named: str) -> Session:
    return Session(v3.ApplicationCredential(url, application_credential_secret=secret, **named), timeout=60)


def test_application_credential_of_real_clients(world: World, url: str) -> None:
    client = sdk(url, "alice")
    made = client.create_application_credential("id-of-alice", "ci", roles=[{"name": "reader"}])
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
    limited = client.create_application_credential("id-of-alice", "limited", access_rules=rules)
    assert {item.name for item in client.application_credentials("id-of-alice")} == {"ci", "limited"}
    assert client.get_application_credential("id-of-alice", made.id).secret is None
    (rule,) = client.access_rules("id-of-alice")
    assert (rule.service, rule.method, rule.path) == ("compute", "GET", "/v2.1/servers")
    named = {"application_credential_name": "ci", "username": "alice", "user_domain_name": "default"}
    for session in (
        by_credential(url, made.secret, application_credential_id=made.id),
        by_credential(url, made.secret, **named),
    ):
        compute = session.get_endpoint(service_type="compute")
        assert session.get(f"{compute}/servers").status_code == 200
        assert session.get_project_id() == world.demo.id
        with pytest.raises(keystoneauth1.exceptions.Forbidden):
            session.post(f"{compute}/os-server-groups", json={"server_group": {"name": "g", "policies": ["affinity"]}})
    by_rules = by_credential(url, limited.secret, application_credential_id=limited.id)
    assert by_rules.get(f"{compute}/servers").status_code == 200
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        by_rules.get(f"{compute}/os-keypairs")
    client.delete_application_credential("id-of-alice", made.id)
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        by_credential(url, made.secret, application_credential_id=made.id).get_token()


def test_groups_domains_and_catalog_of_the_sdk(world: World, url: str) -> None:
    admin = sdk(url, "admin")
    domain = admin.create_domain(name="Lab")
    assert admin.find_domain("Lab").id == domain.id
    group, user = admin.create_group(name="developers", domain_id=domain.id), admin.find_user("alice")
    project, role = admin.find_project("ops"), admin.find_role("reader")
    admin.add_user_to_group(user, group)
    assert admin.check_user_in_group(user, group)
    assert [item.name for item in admin.group_users(group)] == ["alice"]
    admin.assign_project_role_to_group(project, group, role)
    assert admin.validate_group_has_project_role(project, group, role)
    found = admin.role_assignments(user_id=user.id, effective=True, scope_project_id=project.id)
    assert [item.role["id"] for item in found] == [role.id]
    admin.create_region(id="Far")
    service = admin.create_service(type="orchestration", name="heat")
    heat = "http://cloud.example:8004/v1/%(project_id)s"
    admin.create_endpoint(service_id=service.id, interface="public", url=heat, region_id="Far")
    alice = session(url, "alice", project_name="ops")
    endpoint = alice.get_endpoint(service_type="orchestration", region_name="Far")
    assert endpoint == f"http://cloud.example:8004/v1/{world.ops.id}"
    admin.delete_group(group)
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        alice.get(f"{url}/auth/projects")


def test_trust_of_keystoneauth(world: World, url: str) -> None:
    """Heat uses trusts in this way."""
    alice = session(url, "alice")
    given = {"trustor_user_id": "id-of-alice", "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    body = {"trust": given | {"impersonation": True, "roles": [{"name": "member"}], "allow_redelegation": False}}
    trust = alice.post(f"{url}/OS-TRUST/trusts", json=body).json()["trust"]
    auth = v3.Password(
        url, username="admin", password=PASSWORDS["admin"], user_domain_id="default", trust_id=trust["id"]
    )
    trusted = Session(auth, timeout=60)
    assert (trusted.get_user_id(), trusted.get_project_id()) == ("id-of-alice", world.demo.id)
    assert trusted.get(trusted.get_endpoint(service_type="compute") + "/servers").status_code == 200
    trusted.delete(f"{url}/OS-TRUST/trusts/{trust['id']}")
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        trusted.get(f"{url}/auth/projects")
