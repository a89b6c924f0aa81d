"""Resources that other packages add to the APIs without microversions, by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest
import webob
from oslo_config import cfg

from nova_lite.api.http import wsgi
from nova_lite.api.http.rest import NAMESPACE, PUBLIC, ServiceApplication, ServiceRequest, ServiceResource, route
from nova_lite.api.identity.app import IdentityApp
from nova_lite.compute.api import API
from nova_lite.policies.enforcer import Policy
from tests.support.every_api import EveryApi

#: Paths of the identity API that only conformance suites ask for.
INSTALLED = ["/v3/policies", "/v3/domains/config/default", "/v3/OS-EP-FILTER/endpoint_groups"]


class Colours(ServiceResource):
    """Colours."""

    @route("GET", "/colours", PUBLIC, response="colours")
    def index(self, req: ServiceRequest) -> list[str]:
        return ["blue"]


@pytest.fixture
def entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a resource of an API, and with a broken resource."""
    information = tmp_path / "made_up-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        f"[{NAMESPACE}.made-up]\nbroken = no_such_module:Broken\ncolours = {__name__}:Colours\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_installed_resource_is_served_and_a_broken_one_is_logged(
    conf: cfg.ConfigOpts, entry_points: None, caplog: pytest.LogCaptureFixture
) -> None:
    class MadeUp(ServiceApplication):
        api = "made-up"

    assert [(made.method, made.path, made.response) for made in MadeUp.routes] == [("GET", "/colours", "colours")]
    served = MadeUp(wsgi.ApiServices(conf, Policy(conf), API()))
    assert webob.Request.blank("/colours").get_response(served).json == {"colours": ["blue"]}
    assert "API resource broken cannot be loaded and is not served: No module named 'no_such_module'" in caplog.text


def test_resource_of_another_api_is_not_served(entry_points: None) -> None:
    class Other(ServiceApplication):
        api = "other"

    assert Other.routes == ()


def test_identity_api_serves_what_conformance_suites_need_by_entry_points(
    cloud: EveryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [cloud.send("identity", "GET", path).status_code for path in INSTALLED] == [200, 200, 200]
    monkeypatch.setattr(IdentityApp, "all_resources", classmethod(lambda kind: kind.resources))
    own = IdentityApp(cloud.services)
    paths = {made.path for made in own.routes}
    assert paths & set(INSTALLED) == set()
    assert "/v3/projects" in paths
