"""novaclient's Python API, without a version in its requests, and with the newest that there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from keystoneauth1 import session
from keystoneauth1.identity import v3
from novaclient import API_MAX_VERSION, api_versions, client, exceptions

from tests.functional import cloud as clouds
from tests.functional.cloud import PASSWORDS, Cloud
from tests.support.waiting import wait_for

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBZkgYMJVdyBZKqH1IWNkEZkg7RvqrXtlgP9BzhZLdCt me@example.org"
#: The last one is the client's own newest.
VERSIONS = ("2.1", "2.37", "2.53", "2.96")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("novaclient"), computes=1, standalone=True) as running:
        yield running


def connect(cloud: Cloud, user: str, version: str) -> Any:
    auth = v3.Password(
        cloud.identity_url,
        username=user,
        password=PASSWORDS[user],
        project_name=user,
        user_domain_id="default",
        project_domain_id="default",
    )
    return client.Client(version, session=session.Session(auth=auth))


@pytest.fixture(params=VERSIONS)
def demo(request: pytest.FixtureRequest, cloud: Cloud) -> Any:
    return connect(cloud, "demo", request.param)


@pytest.fixture(params=VERSIONS)
def admin(request: pytest.FixtureRequest, cloud: Cloud) -> Any:
    return connect(cloud, "admin", request.param)


def test_versions(cloud: Cloud) -> None:
    demo = connect(cloud, "demo", "2.1")
    current = demo.versions.get_current()
    assert (current.id, current.min_version, current.version) == ("v2.1", "2.1", "2.104")
    found = api_versions.discover_version(demo, api_versions.APIVersion("2.latest"))
    assert found == API_MAX_VERSION
    assert {item.id for item in demo.versions.list()} >= {"v2.1"}


def wait_for_status(demo: Any, server: Any, status: str) -> Any:
    def there() -> Any:
        found = demo.servers.get(server)
        return found if found.status == status and getattr(found, "OS-EXT-STS:task_state") is None else None

    return wait_for(f"the server is {status}", there)


def test_life_of_a_server(cloud: Cloud, demo: Any) -> None:
    flavor = demo.flavors.find(name="m1.nano")
    nics = "auto" if demo.api_version >= api_versions.APIVersion("2.37") else None
    made = demo.servers.create("vm", cloud.image_id, flavor, meta={"a": "b"}, nics=nics)
    server = wait_for_status(demo, made, "ACTIVE")
    assert (server.name, server.metadata) == ("vm", {"a": "b"})
    assert server.networks["private"]
    assert [item.id for item in demo.servers.list()] == [made.id]
    assert [item.id for item in demo.servers.list(search_opts={"name": "^vm$", "status": "ACTIVE"})] == [made.id]
    assert demo.servers.list(search_opts={"name": "other"}) == []
    server.stop()
    wait_for_status(demo, made, "SHUTOFF")
    with pytest.raises(exceptions.Conflict):
        server.stop()
    server.start()
    wait_for_status(demo, made, "ACTIVE")
    server.reboot("HARD")
    wait_for_status(demo, made, "ACTIVE")
    assert server.update(name="renamed").name == "renamed"
    actions = {item.action for item in demo.instance_action.list(server)}
    assert actions == {"create", "stop", "start", "reboot"}
    server.delete()
    wait_for("the server is gone", lambda: not demo.servers.list())
    with pytest.raises(exceptions.NotFound):
        demo.servers.get(made.id)


def test_paging(cloud: Cloud, demo: Any) -> None:
    """``limit=-1`` asks for page after page until one is empty."""
    nics = "none" if demo.api_version >= api_versions.APIVersion("2.37") else None
    made = demo.servers.create("vm", cloud.image_id, "1", min_count=3, max_count=3, nics=nics)
    wait_for_status(demo, made, "ACTIVE")
    assert len(demo.servers.list(limit=-1)) == 3
    assert len(demo.servers.list(limit=2)) == 2
    for server in demo.servers.list():
        server.delete()
    wait_for("the servers are gone", lambda: not demo.servers.list())


def test_novaclient_admin_actions_succeed(cloud: Cloud, admin: Any) -> None:
    nics = "none" if admin.api_version >= api_versions.APIVersion("2.37") else None
    server = wait_for_status(admin, admin.servers.create("vm", cloud.image_id, "1", nics=nics), "ACTIVE")
    _, found = server.diagnostics()
    assert ("driver" in found) == (admin.api_version >= api_versions.APIVersion("2.48"))
    server.clear_password()
    assert server.get_password() == ""
    server.reset_state("error")
    wait_for_status(admin, server, "ERROR")
    server.reset_state("active")
    wait_for_status(admin, server, "ACTIVE")
    server.delete()
    wait_for("the server is gone", lambda: not admin.servers.list())


def test_certificates(cloud: Cloud) -> None:
    admin = connect(cloud, "admin", "2.91")
    made = admin.keypairs.create("w", key_type="x509")
    assert (made.type, made.private_key.splitlines()[0]) == ("x509", "-----BEGIN PRIVATE KEY-----")
    assert admin.keypairs.get("w").public_key == made.public_key
    admin.keypairs.delete("w")


def test_flavors(admin: Any) -> None:
    assert {flavor.name for flavor in admin.flavors.list()} == {"m1.nano", "m1.huge"}
    assert {flavor.name for flavor in admin.flavors.list(is_public=None)} == {"m1.nano", "m1.huge"}
    made = admin.flavors.create("m1.own", 64, 1, 1, flavorid="own", swap=16)
    assert (admin.flavors.get("own").ram, made.vcpus, made.swap) == (64, 1, 16)
    made.set_keys({"hw:cpu_policy": "shared"})
    assert made.get_keys() == {"hw:cpu_policy": "shared"}
    made.unset_keys(["hw:cpu_policy"])
    assert made.get_keys() == {}
    made.delete()
    with pytest.raises(exceptions.NotFound):
        admin.flavors.get("own")


def test_keypairs(demo: Any) -> None:
    made = demo.keypairs.create("mine", PUBLIC_KEY)
    assert made.fingerprint and not hasattr(made, "private_key")
    assert [key.name for key in demo.keypairs.list()] == ["mine"]
    assert demo.keypairs.get("mine").public_key == PUBLIC_KEY
    with pytest.raises(exceptions.Conflict):
        demo.keypairs.create("mine", PUBLIC_KEY)
    demo.keypairs.delete("mine")
    assert demo.keypairs.list() == []


def test_hypervisors(admin: Any) -> None:
    (found,) = admin.hypervisors.list()
    assert (found.hypervisor_hostname, found.state, found.status) == ("compute-1", "up", "enabled")
    assert admin.hypervisors.get(found).host_ip
    assert [item.id for item in admin.hypervisors.search("compute")] == [found.id]
    if admin.api_version < api_versions.APIVersion("2.88"):
        assert admin.hypervisors.statistics().count == 1
        assert admin.hypervisors.uptime(found).uptime.startswith("up")


def test_services(admin: Any) -> None:
    (service,) = admin.services.list(binary="nova-compute")
    assert (service.host, service.state, service.status) == ("compute-1", "up", "enabled")
    if admin.api_version < api_versions.APIVersion("2.53"):
        assert admin.services.disable_log_reason("compute-1", "nova-compute", "to mend").status == "disabled"
        assert admin.services.enable("compute-1", "nova-compute").status == "enabled"
    else:
        assert admin.services.disable_log_reason(service.id, "to mend").disabled_reason == "to mend"
        assert admin.services.enable(service.id).status == "enabled"


def test_zones_and_limits(demo: Any) -> None:
    assert [zone.zoneName for zone in demo.availability_zones.list(detailed=False)] == ["nova"]
    limits = {item.name: item.value for item in demo.limits.get().absolute}
    assert limits["maxTotalInstances"] == 10


def test_others_are_refused(cloud: Cloud) -> None:
    demo = connect(cloud, "demo", "2.96")
    with pytest.raises(exceptions.Forbidden):
        demo.hypervisors.list()
    with pytest.raises(exceptions.NotFound):
        demo.servers.get(cloud.image_id)
