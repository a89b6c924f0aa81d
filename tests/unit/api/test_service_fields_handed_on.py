"""Each field of the requests of Neutron, Cinder, Keystone and Glance is handed on to the conductor, or refused.

The requests are the good ones of `tests.support.extremes`, with the fields of `FIELDS`. Two requests that differ in one
field have to lead to different messages or responses. What would change something is recorded and stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.identity.conductor_store import ConductorStore
from nova_lite.objects import IdentityRecord
from tests.support import extremes
from tests.support import requests_of_routes as routes
from tests.support.every_api import EveryApi
from tests.support.recorded_messages import Outcomes, Recorder, Stopped
from tests.support.service_fields import FIELDS

_REMOVED = object()
_TEXTS = ("other", "1f3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f02", "10.65.0.77", "10.72.0.0/24", "udp", "2091-01-01T00:00:00Z")
#: Reads that the contract does not count as such.
_PASSED = ("identity_read", "image_get")
#: Fields whose effect such a comparison does not see: request, field, and the test of them.
ELSEWHERE = {
    ("/v3/users", "user.password"): "tests/unit/api/identity: a hash has a new salt each time",
    ("/v3/users/{user_id}/application_credentials", "application_credential.secret"): "the same",
    ("/quotas/{project_id}", "quota.check_limit"): "tests/unit/api/network: matters for limits below the usage",
}
#: Why the good request of a path is refused in this cloud.
NOT_JUDGED = {
    "/v3/auth/tokens": "passwords: tests/unit/api/identity",
    "/v3/ec2tokens": "signatures: tests/unit/api/identity/test_credentials.py",
    "/v3/s3tokens": "signatures: tests/unit/api/identity/test_credentials.py",
    "/v3/users/{id}/password": "the old password is wrong",
    "/images/{id}/import": "nothing is staged: tests/unit/api/image/test_imports.py",
    "/attachments/{id}": "a compute host completes an attachment",
    "/backups/import_record": "the record is none of this cloud",
    "/types/{id}/action": "the type is public",
    "/types/{id}/encryption": "the type has volumes",
    "/types/{id}/encryption/{key}": "the type has volumes",
    "/os-quota-class-sets/{name}": "there is the class default alone",
    **{f"/os-services/{name}": "501" for name in ("enable", "disable", "disable-log-reason", "freeze", "thaw")},
    **{f"/os-services/{name}": "501" for name in ("failover", "failover_host")},
    **{
        f"/{kind}/{{id}}": "this cloud has none"
        for kind in (
            "cgsnapshots",
            "clusters",
            "consistencygroups",
            "groups",
            "group_types",
            "group_snapshots",
            "messages",
            "manageable_snapshots",
            "manageable_volumes",
        )
    },
}
#: Values of good requests that are refused in this cloud, and paths of things that are to be new.
_OTHERWISE: dict[tuple[str, str], tuple[tuple[Any, ...], Any]] = {
    ("PATCH", "/v3/projects/{id}"): (("project", "name"), "renamed"),
    ("PATCH", "/v3/users/{id}"): (("user", "name"), "renamed"),
    ("POST", "/snapshots"): (("snapshot", "force"), _REMOVED),
}
_PATHS = {
    ("PUT", "/v3/regions/{id}"): "/v3/regions/two",
    ("PUT", "/v3/OS-FEDERATION/mappings/{mapping_id}"): "/v3/OS-FEDERATION/mappings/two",
    ("PUT", "/v3/OS-FEDERATION/identity_providers/{idp_id}"): "/v3/OS-FEDERATION/identity_providers/two",
    ("PUT", "/v3/OS-FEDERATION/identity_providers/{idp_id}/protocols/{protocol_id}"): (
        "/v3/OS-FEDERATION/identity_providers/one/protocols/two"
    ),
}


class Case(NamedTuple):
    """A field of a request, and a value that the good request does not have."""

    route: tuple[str, str, str]
    place: tuple[Any, ...]
    body: Any
    given: Any = _REMOVED

    @property
    def field(self) -> str:
        return ".".join(map(str, self.place))


def cases() -> Iterator[Case]:
    """Yield each leaf of the good bodies, and each further field of `FIELDS`."""
    for route, body in extremes.BODIES.items():
        if body is None or route[0] not in ("network", "volume", "identity", "image"):
            continue
        if route[1:] in _OTHERWISE:
            body = _with(body, *_OTHERWISE[route[1:]])
        for place in extremes.places(body):
            if place and not isinstance(_at(body, place), dict | list):
                yield Case(route, place, body)
        wrapper = () if route[0] == "image" else (next(iter(body)),)
        for name, value in FIELDS.get(route, {}).items():
            if name not in _at(body, wrapper):
                yield Case(route, (*wrapper, name), body, value)


def _at(body: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        body = body[key]
    return body


def _with(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    parent = _at(changed, place[:-1])
    if value is _REMOVED:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return changed


class Judge:
    """Sends the requests of a case, and compares what they lead to."""

    def __init__(self, cloud: EveryApi) -> None:
        self._cloud = cloud
        things = cloud.things | {"port": cloud.things["own_port"]}
        self._requests = extremes.Extremes(things)
        self._known = sorted({item for items in things.values() for item in items})
        self.outcomes = Outcomes(self._send)

    def verdict(self, case: Case) -> str:
        """Return "kept", "refused", "dropped", or why the case cannot be judged."""
        good = self._requests._filled(case.body)
        for alias in ("name", "description"):
            if case.place[-1] == f"display_{alias}":
                good = _with(good, (*case.place[:-1], alias), _REMOVED) if alias in _at(good, case.place[:-1]) else good
        refusal, _ = self.outcomes.of(case.route, case, good)
        if refusal:
            return f"not judged: {refusal}"
        refused = False
        for value in self._candidates(good, case):
            body = _with(good, case.place, value)
            refusal, _ = self.outcomes.of(case.route, case, body)
            if refusal:
                refused = refused or value is not _REMOVED
            elif self.outcomes.differ(case.route, good, body):
                return "kept"
        return "refused" if refused else "dropped"

    def _candidates(self, good: Any, case: Case) -> Iterator[Any]:
        if case.given is not _REMOVED:
            yield case.given
            return
        yield _REMOVED
        value = _at(good, case.place)
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, int):
            yield from (value + 1, 2, 3, 64)
        elif value is None:
            yield from (*_TEXTS, True, 2)
        else:
            yield from (text for text in (*_TEXTS, *self._known) if text != value)

    def _send(self, case: Case, body: Any) -> tuple[str, Any]:
        """Return the text of a refusal, or an empty text and the messages with the response."""
        service, method, path = case.route
        path = _PATHS.get((method, path), path).replace("/types/{id}", "/types/local")
        path = path.replace("/v3/users/{user_id}/app", f"/v3/users/{self._cloud.user.id}/app")
        path = path.replace(
            "/registered_limits/{id}", f"/registered_limits/{self._cloud.things['registered_limit'][0]}"
        )
        path = self._requests._path(routes.Row(service, method, path, None, []))
        headers = {"HTTP_OPENSTACK_API_VERSION": "volume 3.68"}
        with Recorder(self._cloud) as recorder, pytest.MonkeyPatch.context() as patch:

            def change(store: ConductorStore, known: int | None, records: list[IdentityRecord]) -> int:
                recorder.sent.append([item.data for item in records])
                raise Stopped()

            patch.setattr(ConductorStore, "change", change)
            response = self._cloud.send(service, method, path, body, headers=headers)
        if 400 <= response.status_code < 500 or response.status_code == 501:
            return response.text[:200], None
        assert response.status_code < 400 or response.status_code == Stopped.code, f"{case} {body}: {response.text}"
        return "", [recorder.sent, response.status_code, response.text]


def test_fields_of_the_services_are_handed_on_or_refused(cloud: EveryApi) -> None:
    judge = Judge(cloud)
    verdicts = [(case, judge.verdict(case)) for case in cases()]
    dropped = {(case.route[2], case.field) for case, verdict in verdicts if verdict == "dropped"}
    assert dropped == ELSEWHERE.keys()
    assert judge.outcomes.changed() == []
    unknown = {f"{case.route} {verdict}" for case, verdict in verdicts if verdict.startswith("not judged")}
    unknown = {text for text in unknown if not any(f"'{path}'" in text for path in NOT_JUDGED)}
    assert not unknown, "\n".join(sorted(unknown))
    assert sum(verdict == "kept" for _, verdict in verdicts) > 350


def test_field_that_no_handler_reads_is_found(cloud: EveryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ServiceRequest.json_object

    def json_object(self: ServiceRequest) -> dict[str, Any]:
        body = known(self)
        for fields in (value for value in body.values() if isinstance(value, dict)):
            fields.pop("description", None)
        return body

    monkeypatch.setattr(ServiceRequest, "json_object", json_object)
    paths = ("/subnetpools", "/snapshots", "/v3/groups")
    chosen = [case for case in cases() if case.route[1:] in {("POST", path) for path in paths}]
    judge = Judge(cloud)
    verdicts = {(case.route[2], case.field) for case in chosen if judge.verdict(case) == "dropped"}
    assert verdicts == {
        ("/subnetpools", "subnetpool.description"),
        ("/snapshots", "snapshot.description"),
        ("/v3/groups", "group.description"),
    }
