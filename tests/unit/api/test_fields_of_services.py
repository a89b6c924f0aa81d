"""Fields that Neutron, Cinder, Keystone and Glance accept are shown afterwards, refused, or listed as ignored.

Each field is added to the good request of its route, with another value than its default. A refusal is one of this
field, because the good request is accepted. Names that no service knows are refused, or kept where the service keeps
them. `test_service_fields_handed_on` compares the messages to the conductor.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import extremes
from tests.support import requests_of_routes as routes
from tests.support.every_api import EveryApi
from tests.support.service_fields import FIELDS
from tests.support.waiting import polls

_UNKNOWN = "nobodys"


@pytest.mark.parametrize("route", FIELDS, ids=" ".join)
def test_field_of_a_service_is_shown_or_refused(cloud: EveryApi, route: tuple[str, str, str]) -> None:
    for _ in polls(30):
        status, fields = _send(cloud, route, {}, 0)
        if "be copied just now" not in str(fields):  # by the request of another route, which has copied the volume
            break
    assert status < 300 or route[1] != "POST", fields
    wrong = {}
    for number, (name, value) in enumerate({**FIELDS[route], _UNKNOWN: "text"}.items(), 1):
        status, fields = _send(cloud, route, {name: value}, number)
        shown = name.removeprefix("display_") if route[0] == "volume" else name
        is_kept = status < 300 and (fields.get(shown) == value or str(fields.get(shown)) == str(value))
        if name == _UNKNOWN:
            is_right = is_kept if route[0] == "identity" or route[2] == "/images" else status == 400
        else:
            is_missing = status == 404 and (route[1] == "POST" or name == "qos_policy_id")
            is_right = is_kept or status in (400, 403, 409) or is_missing
        if not is_right:
            wrong[name] = status, fields
    assert not wrong


def _things(cloud: EveryApi) -> dict[str, list[str]]:
    """Return resources by kind. The port is not a server's."""
    return cloud.things | {"port": cloud.things["own_port"]}


def _send(cloud: EveryApi, route: tuple[str, str, str], given: dict[str, Any], number: int) -> tuple[int, Any]:
    """Send the good request with the given fields. Return the status and the fields of the response."""
    service, method, path = route
    requests = extremes.Extremes(_things(cloud))
    body = requests._filled(extremes.BODIES[route])
    wrapped = service != "image"
    fields = next(iter(body.values())) if wrapped else body
    if method != "POST":
        fields.clear()
    for name in fields.keys() & {"name", "namespace", "type" if path == "/v3/services" else "name"}:
        fields[name] = f"{fields[name]}-{number}"
    if path == "/v3/regions":
        fields["id"] = f"new-{number}"
    fields.pop("force", None)
    if path == "/images":
        del fields["id"]
    if any(name.startswith("display_") for name in given) and service == "volume":
        fields.pop("name", None), fields.pop("description", None)
    fields.update(given)
    headers = {"HTTP_OPENSTACK_API_VERSION": "volume 3.68"}
    path = path.replace("/types/{id}", "/types/local")
    url = requests._path(routes.Row(service, method, path, None, []))
    response = cloud.send(service, method, url, body, headers=headers)
    if response.status_code >= 300:
        return response.status_code, response.text
    shown = next(iter(response.json.values())) if wrapped else response.json
    if method == "POST":
        cloud.send(service, "DELETE", f"{url}/{shown.get('id') or shown.get('namespace')}")
    return response.status_code, shown
