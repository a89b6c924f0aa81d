"""Resources that other packages add to the APIs without microversions, by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest
import webob
from oslo_config import cfg

from nova_lite.api.http import wsgi
from nova_lite.api.http.rest import NAMESPACE, PUBLIC, ServiceApplication, ServiceRequest, ServiceResource, route
from nova_lite.compute.api import API
from nova_lite.policies.enforcer import Policy


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
