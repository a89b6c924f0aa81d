"""The error table that clients rely on: status, name and message of each fault."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, MEMBER, STRANGER, Client, fault
from tests.support.control_plane import IMAGE_ID, NETWORK_ID

#: Body of Nova's WSGI library.
UNKNOWN = {
    "message": "The resource could not be found.<br /><br />\n\n\n",
    "code": "404 Not Found",
    "title": "Not Found",
}


def server(**changes: Any) -> dict[str, Any]:
    body = {"name": "vm", "imageRef": IMAGE_ID, "flavorRef": "1"} | changes
    return {"server": {key: value for key, value in body.items() if value is not ...}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (server(name=5), "Invalid input for field/attribute name. Value: 5. 5 is not of type 'string'"),
        (server(name=""), "Invalid input for field/attribute name. Value: . '' should be non-empty"),
        (
            server(name=" vm"),
            "An invalid 'name' value was provided. The name must be: printable characters. "
            "Can not start or end with whitespace.",
        ),
        ({}, "'server' is a required property"),
        (
            server(flavorRef=...),
            f"Invalid input for field/attribute server. Value: {{'name': 'vm', 'imageRef': '{IMAGE_ID}'}}. "
            "'flavorRef' is a required property",
        ),
        (server() | {"junk": 1}, "Additional properties are not allowed ('junk' was unexpected)"),
        (server(min_count=3, max_count=2), "min_count must be <= max_count"),
        (server(imageRef=...), "Missing imageRef attribute"),
        (
            server(networks=[{"uuid": "zz"}]),
            "Bad networks format: network uuid is not in proper format (zz)",
        ),
    ],
)
def test_malformed_create_is_refused(api: Client, body: dict[str, Any], message: str) -> None:
    assert fault(api("POST", "/servers", body), "badRequest", 400) == message
    assert not api.conductor.instances


@pytest.mark.parametrize(
    ("body", "fragment", "version"),
    [
        (server(foo=1), "Additional properties are not allowed ('foo' was unexpected)", None),
        (server(name="x" * 256), "is too long", None),
        (server(name="a\tb"), "An invalid 'name' value was provided.", None),
        (server(imageRef="nonsense"), "Invalid input for field/attribute imageRef", None),
        (server(tags=["a"]), "('tags' was unexpected)", None),
        (server(networks="none"), "Invalid input for field/attribute networks", None),
        (server(host="h"), "('host' was unexpected)", None),
        (server(description="d"), "('description' was unexpected)", None),
        (server(), "'networks' is a required property", "2.37"),
        (server(networks=[{"uuid": "zz"}]), "Invalid input for field/attribute networks", "2.37"),
        (server(networks="auto", personality=[]), "('personality' was unexpected)", "2.57"),
        (server(networks=[{"uuid": NETWORK_ID, "tag": "t"}]), "Invalid input for field/attribute", "2.37"),
        (server(user_data="A" * 65536), "is too long", None),
        (server(user_data="abc"), "Invalid input for field/attribute user_data", None),
        (server(metadata={"k": 5}), "5 is not of type 'string'", None),
        (server(metadata={"k/": "v"}), "Invalid input for field/attribute metadata", None),
        (server(min_count=0), "0 is less than the minimum of 1", None),
        (server(max_count="0"), "Invalid input for field/attribute max_count. Value: 0. '0' does not match", None),
        (server(max_count=2**31), "is greater than the maximum", None),
        (server(max_count="9999999999"), "Invalid input for field/attribute max_count", None),
        (server(accessIPv4="1.2.3"), "Invalid input for field/attribute accessIPv4", None),
        (server(networks="auto", tags=["a,b"]), "does not match", "2.52"),
        (server(networks="auto", hostname="-x"), "does not match", "2.90"),
        (server(networks="auto", hostname="a.b"), "does not match", "2.90"),
        (server(block_device_mapping_v2=[{"boot_index": 0, "source_type": "nonsense"}]), "source_type", None),
    ],
)
def test_validation_error_names_the_field(
    api: Client, body: dict[str, Any], fragment: str, version: str | None
) -> None:
    assert fragment in fault(api("POST", "/servers", body, version=version), "badRequest", 400)


@pytest.mark.parametrize(
    "device",
    [
        {"source_type": "image", "destination_type": "volume", "boot_index": 0, "uuid": IMAGE_ID},
        {"source_type": "blank", "destination_type": "volume", "boot_index": -1},
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": 3},
        {"source_type": "blank", "destination_type": "local", "uuid": IMAGE_ID},
        {"source_type": "blank", "destination_type": "local", "disk_bus": "floppy"},
        {"source_type": "blank", "destination_type": "local", "device_type": "lun"},
        {"source_type": "blank", "destination_type": "local", "guest_format": "ntfs"},
        {"source_type": "volume", "destination_type": "local", "uuid": IMAGE_ID},
        {"source_type": "volume", "destination_type": "volume", "uuid": "x"},
        {"source_type": "snapshot", "destination_type": "volume"},
        {"source_type": "image", "destination_type": "local", "boot_index": 1, "uuid": IMAGE_ID},
        {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": NETWORK_ID},
        {"source_type": "image", "destination_type": "local", "boot_index": 0},
    ],
)
def test_boot_device_in_conflict_with_the_image_is_refused(api: Client, device: dict[str, Any]) -> None:
    response = api("POST", "/servers", server(block_device_mapping_v2=[device]))
    assert fault(response, "badRequest", 400).startswith("Block Device Mapping is Invalid")


def test_boot_volume_takes_precedence_over_image(api: Client) -> None:
    """The two forms of the block device mapping behave as in Nova."""
    device = {"source_type": "volume", "destination_type": "volume", "boot_index": 0, "uuid": NETWORK_ID}
    old = {"block_device_mapping": [{"volume_id": NETWORK_ID, "device_name": "vda"}]}
    for body in ({"block_device_mapping_v2": [device]}, old):
        assert api("POST", "/servers", server(**body)).status_code == 202
        (request,) = api.last_call("create_instances")
        (made,) = request.block_devices
        assert (made.volume_id, made.boot_index, request.image_ref) == (NETWORK_ID, 0, "")
        assert request.names_image


@pytest.mark.parametrize("network", [{"port": NETWORK_ID}, {"uuid": NETWORK_ID, "fixed_ip": "10.0.0.9"}])
def test_multiple_create_with_single_address_is_refused(api: Client, network: dict[str, str]) -> None:
    response = api("POST", "/servers", server(networks=[network], max_count=2))
    assert "one by one" in fault(response, "badRequest", 400)


# --- bodies


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"server": NaN}',
        b"[" * 100000,
        b'{"server": {"name": "\\ud800"}}',
        b"{'a': 1}",
    ],
)
def test_malformed_json_is_refused(api: Client, raw: bytes) -> None:
    assert fault(api("POST", "/servers", raw=raw), "badRequest", 400) == "Malformed request body"


def test_empty_body_is_refused(api: Client) -> None:
    assert fault(api("POST", "/servers", raw=b""), "badRequest", 400) == "None is not of type 'object'"


@pytest.mark.parametrize("value", [[], "text", 5])
def test_non_object_body_is_refused(api: Client, value: Any) -> None:
    assert "is not of type 'object'" in fault(api("POST", "/servers", value), "badRequest", 400)


def test_xml_body_is_refused_and_text_is_parsed_as_json(api: Client) -> None:
    response = api("POST", "/servers", raw=b"<server/>", headers={"Content-Type": "application/xml"})
    assert fault(response, "badMediaType", 415) == "Unsupported Content-Type"
    assert response.headers["X-OpenStack-Request-Id"]
    text = f'{{"server": {{"name": "vm", "imageRef": "{IMAGE_ID}", "flavorRef": "1"}}}}'
    assert api("POST", "/servers", raw=text.encode(), headers={"Content-Type": "text/plain"}).status_code == 202


def test_too_large_body_is_413(api: Client) -> None:
    response = api("POST", "/servers", raw=b" " * 114689)
    assert fault(response, "overLimit", 413) == "Request is too large."
    assert api("POST", "/servers", raw=b" " * 114688).status_code == 400


def test_validation_error_does_not_repeat_secrets(api: Client) -> None:
    secret = "c2VjcmV0IQ=="
    for body in (
        server(adminPass=secret, foo=1),
        server(user_data=secret, foo=1),
        server(adminPass=[secret]),
        server(user_data=secret + "x", name=5),
        server(personality=[{"path": "/x", "contents": [secret]}]),
        server(personality=[{"path": "/x", "contents": secret, "more": 1}]),
        {"server": {"adminPass": secret}, "junk": {"adminPass": secret}},
        server(adminPass=secret) | {"server2": {"adminPass": secret}},
    ):
        response = api("POST", "/servers", body)
        assert response.status_code == 400
        assert secret not in response.text


def test_validation_error_does_not_repeat_a_numeric_password(api: Client) -> None:
    response = api("POST", "/servers", server(adminPass=987654321))
    assert "987654321" not in fault(response, "badRequest", 400)


def test_validation_error_truncates_long_values(api: Client) -> None:
    response = api("POST", "/servers", server(name="n" * 5000))
    assert len(fault(response, "badRequest", 400)) < 2000


# --- what the conductor says


@pytest.mark.parametrize(
    ("error", "name", "code", "message"),
    [
        (exceptions.ImageUnavailable(), "badRequest", 400, "Can not find requested image"),
        (exceptions.FlavorUnavailable(flavor_id="999"), "badRequest", 400, "Flavor 999 could not be found."),
        (exceptions.NetworkUnavailable(network_id="U"), "badRequest", 400, "Network U could not be found."),
        (exceptions.KeypairUnavailable(), "badRequest", 400, "Invalid key_name provided."),
        (
            exceptions.SecurityGroupUnavailable(name="nosuch"),
            "badRequest",
            400,
            "Unable to find security_group with name or id nosuch",
        ),
        (
            exceptions.AvailabilityZoneUnavailable(),
            "badRequest",
            400,
            "The requested availability zone is not available",
        ),
        (
            exceptions.MetadataLimitExceeded(allowed=128),
            "forbidden",
            403,
            "Maximum number of metadata items exceeds 128",
        ),
        (
            exceptions.QuotaExceeded(overs="cores, ram", requested="100, 9", used="7, 5", allowed="20, 8"),
            "forbidden",
            403,
            "Quota exceeded for cores, ram: Requested 100, 9, but already used 7, 5 of 20, 8 cores, ram",
        ),
        (
            exceptions.DatabaseUnavailable(),
            "serviceUnavailable",
            503,
            "The database is unavailable for the moment. Nothing was changed; please try again.",
        ),
        (
            exceptions.MessagingUnavailable(what="create_instances"),
            "serviceUnavailable",
            503,
            "The control plane did not answer (create_instances). Please try again.",
        ),
    ],
)
def test_refused_create_returns_the_conductors_error(
    api: Client, error: Exception, name: str, code: int, message: str
) -> None:
    api.conductor.error = error
    assert fault(api("POST", "/servers", server()), name, code) == message


@pytest.mark.parametrize("error", [RuntimeError("password=hunter2"), exceptions.NoValidHost(reason="hunter2")])
def test_internal_error_is_reported_without_details(api: Client, error: Exception) -> None:
    api.conductor.error = error
    message = fault(api("GET", "/servers"), "computeFault", 500)
    assert message == f"Unexpected API Error. Please contact the administrator\n{type(error)}"


def test_unavailable_service_response_has_retry_after(api: Client) -> None:
    api.conductor.error = exceptions.DatabaseUnavailable()
    assert api("GET", "/servers").headers["Retry-After"] == "2"


# --- servers and actions


def test_unknown_and_other_projects_servers_are_404(api: Client) -> None:
    instance = api.conductor.add()
    for path, token in (("/servers/nosuch", "alice:demo"), (f"/servers/{instance.uuid}", STRANGER)):
        for method, suffix, body in (
            ("GET", "", None),
            ("PUT", "", {"server": {"name": "x"}}),
            ("DELETE", "", None),
            ("POST", "/action", {"os-stop": None}),
            ("POST", "/action", {"os-getConsoleOutput": {}}),
            ("GET", "/os-instance-actions", None),
            ("GET", "/ips", None),
        ):
            message = fault(api(method, path + suffix, body, token=token), "itemNotFound", 404)
            assert message == f"Instance {path.rpartition('/')[2]} could not be found."


def test_action_in_wrong_state_is_409(api: Client) -> None:
    instance = api.conductor.add()
    api.conductor.error = exceptions.InstanceInvalidState(
        method="start", instance_id=instance.uuid, attr="vm_state", state="active"
    )
    response = api("POST", f"/servers/{instance.uuid}/action", {"os-start": None})
    message = f"Cannot 'start' instance {instance.uuid} while it is in vm_state active"
    assert fault(response, "conflictingRequest", 409) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"nosuch": None}, "There is no such action: nosuch"),
        ({"os-start": None, "os-stop": None}, "Malformed request body"),
        ({}, "Malformed request body"),
        ([], "Malformed request body"),
    ],
)
def test_malformed_actions_are_refused(api: Client, body: Any, message: str) -> None:
    instance = api.conductor.add()
    assert fault(api("POST", f"/servers/{instance.uuid}/action", body), "badRequest", 400) == message


def test_unimplemented_route_is_501_with_advice(api: Client) -> None:
    instance = api.conductor.add()
    response = api("GET", "/os-baremetal-nodes", version="2.1")
    assert fault(response, "notImplemented", 501) == (
        "Bare metal is not supported by this cloud. Use the bare metal service, if there is one."
    )
    response = api("POST", f"/servers/{instance.uuid}/action", {"addFloatingIp": None}, version="2.44")
    fault(response, "itemNotFound", 404)


# --- URLs


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nosuch"),
        ("GET", "/servers/x/nosuch"),
        ("PATCH", "/servers"),
        ("DELETE", "/servers"),
        ("GET", "/servers/x/action"),
        ("PUT", "/flavors/detail/x"),
    ],
)
def test_unknown_url_or_verb_is_404(api: Client, method: str, path: str) -> None:
    assert api.json(method, path, status=404) == UNKNOWN


def test_project_in_url_is_repeated_in_links(api: Client) -> None:
    instance = api.conductor.add()
    server = api.json("GET", f"/demo/servers/{instance.uuid}")["server"]
    assert server["links"] == [
        {"rel": "self", "href": f"http://cloud:8774/v2.1/demo/servers/{instance.uuid}"},
        {"rel": "bookmark", "href": f"http://cloud:8774/demo/servers/{instance.uuid}"},
    ]
    assert api.json("GET", f"/other/servers/{instance.uuid}", status=404) == UNKNOWN
    assert api.json("GET", "/other/flavors", token=ADMIN, status=404) == UNKNOWN


def test_url_with_the_id_of_another_project_is_malformed(api: Client) -> None:
    project = "ab" * 16
    for token in (ADMIN, MEMBER):
        assert fault(api("GET", f"/{project}/flavors", token=token), "badRequest", 400) == (
            f"Malformed request URL: URL's project_id '{project}' doesn't match Context's project_id 'demo'"
        )


@pytest.mark.parametrize("path", ["/images", "/images/detail", "/os-networks"])
def test_proxy_routes_end_with_2_35(api: Client, path: str) -> None:
    assert api("GET", path, version="2.35").status_code == 200
    response = api("GET", path, version="2.36")
    assert fault(response, "itemNotFound", 404) == "The resource could not be found."


def test_invalid_utf8_in_url_is_400(api: Client) -> None:
    assert api("GET", "/servers/%ff%fe").status_code == 404
    assert api("GET", "/servers?name=%ff").status_code in (200, 400)


# --- query strings


@pytest.mark.parametrize(
    ("query", "fragment"),
    [
        ("limit=abc", "Invalid input for query parameters limit. Value: abc. 'abc' does not match"),
        ("limit=-1", "Invalid input for query parameters limit"),
        ("marker=nosuch", "marker [nosuch] not found"),
        ("sort_key=nonsense", "Invalid input for query parameters sort_key"),
        ("sort_dir=sideways", "Invalid input for query parameters sort_dir"),
        ("changes-since=yesterday", "Invalid input for query parameters changes-since"),
        ("name=(", "Invalid input for query parameters name"),
        ("all_tenants=perhaps", "Invalid all_tenants value"),
    ],
)
def test_invalid_query_parameters_are_refused(api: Client, query: str, fragment: str) -> None:
    assert fragment in fault(api("GET", f"/servers?{query}"), "badRequest", 400)


@pytest.mark.parametrize("path", ["/servers", "/flavors", "/limits", "/os-keypairs"])
def test_unknown_query_parameters_are_errors_since_2_75(api: Client, path: str) -> None:
    assert api("GET", f"{path}?nonsense=1", version="2.74").status_code == 200
    message = fault(api("GET", f"{path}?nonsense=1", version="2.75"), "badRequest", 400)
    assert message == "Additional properties are not allowed ('nonsense' was unexpected)"


def test_unknown_status_filter_is_refused_since_2_38(api: Client) -> None:
    api.conductor.add()
    assert api.json("GET", "/servers?status=nonsense") == {"servers": []}
    assert fault(api("GET", "/servers?status=nonsense", version="2.38"), "badRequest", 400) == "Invalid status value"


# --- headers


def test_response_has_request_ids(api: Client) -> None:
    client_id = "req-11111111-1111-1111-1111-111111111111"
    response = api("GET", "/servers", headers={"X-OpenStack-Request-Id": client_id})
    own = response.headers["X-OpenStack-Request-Id"]
    assert own.startswith("req-") and own != client_id
    assert response.headers["X-Compute-Request-Id"] == own
    assert api.conductor.contexts[-1].request_id == own


def test_errors_and_documents_have_request_ids(api: Client) -> None:
    for path, base in (("/nosuch", "/v2.1"), ("/servers/x", "/v2.1"), ("/", ""), ("/v2.1", "")):
        assert api("GET", path, base=base).headers["X-Compute-Request-Id"].startswith("req-")


# --- /v2


def test_legacy_api_drops_unknown_properties(api: Client) -> None:
    response = api("POST", "/servers", server(foo=1, description="d") | {"junk": 1}, base="/v2")
    assert response.status_code == 202, response.text
    response = api("POST", "/servers", server(name=5), base="/v2")
    assert "5 is not of type 'string'" in fault(response, "badRequest", 400)
