"""Random requests never cause an internal error."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_lite.api.compute.servers import schemas
from nova_lite.api.http.microversions import Change, Version
from tests.support.api_client import ADMIN, Client, make_client, make_conf
from tests.support.control_plane import IMAGE_ID, NETWORK_ID

KEYS = sorted(schemas.CREATE.at(Version(2, Change.PINNED_ZONE))["properties"]["server"]["properties"])
WORDS = st.sampled_from(["", "auto", "none", "1", "0", "-1", "true", "10.0.0.1", "::1", IMAGE_ID, NETWORK_ID, "a:b:c"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["uuid", "port", "fixed_ip", "name", "path", "contents", "boot_index", "source_type"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(sorted(schemas.INDEX.at(Version(2, 96))["properties"])), st.text(string.printable, max_size=12)
    ),
    max_size=3,
)
VERSIONS = st.sampled_from(["2.1", "2.19", "2.36", "2.37", "2.57", "2.74", "2.104"])
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    path: Path = tmp_path_factory.mktemp("fuzz")
    return make_client(make_conf(path))


@QUICK
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3), version=VERSIONS)
def test_random_creates_never_cause_a_500(client: Client, changes: dict[str, Any], version: str) -> None:
    server = {"name": "vm", "imageRef": IMAGE_ID, "flavorRef": "1", "max_count": 1, "networks": "auto"} | changes
    if version < "2.37" and server["networks"] == "auto":
        del server["networks"]
    if isinstance(server["max_count"], int | str) and str(server["max_count"]).isdecimal():
        server["max_count"] = 1
    if str(server.get("min_count", 1)).isdecimal():
        server.pop("min_count", None)
    response = client("POST", "/servers", {"server": server}, version=version, token=ADMIN)
    assert response.status_code in (202, 400), response.text


@QUICK
@given(body=VALUES, version=VERSIONS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/flavors"),
        ("POST", "/os-keypairs"),
        ("POST", "/flavors/1/os-extra_specs"),
        ("POST", "/servers/x/action"),
        ("PUT", "/servers/x"),
    ],
)
def test_random_bodies_never_cause_a_500(client: Client, method: str, path: str, body: Any, version: str) -> None:
    for wrapped in (body, {"flavor": body}, {"keypair": body}, {"server": body}, {"reboot": body}):
        assert client(method, path, wrapped, version=version, token=ADMIN).status_code < 500


@QUICK
@given(query=QUERIES, version=VERSIONS)
def test_random_server_lists_never_cause_a_500(client: Client, query: list[tuple[str, str]], version: str) -> None:
    from urllib.parse import urlencode

    response = client("GET", f"/servers/detail?{urlencode(query)}", version=version, token=ADMIN)
    assert response.status_code in (200, 400), response.text
