"""The metadata API: identification of callers, both trees, the password, and the limit of requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.metadata.app import MetadataApp
from nova_lite.base import exceptions
from nova_lite.objects.instance import POSTED_PASSWORD
from tests.support.control_plane import NETWORK_ID
from tests.support.metadata_service import ADDRESS, KEY, PROXY, Service, signed

OTHER = "9f1d3c52-0000-4000-8000-000000000001"

EC2 = [
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
    "latest",
]
OPENSTACK = [
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "2025-04-04",
    "latest",
]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


# --- EC2


@pytest.mark.parametrize("path", ["/", "", "/ec2", "//"])
def test_root_lists_ec2_versions(service: Service, path: str) -> None:
    assert service.text(path).split("\n") == EC2


@pytest.mark.parametrize("version", EC2)
def test_ec2_version_is_served(service: Service, version: str) -> None:
    assert service.text(f"/{version}").split("\n") == ["meta-data/", "user-data"]
    assert service.text(f"/ec2/{version}/") == service.text(f"/{version}")
    names = service.text(f"/{version}/meta-data/").split("\n")
    for since, name in (
        ("2007-01-19", "local-hostname"),
        ("2007-08-29", "instance-type"),
        ("2007-12-15", "block-device-mapping/"),
        ("2008-02-01", "placement/"),
        ("2008-09-01", "instance-action"),
    ):
        assert (name in names) is (version >= since), name
    assert service.text(f"/{version}/user-data") == "#!/bin/sh\n"


def test_ec2_tree_of_a_guest(service: Service) -> None:
    top = "/latest/meta-data"
    assert service.text(f"{top}/instance-id") == service.instance.uuid
    assert service.text(f"{top}/hostname") == service.text(f"{top}/local-hostname") == "vm"
    assert service.text(f"{top}/local-ipv4") == ADDRESS
    assert service.text(f"{top}/security-groups") == "default"
    assert service.text(f"{top}/instance-type") == "m1.tiny"
    assert service.text(f"{top}/placement") == "availability-zone"
    assert service.text(f"{top}/placement/availability-zone") == "nova"
    assert service.text(f"{top}/block-device-mapping/root") == "/dev/vda"
    assert service.text(f"{top}/public-keys/") == "0=mine"
    assert service.text(f"{top}/public-keys/0") == "openssh-key"
    assert service.text(f"{top}/public-keys/0/openssh-key") == KEY


@pytest.mark.parametrize(
    "path",
    [
        "/2031-01-01",
        "/latest/nothing",
        "/latest/meta-data/nothing",
        "/latest/meta-data/hostname/x",
        "/latest/meta-data/public-keys/0/_name",
        "/latest/meta-data/public-keys/1",
        "/nothing/at/all",
        "/1.0/meta-data/local-hostname",
        "/latest/user-data/x",
        "/latest/meta-data/security-groups/default",
        "/openstack/2031-01-01",
        "/openstack/latest/nothing",
        "/openstack/latest/meta_data.json/x",
        "/openstack/2012-08-10/vendor_data.json",
        "/openstack/2012-08-10/password",
        "/openstack/2013-10-17/network_data.json",
        "/openstack/2016-06-30/vendor_data2.json",
        "/openstack/content/0000",
        "/openstack/latest/..%2f..%2fx",
    ],
)
def test_unknown_path_is_a_404(service: Service, path: str) -> None:
    service.text(path, 404)


def test_guest_without_key_and_user_data_has_no_such_nodes(service: Service) -> None:
    service.add(address="10.0.0.6")
    assert service.text("/latest", address="10.0.0.6") == "meta-data/"
    assert "public-keys" not in service.text("/latest/meta-data", address="10.0.0.6")
    service.text("/latest/user-data", 404, address="10.0.0.6")
    service.text("/openstack/latest/user_data", 404, address="10.0.0.6")
    assert "user_data" not in service.text("/openstack/latest", address="10.0.0.6").split("\n")


# --- OpenStack


@pytest.mark.parametrize("path", ["/openstack", "/openstack/"])
def test_openstack_versions_are_listed(service: Service, path: str) -> None:
    assert service.text(path).split("\n") == OPENSTACK


@pytest.mark.parametrize("version", OPENSTACK)
def test_openstack_version_is_served(service: Service, version: str) -> None:
    names = service.text(f"/openstack/{version}").split("\n")
    assert names[:2] == ["meta_data.json", "user_data"]
    for since, name in (
        ("2013-04-04", "password"),
        ("2013-10-17", "vendor_data.json"),
        ("2015-10-15", "network_data.json"),
        ("2016-10-06", "vendor_data2.json"),
    ):
        assert (name in names) is (version >= since), name
    data = service.json(f"/openstack/{version}/meta_data.json")
    for since, name in (("2013-04-04", "random_seed"), ("2015-10-15", "project_id"), ("2020-10-14", "dedicated_cpus")):
        assert (name in data) is (version >= since), name
    assert (data["uuid"], data["hostname"], data["public_keys"]) == (service.instance.uuid, "vm", {"mine": KEY})


def test_openstack_documents_of_a_guest(service: Service) -> None:
    assert service.text("/openstack/latest/user_data") == "#!/bin/sh\n"
    (network,) = service.json("/openstack/latest/network_data.json")["networks"]
    assert network["type"] == "ipv4_dhcp"
    assert service.json("/openstack/latest/vendor_data.json") == {}
    assert service.json("/openstack/latest/vendor_data2.json") == {"static": {}}
    seeds = {service.json("/openstack/latest/meta_data.json")["random_seed"] for _ in range(2)}
    assert len(seeds) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_http_methods_are_refused(service: Service, method: str) -> None:
    for path in ("/", "/latest/api/token", "/openstack/latest/meta_data.json"):
        response = service(path, method=method, body=b"x")
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


# --- the password


def test_password_is_posted_once(service: Service) -> None:
    path = "/openstack/latest/password"
    assert service.text(path) == ""
    assert service(path, "POST", body=b"c2VjcmV0").status_code == 200
    assert service.instance.system_metadata == {POSTED_PASSWORD: "c2VjcmV0"}
    assert service.text(path) == "c2VjcmV0", "what is remembered of the server is not its old state"
    assert "already" in service.text(path, 409, method="POST", body=b"another")
    assert service.instance.system_metadata == {POSTED_PASSWORD: "c2VjcmV0"}


@pytest.mark.parametrize("body", [b"", b"x" * 1021, "ü".encode()])
def test_invalid_password_is_refused(service: Service, body: bytes) -> None:
    service.text("/openstack/2013-04-04/password", 400, method="POST", body=body)
    assert service.calls("instance_password_set") == 0


# --- by address


def test_unknown_address_is_a_404(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/latest/meta-data/", "/openstack", "/openstack/latest/meta_data.json"):
        service.text(path, 404, address="10.0.0.77")
    assert f"A metadata request from 10.0.0.77 ({NETWORK_ID}) is refused: no server has it" in caplog.text


def test_deleted_server_is_not_served(service: Service) -> None:
    service.instance.deleted = True
    service.text("/latest/meta-data/", 404)


def test_headers_of_a_guest_are_ignored(service: Service) -> None:
    other = service.add(address="10.0.0.6")
    signature = hmac.new(b"", other.uuid.encode(), hashlib.sha256).hexdigest()
    headers = {"X_Instance_ID": other.uuid, "X_Tenant_ID": "demo", "X_Instance_ID_Signature": signature}
    headers |= {"X_Forwarded_For": "10.0.0.6", "Forwarded": "for=10.0.0.6", "X_Real_IP": "10.0.0.6"}
    assert service.text("/latest/meta-data/instance-id", **headers) == service.instance.uuid


def test_two_servers_with_every_address_in_common_read_their_own(service: Service) -> None:
    twin = service.add(network_id=OTHER, user_data=base64.b64encode(b"twin").decode())
    for network_id, instance, text in ((NETWORK_ID, service.instance, "#!/bin/sh\n"), (OTHER, twin, "twin")):
        assert service.text("/latest/meta-data/instance-id", network_id=network_id) == instance.uuid
        assert service.text("/latest/user-data", network_id=network_id) == text
    service.text("/latest/meta-data/instance-id", 404, network_id="4f0c1e8e-0000-4000-8000-000000000000")
    assert service("/openstack/latest/password", "POST", body=b"b3du", network_id=OTHER).status_code == 200
    assert (service.instance.system_metadata, twin.system_metadata) == ({}, {POSTED_PASSWORD: "b3du"})


def test_conductor_that_ignores_networks_shows_no_server_of_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one would."""
    at_address = service.conductor.instances_at_address
    monkeypatch.setattr(
        service.conductor, "instances_at_address", lambda context, address, network_id: at_address(context, address)
    )
    service.text("/latest/meta-data/instance-id", 404, network_id=OTHER)
    assert service.text("/latest/meta-data/instance-id") == service.instance.uuid


def test_request_from_no_network_is_refused(service: Service) -> None:
    service.text("/latest/meta-data/instance-id", 403, network_id=None)
    service.text("/latest/meta-data/instance-id", 403, network_id=None, X_Forwarded_For=ADDRESS)


def test_trusted_proxy_forwards_the_address(tmp_path: Path) -> None:
    service = Service(tmp_path, "use_forwarded_for = true\n")
    path = "/latest/meta-data/instance-id"
    proxy: dict[str, Any] = {"address": "192.0.2.1", "network_id": None}
    assert service.text(path, **proxy, X_Forwarded_For=f"10.0.0.6, {ADDRESS}") == service.instance.uuid
    for wrong in ({}, *({"X_Forwarded_For": text} for text in ("fe80::1%lo", "unknown", "10.0.0.6:80"))):
        service.text(path, 400, **proxy, **wrong)
    service.add(network_id=OTHER)
    service.text(path, 404, address="192.0.2.1", network_id=OTHER, X_Forwarded_For=ADDRESS)


def test_address_of_two_networks_is_no_server_behind_a_proxy(tmp_path: Path) -> None:
    service = Service(tmp_path, "use_forwarded_for = true\n")
    service.add(network_id=OTHER)
    service.text("/latest/meta-data/", 404, network_id=None, X_Forwarded_For=ADDRESS)


# --- by signature


@pytest.fixture
def proxied(tmp_path: Path) -> Service:
    return Service(tmp_path, PROXY)


def test_signed_request_of_neutrons_agent_is_served(proxied: Service) -> None:
    other = proxied.add(address="10.0.0.6")
    path = "/latest/meta-data/instance-id"
    assert proxied.text(path, **signed(other.uuid)) == other.uuid
    assert proxied.text(path, **signed(proxied.instance.uuid)) == proxied.instance.uuid


def test_signature_is_valid_for_one_instance_and_project(proxied: Service, caplog: pytest.LogCaptureFixture) -> None:
    path = "/latest/meta-data/instance-id"
    good = signed(proxied.instance.uuid)
    assert proxied.text(path, **good) == proxied.instance.uuid
    proxied.text(path, 404, **{**good, "X_Tenant_ID": "other"})
    proxied.text(path, 404, **signed("4f0c1e8e-0000-4000-8000-000000000000"))
    proxied.text(path, 403, **signed(proxied.instance.uuid, secret="a guess"))
    proxied.text(path, 403, **{**good, "X_Instance_ID": "4f0c1e8e-0000-4000-8000-000000000000"})
    proxied.text(path, 403, **{**good, "X_Instance_ID_Signature": "é"})
    assert good["X_Instance_ID_Signature"] not in caplog.text


@pytest.mark.parametrize("missing", ["X_Instance_ID", "X_Tenant_ID", "X_Instance_ID_Signature"])
def test_unsigned_request_is_refused_behind_neutrons_agent(proxied: Service, missing: str) -> None:
    headers = {name: value for name, value in signed(proxied.instance.uuid).items() if name != missing}
    message = proxied.text("/latest/meta-data/instance-id", 400, **headers)
    assert message == f"{missing.replace('_', '-')} header is missing from request."
    assert proxied.calls("instances_at_address") == 0


def test_empty_secret_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="metadata_proxy_shared_secret"):
        Service(tmp_path, "[neutron]\nservice_metadata_proxy = true\n")


# --- what it costs


def test_server_is_cached_for_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, now = clocked(tmp_path, monkeypatch)
    for _ in range(5):
        service.text("/latest/meta-data/hostname")
    assert service.calls("instances_at_address") == 1
    service.instance.deleted = True
    now[0] += 15.1
    service.text("/latest/meta-data/hostname", 404)


def test_cache_can_be_disabled(tmp_path: Path) -> None:
    service = Service(tmp_path, "metadata_cache_expiration = 0\n")
    for _ in range(3):
        service.text("/latest/meta-data/hostname")
    assert service.calls("instances_at_address") == 3


def test_too_many_requests_of_one_guest_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, now = clocked(tmp_path, monkeypatch, "metadata_requests_per_minute = 3\n")
    service.add(address="10.0.0.6")
    for _ in range(3):
        service.text("/latest/meta-data/hostname")
    refused = service("/latest/meta-data/hostname")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    service.text("/", 429)
    service.text("/latest/meta-data/hostname", address="10.0.0.6")
    now[0] += 60.1
    service.text("/latest/meta-data/hostname")


def test_control_plane_down_is_a_503(service: Service) -> None:
    service.conductor.error = exceptions.MessagingUnavailable(what="the conductor")
    response = service("/latest/meta-data/")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "2")


def clocked(path: Path, monkeypatch: pytest.MonkeyPatch, text: str = "") -> tuple[Service, list[float]]:
    """Return a service whose time is in the list."""
    now = [1000.0]
    monkeypatch.setattr(MetadataApp.__init__, "__defaults__", (lambda: now[0],))
    return Service(path, text), now
