"""The dispatcher's checks before a handler runs."""

from __future__ import annotations

from typing import Any

import pytest
import webob
from oslo_config import cfg

from nova_lite.api.compute import keypairs, quotas
from nova_lite.api.http import router, wsgi
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.policies import flavors as policies
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import fault


class Sample(Extension):
    alias = "sample"
    title = "Sample"
    routes = (
        Route("POST", "/made", "make"),
        Route("GET", "/listed", "index"),
        Route("GET", "/projects/{id}", "of_project"),
        Route("GET", "/asks", "asks"),
        Route("GET", "/forgets", "forgets"),
    )

    def __init__(self, services: wsgi.ApiServices) -> None:
        super().__init__(services)
        self.ran: list[str] = []

    @declares(policies.CREATE, body=keypairs.CREATE_BODY, query=quotas.QUOTAS_QUERY)
    def make(self, req: Request) -> Response:
        self.ran.append("make")
        return Response({"given": req.data, "user": req.query.one("user_id"), "others": sorted(req.query)})

    @declares(policies.INDEX)
    def index(self, req: Request) -> Response:
        return Response({})

    @declares(policies.SPECS_INDEX, target={"project_id": "id"})
    def of_project(self, req: Request, id: str) -> Response:
        return Response({})

    @declares(policies.CREATE, authorizes=True)
    def asks(self, req: Request) -> Response:
        req.authorize(req.declared.policy)
        return Response({})

    @declares(policies.CREATE, authorizes=True)
    def forgets(self, req: Request) -> Response:
        return Response({"secret": 1})


class Client:
    def __init__(self, conf: cfg.ConfigOpts) -> None:
        services = wsgi.ApiServices(conf, Policy(conf), API())
        self.sample = Sample(services)
        self._app = router.Router(services, [self.sample])

    def __call__(self, method: str, path: str, body: Any = None, role: str = "admin") -> webob.Response:
        request = webob.Request.blank(path, method=method)
        if body is not None:
            request.json_body = body
        request.environ[wsgi.CONTEXT] = RequestContext(user_id="u", project_id="p", roles=[role], overwrite=False)
        return request.get_response(self._app)


@pytest.fixture
def client(conf: cfg.ConfigOpts) -> Client:
    return Client(conf)


def test_dispatcher_enforces_the_rule_before_it_validates_the_body(client: Client) -> None:
    assert policies.CREATE in fault(client("POST", "/made", {"nonsense": 1}, role="reader"), "forbidden", 403)
    assert "nonsense" in fault(client("POST", "/made", {"nonsense": 1}), "badRequest", 400)
    assert client.sample.ran == []


def test_handler_receives_validated_body_and_query(client: Client) -> None:
    body = {"keypair": {"name": "k"}}
    response = client("POST", "/made?user_id=a&user_id=b&junk=1", body)
    assert response.json == {"given": body, "user": "b", "others": ["user_id"]}


def test_rule_target_comes_from_the_url(client: Client) -> None:
    assert client("GET", "/projects/p", role="reader").status_code == 200
    fault(client("GET", "/projects/other", role="reader"), "forbidden", 403)
    assert client("GET", "/projects/other").status_code == 200


def test_response_of_unauthorized_handler_is_withheld(client: Client) -> None:
    assert client("GET", "/asks").status_code == 200
    fault(client("GET", "/asks", role="reader"), "forbidden", 403)
    response = client("GET", "/forgets")
    fault(response, "computeFault", 500)
    assert "secret" not in response.text


def test_handler_without_declaration_is_refused_at_startup(conf: cfg.ConfigOpts) -> None:
    class Undeclared(Extension):
        alias = "undeclared"
        title = "Undeclared"
        routes = (Route("GET", "/one", "one"),)

        def one(self, req: Request) -> Response:
            return Response()

    with pytest.raises(TypeError, match=r"undeclared: one needs @declares\(\.\.\.\)"):
        Undeclared(wsgi.ApiServices(conf, Policy(conf), API()))
