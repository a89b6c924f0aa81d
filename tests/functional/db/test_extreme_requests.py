"""Requests at the limits of every type, to every route of every API, on each database: none gets an internal error.

``NOVA_LITE_LONG=1`` tries all values at all places (hours). Otherwise some values are chosen for each place, by
``NOVA_LITE_SEED``.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import pytest
import webob

from nova_lite.api.audit import recorder
from nova_lite.db.core.models import Base
from tests.support import extremes
from tests.support import requests_of_routes as routes
from tests.support.every_api import EveryApi
from tests.support.extremes import Extremes, Request

SEED = int(os.environ.get("NOVA_LITE_SEED", "0"))
LONG = bool(os.environ.get("NOVA_LITE_LONG"))


@pytest.fixture(scope="module")
def cloud(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryApi]:
    made = EveryApi(tmp_path_factory.mktemp("every-api"), url)
    yield made
    made.close()
    with made.conductor.db.engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())


def send(cloud: EveryApi, request: Request) -> webob.Response:
    """Send the request, and replace the server that it may have changed."""
    response = cloud.send(*request[:4], request.headers, request.version)
    if request.service == "compute" and response.status_code == 202:
        if request.path == "/servers" and request.method == "POST":
            cloud.send("compute", "DELETE", f"/servers/{response.json['server']['id']}")
        elif cloud.things["server"][0] in request.path:
            cloud.renew_server()
    return response


def is_internal(cloud: EveryApi, request: Request, response: webob.Response) -> bool:
    """Check whether the response is an internal error. A busy machine may cause one 503, but not two."""
    if response.status_code == 503:
        response = send(cloud, request)
    return response.status_code >= 500 and response.status_code != 501


def test_extreme_requests_get_no_internal_error(cloud: EveryApi, url: str, caplog: pytest.LogCaptureFixture) -> None:
    core = not url.startswith("sqlite")
    most = None if LONG else 1 if core else 2
    caplog.set_level(logging.ERROR)
    wrong, statuses = [], Counter[int]()
    for request in Extremes(cloud.things, core, most, SEED):
        response = send(cloud, request)
        statuses[response.status_code // 100] += 1
        if is_internal(cloud, request, response):
            wrong.append(f"{response.status_code} {request}")
    assert not wrong, "\n".join(wrong)
    assert statuses[2] > 500 and statuses[4] > 1000, statuses
    log = recorder.of(cloud.conf, cloud.services.compute)
    assert log.waiting, "the audit log has events with extreme values"
    log.flush()
    assert not log.waiting
    logged = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not logged, "\n".join(logged)


def test_good_requests_are_accepted(cloud: EveryApi) -> None:
    """A control: the requests without extreme values are good ones, or refused for what they ask."""
    statuses = Counter[int]()
    for request in Extremes(cloud.things).good():
        response = send(cloud, request)
        assert response.status_code not in (405, 406, 415, 500), f"{response.status_code} {request}"
        statuses[response.status_code // 100] += 1
    assert statuses[2] > statuses[4], statuses


def test_every_route_that_changes_something_has_a_body() -> None:
    """Routes of services without schemas have theirs in `extremes.BODIES`. Add one for a new route."""
    changing = {
        (service, route.method, route.path)
        for service, app in routes.APPS
        for route in app.routes
        if route.method in ("POST", "PUT", "PATCH") and not route.streams and route.handler != "refuse"
    }
    assert changing == extremes.BODIES.keys()
