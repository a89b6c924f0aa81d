"""Role of an API on a compute host: with a key of its own it serves the guests of that host alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.api.metadata import role
from nova_lite.rpc import broker
from tests.support.api_client import make_conf
from tests.support.metadata_service import ADDRESS, PROXY, Service, signed

METADATA_ONLY = "enabled_apis = metadata\n"


def conf_with_keys(path: Path, *roles: str, apis: str = METADATA_ONLY) -> cfg.ConfigOpts:
    keys = path / "keys"
    keys.mkdir()
    for name in roles:
        (keys / f"{name}.h1.key").touch()
    made = make_conf(path, apis)
    made.set_override("host", "h1")
    made.set_override("keys_directory", str(keys), group="rpc")
    return made


def test_api_of_metadata_alone_has_the_role_of_its_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = conf_with_keys(tmp_path, "metadata", "api")
    assert role.role_of(conf) == rpc.METADATA
    role.log_role(conf)
    assert caplog.messages == []


def test_api_of_metadata_with_the_key_of_an_api_logs_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = conf_with_keys(tmp_path, "api")
    assert role.role_of(conf) == rpc.API
    role.log_role(conf)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("nova-lite-manage keys create metadata h1")


def test_api_that_serves_more_than_metadata_has_the_role_api(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = conf_with_keys(tmp_path, "metadata", "api", apis="enabled_apis = osapi_compute,metadata\n")
    assert role.role_of(conf) == rpc.API
    role.log_role(conf)
    assert caplog.messages == []


def test_api_without_signatures_has_the_role_api(tmp_path: Path) -> None:
    assert role.role_of(make_conf(tmp_path, METADATA_ONLY)) == rpc.API


def of_host(path: Path, monkeypatch: pytest.MonkeyPatch, text: str = "") -> Service:
    """Return the service of host h1. Its guest is there."""
    monkeypatch.setattr(role, "role_of", lambda conf: rpc.METADATA)
    service = Service(path, text)
    service.instance.host = make_conf(path, text).host
    return service


def test_metadata_role_serves_the_guests_of_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = of_host(tmp_path, monkeypatch)
    assert service.text("/latest/meta-data/instance-id") == service.instance.uuid
    assert service("/openstack/latest/password", method="POST", body=b"c2VjcmV0").status_code == 200
    assert service.text("/openstack/latest/password") == "c2VjcmV0"
    called = {method for method, _ in service.conductor.calls}
    assert called & {"instances_at_address", "instance_get", "instance_password_set"} == set()


def test_metadata_role_serves_no_guest_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = of_host(tmp_path, monkeypatch)
    service.instance.host = "h2"
    service.text("/latest/meta-data/instance-id", 404, address=ADDRESS)


def test_metadata_role_checks_the_project_behind_neutrons_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = of_host(tmp_path, monkeypatch, PROXY)
    uuid = service.instance.uuid
    assert service.text("/latest/meta-data/instance-id", **signed(uuid)) == uuid
    other = of_host(tmp_path, monkeypatch, PROXY)
    other.instance.project_id = "another"
    other.text("/latest/meta-data/instance-id", 404, **signed(other.instance.uuid))


def test_broker_account_of_the_metadata_role_reaches_the_conductor_alone() -> None:
    found = broker.permissions(rpc.METADATA, "h1")
    assert found.topic_write == "^(conductor)$"
    assert found.topic_read == "^$"
