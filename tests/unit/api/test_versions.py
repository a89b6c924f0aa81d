"""Version documents and the negotiation of microversions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http import microversions
from nova_lite.api.http.microversions import Change, Version, Versioned
from tests.support.api_client import Client, fault, make_client, make_conf

MAXIMUM = str(microversions.MAXIMUM)

V20 = {
    "id": "v2.0",
    "status": "DEPRECATED",
    "version": "",
    "min_version": "",
    "updated": "2025-07-04T12:00:00Z",
    "links": [{"rel": "self", "href": "http://cloud:8774/v2/"}],
}
V21 = {
    "id": "v2.1",
    "status": "CURRENT",
    "version": MAXIMUM,
    "min_version": "2.1",
    "updated": "2013-07-23T11:33:21Z",
    "links": [{"rel": "self", "href": "http://cloud:8774/v2.1/"}],
}
DESCRIBED_BY = {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"}


def media(number: str) -> list[dict[str, str]]:
    return [{"base": "application/json", "type": f"application/vnd.openstack.compute+json;version={number}"}]


def test_root_lists_versions_without_a_token(api: Client) -> None:
    assert api.json("GET", "/", base="", token=None) == {"versions": [V20, V21]}


@pytest.mark.parametrize("path", ["/v2.1", "/v2.1/"])
def test_version_document_is_shown(api: Client, path: str) -> None:
    document = V21 | {"links": [*V21["links"], DESCRIBED_BY], "media-types": media("2.1")}  # type: ignore[misc]
    assert api.json("GET", path, base="", token=None) == {"version": document}


def test_legacy_version_document_is_shown(api: Client) -> None:
    document = V20 | {"links": [*V20["links"], DESCRIBED_BY], "media-types": media("2")}  # type: ignore[misc]
    assert api.json("GET", "/v2/", base="", token=None) == {"version": document}


def test_other_root_paths_return_choices(api: Client) -> None:
    choices = api.json("GET", "/servers", base="", token=None, status=300)["choices"]
    assert [choice["id"] for choice in choices] == ["v2.0", "v2.1"]
    assert choices[1]["links"] == [{"rel": "self", "href": "http://cloud:8774/v2.1/servers"}]


def test_links_use_the_operators_prefix(tmp_path) -> None:
    api = make_client(make_conf(tmp_path, "compute_link_prefix = https://cloud.example/compute\n"))
    links = api.json("GET", "/v2.1", base="")["version"]["links"]
    assert links[0]["href"] == "https://cloud.example/compute/v2.1/"
    assert api.json("GET", "/flavors")["flavors"][0]["links"] == [
        {"rel": "self", "href": "https://cloud.example/compute/v2.1/flavors/1"},
        {"rel": "bookmark", "href": "https://cloud.example/compute/flavors/1"},
    ]


@pytest.mark.parametrize("host", ['evil"><script>', "a b", "host/path", "user@host"])
def test_invalid_host_header_is_not_repeated(api: Client, host: str) -> None:
    response = api("GET", "/v2.1", base="", headers={"Host": host})
    assert response.json["version"]["links"][0]["href"] == "http://cloud:8774/v2.1/"


@pytest.mark.parametrize(
    ("host", "root"),
    [
        ("evil.example", "https://cloud.example:8774"),
        ("evil.example:8774", "https://cloud.example:8774"),
        ("cloud.example.evil", "https://cloud.example:8774"),
        ("cloud.example:1", "http://cloud.example:1"),
        ("Cloud.Example", "http://Cloud.Example"),
        ("images.example:8774", "http://images.example:8774"),
        ("cloud:8774", "http://cloud:8774"),
    ],
)
def test_foreign_host_header_is_not_repeated_if_endpoints_are_set(tmp_path: Path, host: str, root: str) -> None:
    endpoints = "compute_endpoint = https://cloud.example:8774/v2.1\nimage_endpoint = https://images.example\n"
    api = make_client(make_conf(tmp_path, f"[identity]\n{endpoints}"))
    for path in ("/v2.1", "/"):
        shown = api("GET", path, base="", headers={"Host": host}).text
        assert f'"{root}/v2.1/"' in shown
        assert "evil" not in shown


def test_proxy_headers_are_used_if_enabled(tmp_path) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "front.example"}
    plain = make_client(make_conf(tmp_path))
    assert (
        plain("GET", "/v2.1", base="", headers=headers).json["version"]["links"][0]["href"].startswith("http://cloud")
    )
    text = "[oslo_middleware]\nenable_proxy_headers_parsing = true\n"
    proxied = make_client(make_conf(tmp_path, text))
    response = proxied("GET", "/v2.1", base="", headers=headers).json
    assert response["version"]["links"][0]["href"] == "https://front.example/v2.1/"


# --- microversions


def selected_version(api: Client, headers: dict[str, str]) -> str:
    response = api("GET", "/flavors", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["OpenStack-API-Version"] == f"compute {response.headers['X-OpenStack-Nova-API-Version']}"
    assert response.headers["Vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version"
    return response.headers["X-OpenStack-Nova-API-Version"]


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, "2.1"),
        ({"OpenStack-API-Version": "compute 2.53"}, "2.53"),
        ({"X-OpenStack-Nova-API-Version": "2.53"}, "2.53"),
        ({"OpenStack-API-Version": "compute 2.10", "X-OpenStack-Nova-API-Version": "2.53"}, "2.10"),
        ({"OpenStack-API-Version": "volume 3.0, compute 2.7"}, "2.7"),
        ({"OpenStack-API-Version": "volume 3.0"}, "2.1"),
        ({"OpenStack-API-Version": "compute latest"}, MAXIMUM),
        ({"X-OpenStack-Nova-API-Version": "latest"}, MAXIMUM),
    ],
)
def test_microversion_is_read_from_both_headers(api: Client, headers: dict[str, str], version: str) -> None:
    assert selected_version(api, headers) == version


@pytest.mark.parametrize("text", ["abc", "2", "2.", "2.01", "2.1.1", "-2.1", "2.x", "", "\u0662.\u0661"])
def test_malformed_version_is_400(api: Client, text: str) -> None:
    response = api("GET", "/flavors", headers={"X-OpenStack-Nova-API-Version": text})
    message = fault(response, "badRequest", 400)
    assert message.startswith(f"API Version String {text}".strip())
    assert message.endswith("is of invalid format. Must be of format MajorNum.MinorNum.")


@pytest.mark.parametrize("text", ["2.200", "2.0", "1.1", "3.0"])
def test_version_out_of_range_is_406(api: Client, text: str) -> None:
    response = api("GET", "/flavors", version=text)
    message = fault(response, "computeFault", 406)
    assert message == f"Version {text} is not supported by the API. Minimum is 2.1 and maximum is {MAXIMUM}."
    assert response.headers["OpenStack-API-Version"] == f"compute {text}"
    assert response.headers["X-OpenStack-Nova-API-Version"] == text
    assert response.headers["Vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version, Accept-Language"


def test_legacy_api_has_no_microversions(api: Client) -> None:
    response = api("GET", "/flavors", base="/v2", version="2.90")
    assert response.status_code == 200
    assert "OpenStack-API-Version" not in response.headers
    assert "description" not in response.json["flavors"][0]


def test_versioned_value_depends_on_the_version() -> None:
    values = Versioned({1: "a", Change.SERVER_DESCRIPTION: "b", 30: "c"})
    assert [values.at(Version(2, minor)) for minor in (1, 18, 19, 29, 30, 96)] == ["a", "a", "b", "b", "c", "c"]


def test_changes_are_within_the_announced_versions() -> None:
    assert max(Change) <= microversions.MAXIMUM.minor


def test_version_document_of_2_1_has_microversion_headers(api: Client) -> None:
    def headers(path: str, **options: Any) -> dict[str, str]:
        return dict(api("GET", path, base="", token=None, **options).headers)

    response_headers = headers("/v2.1/", version="2.60")
    assert response_headers["OpenStack-API-Version"] == "compute 2.60"
    assert response_headers["X-OpenStack-Nova-API-Version"] == "2.60"
    assert response_headers["Vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version"
    assert headers("/v2.1/")["OpenStack-API-Version"] == "compute 2.1"
    refused = api("GET", "/v2.1/", base="", token=None, version="2.500")
    assert (refused.status_code, refused.headers["OpenStack-API-Version"]) == (406, "compute 2.500")
    assert "OpenStack-API-Version" not in headers("/")
