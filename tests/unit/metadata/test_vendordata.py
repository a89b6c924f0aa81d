"""Vendor data from a file and from services."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.metadata import vendordata
from nova_lite.metadata.vendordata import VendorData
from tests.support.guests import make_instance


def vendor(**options: Any) -> VendorData:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    for name, value in options.items():
        conf.set_override(name, value, "api")
    return VendorData(conf)


class VendorService(http.server.BaseHTTPRequestHandler):
    requests: list[dict[str, Any]] = []
    body = b"{}"
    status = 200
    missing = 0
    patience: threading.Event | None = None

    def do_POST(self) -> None:
        self.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body) + self.missing))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            if self.patience is None:
                self.wfile.write(self.body)
                return
            for byte in self.body:
                self.wfile.write(bytes([byte]))
                self.patience.wait(0.05)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def target() -> Iterator[str]:
    VendorService.requests, VendorService.body, VendorService.status = [], b'{"role": "web"}', 200
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), VendorService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"roles@http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_service_whose_response_trickles_is_left_out(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each byte comes well before the timeout, and the last one never would."""
    VendorService.body, VendorService.patience = b" " * 1000, threading.Event()
    timeouts = dict.fromkeys(("vendordata_dynamic_connect_timeout", "vendordata_dynamic_read_timeout"), 1)
    try:
        made = vendor(vendordata_dynamic_targets=[target], **timeouts).all(make_instance())
        VendorService.patience.set()
    finally:
        VendorService.patience = None
    assert made == {"static": {}, "roles": {}}
    assert "did not end in time" in caplog.text


def test_service_whose_response_ends_early_is_left_out(
    target: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(VendorService, "missing", 10)
    assert vendor(vendordata_dynamic_targets=[target]).all(make_instance()) == {"static": {}, "roles": {}}
    assert "its response is broken" in caplog.text


def test_vendor_file_is_for_all_guests(tmp_path: Path) -> None:
    path = tmp_path / "vendor.json"
    path.write_text('{"a": [1]}')
    made = vendor(vendordata_jsonfile_path=str(path))
    assert (made.static(), made.all(make_instance())) == ({"a": [1]}, {"static": {"a": [1]}})


@pytest.mark.parametrize("text", [None, "{", "[]", '"x"'])
def test_invalid_vendor_file_is_left_out(tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vendor.json"
    if text is not None:
        path.write_text(text)
    assert vendor(vendordata_jsonfile_path=str(path)).static() == {}
    assert f"vendordata_jsonfile_path = {path} is left out" in caplog.text


def test_vendor_service_receives_the_guest(target: str) -> None:
    instance = make_instance(metadata={"k": "v"}, image_ref="i")
    assert vendor(vendordata_dynamic_targets=[target]).all(instance) == {"static": {}, "roles": {"role": "web"}}
    (request,) = VendorService.requests
    assert (request["instance-id"], request["project-id"]) == (instance.uuid, instance.project_id)
    assert (request["hostname"], request["image-id"], request["metadata"]) == ("web-one", "i", {"k": "v"})


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (302, b"{}"), (200, b"nonsense"), (200, b"[]"), (200, b" " * (vendordata.MAX_RESPONSE_BYTES + 1))],
)
def test_failing_vendor_service_is_left_out(
    target: str, status: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    VendorService.status, VendorService.body = status, body
    assert vendor(vendordata_dynamic_targets=[target]).all(make_instance()) == {"static": {}, "roles": {}}
    assert "Vendor data roles of instance" in caplog.text


def test_unreachable_vendor_service_is_left_out() -> None:
    made = vendor(vendordata_dynamic_targets=["gone@http://127.0.0.1:1/"])
    assert made.all(make_instance()) == {"static": {}, "gone": {}}


@pytest.mark.parametrize("text", ["http://x/", "static@http://x/", "@http://x/", "a@ftp://x"])
def test_malformed_target_is_a_configuration_error(text: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="must be NAME@URL"):
        vendor(vendordata_dynamic_targets=[text])
