"""Extensions that add to the responses and actions of other extensions' resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import webob
from oslo_config import cfg

from nova_lite.api.http import router, wsgi
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares, extends
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.policies import flavors as policies
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_client

PACKAGE = Path(__file__).parents[2] / "plugin_package"


class Things(Extension):
    alias = "things"
    title = "Things"
    routes = (Route("GET", "/things/{id}", "show"),)

    @declares(policies.INDEX)
    def show(self, req: Request, id: str) -> Response:
        if id == "none":
            raise webob.exc.HTTPNotFound()
        return Response({"thing": {"id": id}})


class Colours(Extension):
    alias = "colours"
    title = "Colours"

    @extends("GET", "/things/{id}", since=10, until=20)
    @extends("GET", "/nowhere")
    def add_colour(self, req: Request, response: Response, id: str) -> None:
        response.body["thing"]["colour"] = f"{id} is blue"


def get(conf: cfg.ConfigOpts, path: str, version: str) -> webob.Response:
    services = wsgi.ApiServices(conf, Policy(conf), API())
    request = webob.Request.blank(path)
    request.headers["OpenStack-API-Version"] = f"compute {version}"
    request.environ[wsgi.CONTEXT] = RequestContext(user_id="u", project_id="p", roles=["admin"], overwrite=False)
    return request.get_response(router.Router(services, [Colours(services), Things(services)]))


@pytest.mark.parametrize(("version", "added"), [("2.9", False), ("2.10", True), ("2.20", True), ("2.21", False)])
def test_addition_is_in_the_responses_of_its_versions(conf: cfg.ConfigOpts, version: str, added: bool) -> None:
    thing = get(conf, "/things/one", version).json["thing"]
    assert thing == {"id": "one"} | ({"colour": "one is blue"} if added else {})


def test_failure_is_not_extended(conf: cfg.ConfigOpts) -> None:
    assert get(conf, "/things/none", "2.10").status_code == 404


def test_addition_to_an_unknown_route_is_logged(conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture) -> None:
    get(conf, "/things/one", "2.10")
    assert "API extension colours adds to GET /nowhere, which is not served" in caplog.text


def test_example_package_adds_to_servers_and_their_actions(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    from nova_lite_example.racks import Racks  # type: ignore[import-not-found]

    load = router.load_extensions
    monkeypatch.setattr(router, "load_extensions", lambda services: [*load(services), Racks(services)])
    api = make_client(conf)
    server = api.conductor.add()
    url = f"/servers/{server.uuid}"
    assert api.json("GET", url)["server"]["example:rack"] is None
    assert api.json("POST", f"{url}/action", {"exampleSetRack": "b7"}) == {"rack": "b7"}
    shown: dict[str, Any] = api.json("GET", url)["server"]
    assert (shown["example:rack"], shown["metadata"]["example:rack"]) == ("b7", "b7")
