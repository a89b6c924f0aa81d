"""Values at the limits of their types in queries and bodies: a 400 that names the parameter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import MAXIMUM, Version
from nova_lite.api.http.router import extension_classes
from nova_lite.base.exceptions import ValidationError
from tests.support.api_client import ADMIN, Client, fault, make_client, make_conf

#: Times whose value in UTC is before the year 1 or after the year 9999, and texts that only look like times.
TIMES = (
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "10000-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T25:00:00Z",
    "9" * 400,
    "\n",
)
NEAR = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", "0001-01-01T00:00:00-14:00")


def time_parameters() -> Iterator[tuple[str, str, int]]:
    """Yield path, parameter and version of each time in a query string, from the schemas of all routes."""
    for extension in extension_classes():
        for route in extension.routes:
            declared = route.declaration(extension)
            version = min(route.until or MAXIMUM.minor, MAXIMUM.minor)
            query = declared.query.at(Version(2, version)) if declared.query else {}
            for name, schema in query.get("properties", {}).items():
                if schema == t.Q_TIME:
                    yield route.path.replace("{id}", "x").replace("{server_id}", "x"), name, version


PARAMETERS = sorted(set(time_parameters()))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    path: Path = tmp_path_factory.mktemp("limits")
    return make_client(make_conf(path))


def test_all_routes_with_times_are_found() -> None:
    assert len(PARAMETERS) >= 30
    assert len({path for path, _, _ in PARAMETERS}) >= 10


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda item: f"{item[0]} {item[1]}")
def test_time_beyond_the_limits_is_a_400(client: Client, parameter: tuple[str, str, int]) -> None:
    path, name, version = parameter
    for text in TIMES:
        response = client("GET", f"{path}?{name}={quote(text)}", version=f"2.{version}", token=ADMIN)
        assert f"query parameters {name}" in fault(response, "badRequest", 400)
    for text in NEAR:
        response = client("GET", f"{path}?{name}={quote(text)}", version=f"2.{version}", token=ADMIN)
        assert response.status_code in (200, 400, 404), response.text
        if response.status_code == 400:
            assert name in ("start", "end"), response.text


@pytest.mark.parametrize("value", ["5\n", "\n5", "5 ", "a"])
def test_pattern_refuses_a_line_break_after_the_text(value: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^[0-9]+$"}}}
    validation.validate_body(schema, {"n": "5"})
    with pytest.raises(ValidationError) as caught:
        validation.validate_body(schema, {"n": value})
    assert caught.value.message.endswith("does not match '^[0-9]+$'")


def test_key_with_a_line_break_is_refused(client: Client) -> None:
    for key in ("key\n", "a\nb", ""):
        body = {"extra_specs": {key: "value"}}
        fault(client("POST", "/flavors/1/os-extra_specs", body, version="2.1", token=ADMIN), "badRequest", 400)


def test_nul_in_a_path_is_a_404_and_in_a_query_a_400(client: Client) -> None:
    assert client("GET", "/flavors/a%00b", token=ADMIN).status_code == 404
    message = fault(client("GET", "/servers?name=a%00b", token=ADMIN), "badRequest", 400)
    assert message == "The query string has the character NUL."
    body = {"server": {"name": "a\0b"}}
    assert "the character NUL" in fault(client("PUT", "/servers/x", body, token=ADMIN), "badRequest", 400)


def test_file_without_a_path_is_a_400(client: Client) -> None:
    body = {"rebuild": {"imageRef": "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01", "personality": [{"contents": "AAAA"}]}}
    message = fault(client("POST", "/servers/x/action", body, version="2.1", token=ADMIN), "badRequest", 400)
    assert "'path' is a required property" in message


@pytest.mark.parametrize("value", ["text", 5, [], True, {"host": "compute2"}])
def test_migrate_before_2_56_does_not_look_at_its_value(api: Client, value: object) -> None:
    path = f"/servers/{api.conductor.add().uuid}/action"
    assert api("POST", path, {"migrate": value}, version="2.55", token=ADMIN).status_code == 202
    assert api.last_call("accept_action")[-1] == {"host": None}
