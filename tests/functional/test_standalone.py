"""A cloud of our own daemons, used by the unmodified ``openstack`` client, and by callers without rights."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keystoneauth1.exceptions
import openstack
import pytest
import requests
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from nova_lite.api.identity.replica import Replica
from nova_lite.api.identity.tokens import Tokens, new_token
from nova_lite.db.core.engine import Database
from nova_lite.db.identity.identity_records import DatabaseStore
from tests.functional import cloud as clouds
from tests.functional.cloud import PASSWORDS, Cloud
from tests.functional.standalone_client import Client
from tests.support.identity_records import keyed_replica
from tests.support.waiting import wait_for

DATA = bytes(range(256)) * 2048


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("standalone"), computes=1, standalone=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cloud: Cloud) -> Client:
    return Client(cloud, "admin")


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Client:
    return Client(cloud, "demo")


def test_identity(admin: Client, demo: Client) -> None:
    token = admin.one("token issue")
    assert token["id"] and token["project_id"] and token["user_id"]
    catalog = admin.rows("catalog list", "Name", "Type", "Endpoints")
    assert {row["Type"] for row in catalog} == {"identity", "compute", "image", "volumev3", "block-storage", "network"}
    assert {row["Name"] for row in admin.rows("project list", "ID", "Name")} == set(PASSWORDS)
    assert {row["Name"] for row in admin.rows("user list", "ID", "Name")} == set(PASSWORDS)
    assert "403" in demo("user list", status=1)
    assert demo.rows("project list --my-projects", "ID", "Name")[0]["Name"] == "demo"


def test_catalogue_and_hosts(admin: Client) -> None:
    admin("flavor create --ram 64 --disk 1 --vcpus 1 --id auto --property hw:cpu_policy=shared f1")
    assert admin.one("flavor show f1")["properties"] == {"hw:cpu_policy": "shared"}
    flavors = admin.rows("flavor list", "ID", "Name", "RAM", "Disk", "Ephemeral", "VCPUs", "Is Public")
    assert "f1" in {row["Name"] for row in flavors}
    admin("flavor delete f1")
    columns = ("ID", "Hypervisor Hostname", "Hypervisor Type", "Host IP", "State")
    (hypervisor,) = admin.rows("hypervisor list", *columns)
    assert hypervisor["State"] == "up"
    assert admin.one(f"hypervisor show {hypervisor['Hypervisor Hostname']}")["state"] == "up"
    services = admin.rows("compute service list", "ID", "Binary", "Host", "Zone", "Status", "State", "Updated At")
    assert {"nova-compute", "nova-conductor"} <= {row["Binary"] for row in services}
    zones = admin.rows("availability zone list", "Zone Name", "Zone Status")
    assert {"Zone Name": "nova", "Zone Status": "available"} in zones
    limits = admin.rows("limits show --absolute", "Name", "Value")
    assert {"Name": "max_total_instances", "Value": 10} in limits
    assert {row["Resource"]: row["Limit"] for row in admin.rows("quota show", "Resource", "Limit")}["instances"] == 10


def test_images(cloud: Cloud, demo: Client, tmp_path: Path) -> None:
    source, saved = tmp_path / "image", tmp_path / "saved"
    source.write_bytes(DATA)
    formats = "--disk-format raw --container-format bare"
    made = demo.one(f"image create --file {source} {formats} --property kernel_id=k --private mine")
    assert (made["status"], made["size"], made["visibility"]) == ("active", len(DATA), "private")
    assert {row["Name"] for row in demo.rows("image list", "ID", "Name", "Status")} == {"cirros", "mine"}
    demo("image set --property a=b --min-ram 32 --name ours mine")
    shown = demo.one("image show ours")
    assert shown["min_ram"] == 32
    assert (shown["properties"]["a"], shown["properties"]["kernel_id"]) == ("b", "k")
    demo("image unset --property a ours")
    demo(f"image save --file {saved} ours")
    assert saved.read_bytes() == DATA
    assert "403" in demo("image set --public ours", status=1)
    assert (cloud.path / "shared" / "images" / made["id"]).exists()
    demo("image delete ours")
    assert not (cloud.path / "shared" / "images" / made["id"]).exists()


def test_upload_of_a_killed_api_gives_its_quota_back(cloud: Cloud, demo: Client) -> None:
    """The row has the reserved size. The API shows a size only of an image with data."""
    token = {"X-Auth-Token": cloud.token_of("demo")}
    # The openstack client would upload its standard input.
    image = {"name": "cut", "disk_format": "raw", "container_format": "bare"}
    made = requests.post(f"{cloud.image_url}/v2/images", json=image, headers=token, timeout=60).json()
    headers = {**token, "Content-Type": "application/octet-stream"}
    path, size = f"/v2/images/{made['id']}/file", 40 * 2**20

    def row() -> tuple[str, int]:
        with contextlib.closing(sqlite3.connect(cloud.path / "nova-lite.sqlite", timeout=30)) as database:
            found: tuple[str, int] = database.execute(
                "SELECT status, size FROM images WHERE id = ?", (made["id"],)
            ).fetchone()
            return found

    with socket.create_connection(("127.0.0.1", cloud.image_port)) as client:
        lines = [f"PUT {path} HTTP/1.1", "Host: cloud", f"Content-Length: {size}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        client.sendall("\r\n".join([*lines, "", ""]).encode() + b"x" * 2**20)
        wait_for("the reservation", lambda: row() == ("saving", size))
        cloud.kill("api")
    with contextlib.closing(sqlite3.connect(cloud.path / "nova-lite.sqlite", timeout=30)) as database, database:
        # The deadline of the upload passes.
        database.execute("UPDATE images SET updated_at = datetime('now', '-1 day') WHERE id = ?", (made["id"],))
    wait_for("the end of the reservation", lambda: row() == ("queued", 0))
    cloud.start("api")
    cloud.wait_until_ready()
    assert requests.put(f"{cloud.image_url}{path}", data=DATA, headers=headers, timeout=60).status_code == 204
    assert row() == ("active", len(DATA))
    demo("image delete cut")


def test_servers(cloud: Cloud, admin: Client, demo: Client) -> None:
    demo("keypair create k1")
    assert [row["Name"] for row in demo.rows("keypair list", "Name", "Fingerprint", "Type")] == ["k1"]
    made = demo.one("server create --image cirros --flavor m1.nano --network private --key-name k1 --wait vm1")
    assert made["status"] == "ACTIVE"
    (row,) = demo.rows("server list", "ID", "Name", "Status", "Networks", "Image", "Flavor")
    assert (row["Name"], row["Image"], row["Flavor"]) == ("vm1", "cirros", "m1.nano")
    assert row["Networks"]["private"][0].startswith("10.99.")
    for command, status in (
        ("server stop vm1", "SHUTOFF"),
        ("server start vm1", "ACTIVE"),
        ("server reboot --hard vm1", "ACTIVE"),
    ):
        demo(command)
        _wait_status(cloud, made["id"], status)
    assert demo.one("server show vm1")["id"] == made["id"]
    assert made["id"] in demo("console log show vm1")
    assert admin.rows("server list", "ID", "Name", "Status", "Networks", "Image", "Flavor") == []
    assert "vm1" in admin("server list --all-projects")
    demo("server delete --wait vm1")
    demo("keypair delete k1")


def _wait_status(cloud: Cloud, server_id: str, status: str) -> None:
    def reached() -> bool:
        server = cloud.show(server_id)
        return server is not None and (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

    wait_for(f"the server is {status}", reached)


def test_projects_do_not_see_each_other(cloud: Cloud) -> None:
    mine, other = cloud.token_of("demo"), cloud.token_of("other")
    server = {"name": "mine", "imageRef": cloud.image_id, "flavorRef": "1"}
    server_id = cloud.request("POST", "/servers", {"server": server}, token=mine).json()["server"]["id"]
    image = {"name": "mine", "disk_format": "raw", "container_format": "bare"}
    images = f"{cloud.image_url}/v2/images"
    made = requests.post(images, json=image, headers={"X-Auth-Token": mine}, timeout=60).json()
    with contextlib.closing(requests.Session()) as stranger:
        stranger.headers["X-Auth-Token"] = other
        assert cloud.request("GET", f"/servers/{server_id}", token=other).status_code == 404
        assert cloud.request("GET", "/servers/detail", token=other).json()["servers"] == []
        assert cloud.request("DELETE", f"/servers/{server_id}", token=other).status_code == 404
        one = f"{images}/{made['id']}"
        assert [item["name"] for item in stranger.get(images, timeout=60).json()["images"]] == ["cirros"]
        for answer in (
            stranger.get(one, timeout=60),
            stranger.get(f"{one}/file", timeout=60),
            stranger.put(f"{one}/file", data=b"x", timeout=60),
            stranger.delete(one, timeout=60),
        ):
            assert answer.status_code == 404
        project = cloud.request("GET", "/servers/detail", token=mine).json()["servers"][0]["tenant_id"]
        projects = f"{cloud.identity_url}/projects"
        assert stranger.get(f"{projects}/{project}", timeout=60).status_code == 403
        assert stranger.get(projects, timeout=60).status_code == 403
    assert cloud.request("DELETE", f"/servers/{server_id}", token=mine).status_code == 204
    wait_for("the server is gone", lambda: cloud.show(server_id) is None)
    assert requests.delete(one, headers={"X-Auth-Token": mine}, timeout=60).status_code == 204


def test_no_token_but_a_good_one_opens_anything(cloud: Cloud) -> None:
    good = cloud.token_of("demo")
    assert cloud.request("GET", "/servers", token=good).status_code == 200
    db = Database(cloud.conductor_conf())
    ours = Tokens(Replica(DatabaseStore(db)))
    whole = ours.open(good)
    assert whole is not None
    stranger = Tokens(keyed_replica())
    expired = new_token(whole.user_id, whole.project_id, -1)
    unknown = new_token("0" * 32, whole.project_id, 60)
    foreign = new_token(whole.user_id, "0" * 32, 60)
    flipped = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
    bad = [
        stranger.seal(whole),
        ours.seal(expired),
        ours.seal(unknown),
        ours.seal(foreign),
        flipped,
        good[:-4],
        "admin:demo",
        "é".encode().decode("latin-1"),
    ]
    db.close()
    revoked = cloud.token_of("demo")
    headers = {"X-Auth-Token": good, "X-Subject-Token": revoked}
    assert requests.delete(f"{cloud.identity_url}/auth/tokens", headers=headers, timeout=60).status_code == 204
    for token in [*bad, revoked]:
        for url in (
            f"http://127.0.0.1:{cloud.port}/v2.1/servers",
            f"{cloud.image_url}/v2/images",
            f"{cloud.identity_url}/auth/catalog",
        ):
            answer = requests.get(url, headers={"X-Auth-Token": token}, timeout=60)
            assert answer.status_code == 401, (token, url)
            assert answer.json()["error"]["message"] == "The request you have made requires authentication."
    assert cloud.request("GET", "/servers", token=good).status_code == 200


def test_a_changed_password_ends_tokens(cloud: Cloud) -> None:
    token = cloud.token_of("other")
    assert cloud.request("GET", "/servers", token=token).status_code == 200
    cloud.manage("user", "set-password", "other", stdin=PASSWORDS["other"])
    wait_for("the token is void", lambda: cloud.request("GET", "/servers", token=token).status_code == 401)
    assert cloud.request("GET", "/servers", token=cloud.token_of("other")).status_code == 200


def test_application_credentials_of_real_clients(cloud: Cloud, demo: Client) -> None:
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
    made = demo.one("application credential create ci --role reader --expiration 2090-01-01T00:00:00")
    assert (made["Name"], made["Unrestricted"]) == ("ci", False)
    limited = demo.one(f"application credential create limited --access-rules {shlex.quote(json.dumps(rules))}")
    assert {"ci", "limited"} <= set(demo("application credential list -f value -c Name").split())
    (rule,) = demo.rows("access rule list", "ID", "Service", "Method", "Path")
    assert (rule["Service"], rule["Method"], rule["Path"]) == ("compute", "GET", "/v2.1/servers")

    def session(created: dict[str, Any], **by: str) -> Session:
        secret = created["Secret"]
        auth = v3.ApplicationCredential(cloud.identity_url, application_credential_secret=secret, **by)
        return Session(auth, timeout=60)

    by_id = session(made, application_credential_id=made["ID"])
    user = {"username": "demo", "user_domain_id": "default"}
    by_name = session(made, application_credential_name="ci", **user)
    for client in (by_id, by_name):
        url = client.get_endpoint(service_type="compute")
        assert client.get(f"{url}/servers").status_code == 200
        assert client.get_project_id() == made["Project ID"]
        with pytest.raises(keystoneauth1.exceptions.Forbidden):
            client.post(f"{url}/os-server-groups", json={"server_group": {"name": "g", "policies": ["affinity"]}})
    by_rules = session(limited, application_credential_id=limited["ID"])
    assert by_rules.get(f"{url}/servers").status_code == 200
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        by_rules.get(f"{url}/os-keypairs")
    demo("application credential delete ci")
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        session(made, application_credential_id=made["ID"]).get_token()
    demo("application credential delete limited")
    demo(f"access rule delete {rule['ID']}")
    logs = "".join((cloud.path / f"{name}.log").read_text(errors="replace") for name in cloud.names)
    assert made["Secret"] not in logs


def test_groups_and_catalog_of_the_sdk(cloud: Cloud) -> None:
    """The calls of ``openstack group create``, ``role add --group``, ``service create`` and ``endpoint create``."""
    auth = v3.Password(cloud.identity_url, username="admin", password=PASSWORDS["admin"], project_name="admin",
                       user_domain_name="default", project_domain_name="DEFAULT")  # fmt: skip
    admin = openstack.connection.Connection(session=Session(auth, timeout=60), region_name="RegionOne").identity
    group, user = admin.create_group(name="developers", description="d"), admin.find_user("other")
    project, role = admin.find_project("demo"), admin.find_role("reader")
    admin.add_user_to_group(user, group)
    assert admin.check_user_in_group(user, group)
    assert [item.name for item in admin.group_users(group)] == ["other"]
    admin.assign_project_role_to_group(project, group, role)
    assert admin.validate_group_has_project_role(project, group, role)
    found = admin.role_assignments(user_id=user.id, effective=True, scope_project_id=project.id)
    assert [item.role["id"] for item in found] == [role.id]
    in_demo = v3.Password(cloud.identity_url, username="other", password=PASSWORDS["other"], project_name="demo",
                          user_domain_name="Default", project_domain_name="Default")  # fmt: skip
    service = admin.create_service(type="orchestration", name="heat")
    url = "http://cloud.example:8004/v1/%(project_id)s"
    admin.create_endpoint(service_id=service.id, interface="public", url=url, region_id="RegionOne")
    other = Session(in_demo, timeout=60)

    def endpoint() -> str | None:
        in_demo.invalidate()
        return str(other.get_endpoint(service_type="orchestration", interface="public"))

    wait_for("the service is in the catalog", lambda: endpoint() == f"http://cloud.example:8004/v1/{project.id}")
    admin.delete_service(service)
    admin.delete_group(group)
    compute = other.get_endpoint(service_type="compute")
    with pytest.raises(keystoneauth1.exceptions.Unauthorized):
        other.get(f"{compute}/servers")
    assert list(admin.groups()) == []


def test_no_secret_is_logged(cloud: Cloud) -> None:
    logs = "".join((cloud.path / f"{name}.log").read_text(errors="replace") for name in cloud.names)
    assert cloud.token not in logs
    for password in PASSWORDS.values():
        assert password not in logs
    assert "scrypt$" not in logs
