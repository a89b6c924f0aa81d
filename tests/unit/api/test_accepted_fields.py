"""Each field that a request of the compute API may have is handed on, refused, or listed as one without an effect.

The requests are made from the schemas. Two requests that differ in one field have to lead to different messages to the
conductor or the hosts. What would change something is recorded and stopped, so each request can be repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import update

from nova_lite.api.compute import aggregates
from nova_lite.api.http import microversions, validation
from nova_lite.api.http.router import extension_classes
from nova_lite.base import exceptions
from nova_lite.db.core.models import ServerBackup
from tests.support import extremes
from tests.support import requests_of_routes as routes
from tests.support.every_api import EveryApi
from tests.support.recorded_messages import STOPPED, Outcomes, Recorder

PAGE = Path(__file__).parents[3] / "docs/reference/api-behaviour.md"
#: Why the good request of a route is refused in this cloud.
_NOT_JUDGED = (
    "create share",  # no host has shares
    "is not attached to volume",  # tests/unit/api/test_volume_attachments.py
)
_BDM = ("server", "block_device_mapping_v2")
_BLANK = [{"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": None}]
_FILES = [{"path": "/one", "contents": "b25l"}]
#: Values that the good request of a route needs besides the required fields, so that it is accepted.
#: Path, beginning of the places for which it holds, place, and value.
_NEEDED: list[tuple[str, tuple[Any, ...], tuple[Any, ...], Any]] = [
    *(
        (path, under, place, value)
        for path in ("/servers", "/os-volumes_boot")
        for under, place, value in (
            ((), ("server", "imageRef"), "{active_image}"),
            ((), ("server", "networks"), "auto"),
            (_BDM, _BDM, [{"source_type": "volume", "destination_type": "volume", "uuid": "{volume}"}]),
            (("server", "block_device_mapping"), ("server", "block_device_mapping"), [{"volume_id": "{volume}"}]),
            *(((*_BDM, 0, name), _BDM, _BLANK) for name in ("volume_size", "volume_type", "guest_format")),
            (("server", "personality"), ("server", "personality"), _FILES),
        )
    ),
    *(
        (f"/os-services/{name}", (), ("binary",), "nova-compute")
        for name in ("enable", "disable", "disable-log-reason", "force-down")
    ),
    *(
        ("/os-security-group-rules", (), ("security_group_rule", name), value)
        for name, value in (("from_port", 1), ("to_port", 2), ("ip_protocol", "tcp"), ("cidr", "10.0.0.0/8"))
    ),
    ("/servers/{id}/action", ("rebuild", "personality"), ("rebuild", "personality"), _FILES),
    ("/servers/{id}/action", ("evacuate",), ("evacuate", "onSharedStorage"), False),
]
#: Values besides `routes.WORDS`, for fields of a form of their own.
_VALUES: dict[str, list[Any]] = {
    "contents": ["b25l", "dHdv"],
    "cidr": ["/24", "/25"],
    "key_name": ["one"],
    "binary": ["nova-compute"],
    "ip_protocol": ["udp", "icmp"],
}
_MORE_WORDS = (
    "other",
    "1f3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f02",
    "10.99.0.78",
    "fe80::2",
    "2032-01-01T00:00:00Z",
    "2",
    "b3RoZXI=",
    "http://127.0.0.1:1/other",
    "/dev/vdy",
    "10.98.0.0/24",
    "03:30",
    "enabled",
    "true",
    "false",
)
_NUMBERS = (1, 2, 3, 0, 4, 8, 64, 100)


class Case(NamedTuple):
    """A field of a request: a place in the body of a route in one version."""

    row: routes.Row
    place: tuple[Any, ...]
    schema: Any

    @property
    def field(self) -> str:
        return ".".join(part for part in self.place if isinstance(part, str))

    def __str__(self) -> str:
        return f"{self.row.method} {self.row.path} {self.field} at 2.{self.row.version}"


def cases() -> Iterator[Case]:
    """Yield each field at each version whose schema has it."""
    for extension in extension_classes():
        for route in extension.routes:
            declared = route.declaration(extension)
            if declared.body is None or not declared.policy:
                continue
            last = min(route.until or routes.LATEST, routes.LATEST)
            starts = {
                max(since, route.since) for since, until, _ in declared.body.ranges() if (until or last) >= route.since
            }
            for version in sorted({version for version in starts if version <= last} | {last}):
                schema = declared.body.at(microversions.Version(2, version))
                row = routes.Row("compute", route.method, route.path, version, [routes.least(schema)], False, schema)
                for place in dict.fromkeys(extremes.places_of_schema(schema)):
                    part = _part(schema, place)
                    is_whole = isinstance(part, dict) and ("properties" in part or "items" in part)
                    if place and not is_whole and place != (route.action,):
                        yield Case(row, place, part)


def _part(schema: Any, place: tuple[Any, ...]) -> Any:
    """Return the schema of a place."""
    for key in place:
        alternatives = (schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())) if isinstance(schema, dict) else ()
        schema = next((found for item in alternatives if (found := extremes._part(item, key)) is not None), None)
    return schema


def _candidates(schema: Any, name: str) -> Iterator[Any]:
    """Yield values that a field may have, the most useful ones first."""
    yield from _VALUES.get(name, ())
    if not isinstance(schema, dict):
        yield from routes.WORDS
        return
    for item in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _candidates(item, name)
    if "const" in schema or "enum" in schema:
        yield from schema.get("enum", [schema.get("const")])
        return
    kinds = schema.get("type", "string")
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        match kind:
            case "boolean":
                yield from (True, False)
            case "integer" | "number":
                yield from _NUMBERS
            case "string":
                yield from (*routes.WORDS, *_MORE_WORDS)
            case "object":
                yield from (routes.least(schema), {"k": "one"}, {"k": "two"}, {})


class Judge:
    """Sends the requests of a case, and compares what they lead to."""

    def __init__(self, cloud: EveryApi) -> None:
        self._cloud = cloud
        address = {"key": [routes.KEY], "address": [cloud.guest["REMOTE_ADDR"]]}
        self._requests = extremes.Extremes(cloud.things | address)
        self.outcomes = Outcomes(self._send)

    def verdict(self, case: Case) -> str:
        """Return "kept", "refused", "dropped", or why the case cannot be judged."""
        good, bodies = self._bodies(case)
        route = (case.row.method, case.row.path, case.row.version)
        accepted: list[Any] = []
        refused: list[str] = []
        for body in (good, *bodies) if bodies else ():
            refusal, _ = self.outcomes.of(route, case, body)
            if refusal:
                refused.append(refusal)
            elif any(self.outcomes.differ(route, body, other) for other in accepted):
                return "kept"
            else:
                accepted.append(body)
        if not bodies:
            return "kept" if _has_one_value(case.schema) else "not judged: no value"
        if refused and accepted and (len(accepted) == 1 or _is_closed(case.schema)):
            return "refused"
        return "dropped" if accepted else f"not judged: {refused[0]}"

    def _bodies(self, case: Case) -> tuple[Any, list[Any]]:
        """Return a good body, and bodies that differ from it in the field."""
        schema = case.row.schema
        good = self._requests._real(case.row.bodies[0])
        for path, under, place, value in _NEEDED:
            if path == case.row.path and case.place[: len(under)] == under and case.place != place:
                changed = extremes.put(good, schema, place, self._requests._filled(value))
                good = changed if _fits(schema, changed) else good
        name = next((part for part in reversed(case.place) if isinstance(part, str)), "")
        things = self._requests.things.get(extremes.REAL.get(name, name), ())
        found: list[Any] = []
        for value in (*things, *_candidates(case.schema, name)):
            body = extremes.put(good, schema, case.place, value)
            if body is not None and body != good and body not in found and _fits(schema, body):
                found.append(body)
        return good, found[:6]

    def _send(self, case: Case, body: Any) -> tuple[str, Any]:
        """Return the text of a refusal, or an empty text and the messages with the response."""
        row, path = case.row, self._requests._path(case.row)
        with Recorder(self._cloud) as recorder:
            response = self._cloud.send("compute", row.method, path, body, version=f"2.{row.version}")
        if 400 <= response.status_code < 500 or response.status_code == 501:
            return response.text, None
        assert response.status_code in (200, 201, 202, 204, 207, STOPPED), f"{case} {body}: {response.text}"
        return "", [recorder.sent, response.text]


def _has_one_value(schema: Any) -> bool:
    """Check whether a field has a single value, which says nothing."""
    return isinstance(schema, dict) and (schema.get("type") == "null" or len(schema.get("enum", ())) == 1)


def _is_closed(schema: Any) -> bool:
    """Check whether a field has few values, of which one may be all that is accepted."""
    return isinstance(schema, dict) and ("enum" in schema or "boolean" in schema.get("type", ()))


def _fits(schema: Any, body: Any) -> bool:
    try:
        validation.validate_body(schema, json.loads(json.dumps(body)))
    except exceptions.ValidationError:
        return False
    return True


@pytest.fixture(scope="module")
def cloud(cloud: EveryApi) -> EveryApi:
    with cloud.conductor.db.engine.begin() as connection:
        complete = {"status": "complete", "image_id": cloud.image_id, "server": {"name": "one", "flavor_id": "1"}}
        connection.execute(update(ServerBackup).values(**complete))
    return cloud


def test_fields_of_compute_requests_are_handed_on_refused_or_listed(cloud: EveryApi) -> None:
    judge = Judge(cloud)
    verdicts = [(case, judge.verdict(case)) for case in cases()]
    dropped = {(f"{case.row.method} {case.row.path}", case.field) for case, verdict in verdicts if verdict == "dropped"}
    assert dropped == listed(PAGE.read_text())
    assert judge.outcomes.changed() == []
    unknown = {f"{verdict}: {case}" for case, verdict in verdicts if verdict.startswith("not judged")}
    left = {text for text in unknown if not any(part in text for part in _NOT_JUDGED)}
    assert not left, "\n".join(sorted(left))
    assert sum(verdict == "kept" for _, verdict in verdicts) > 1000


def test_field_that_no_handler_reads_is_found(cloud: EveryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aggregates.CREATE_BODY["properties"]["aggregate"]["properties"], "color", {"type": "string"})
    monkeypatch.setattr(validation, "_validators", {})
    (case, *_) = [case for case in cases() if case.field == "aggregate.color"]
    assert Judge(cloud).verdict(case) == "dropped"


def listed(page: str) -> set[tuple[str, str]]:
    """Return the requests and fields of the page's table of fields without an effect."""
    section = page.partition("## Fields without an effect")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\S+ \S+)` \| `(\S+)` \|", section, re.MULTILINE))
