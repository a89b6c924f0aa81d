"""openstacksdk uses the DNS API over HTTP."""

from __future__ import annotations

import threading
import wsgiref.simple_server
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

from tests.support.api_client import MEMBER
from tests.support.dns_api import DnsApi


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[DnsApi, str]]:
    api = DnsApi(tmp_path)
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, api.app, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield api, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(30)
    api.manager.close()


def test_sdk_makes_changes_lists_and_deletes_zones_and_records(cloud: tuple[DnsApi, str]) -> None:
    api, url = cloud
    auth: Any = {"auth_type": "admin_token", "auth": {"token": MEMBER, "endpoint": url}, "region_name": "RegionOne"}
    dns = openstack.connection.Connection(**auth, dns_endpoint_override=f"{url}/v2").dns
    zone = dns.create_zone(name="example.org.", email="a@example.org", ttl=60)
    made = dns.create_recordset(zone, name="www.example.org.", type="A", records=["192.0.2.1"])
    api.wing.transfer()
    assert (dns.get_zone(zone).status, dns.get_recordset(made, zone).status) == ("ACTIVE", "ACTIVE")
    assert [item.id for item in dns.zones(name="example.org.")] == [zone.id]
    assert dns.update_recordset(made, zone_id=zone.id, records=["192.0.2.2"]).records == ["192.0.2.2"]
    assert dns.update_zone(zone, ttl=120).ttl == 120
    assert {item.type for item in dns.recordsets(zone)} == {"A", "NS", "SOA"}
    floating = api.floating_ip()
    (named,) = dns.floating_ips()
    assert (named.id, named.ptrdname) == (f"RegionOne:{floating['id']}", None)
    dns.update_floating_ip(named, ptrdname="www.example.org.")
    assert dns.get_floating_ip(named.id).ptrdname == "www.example.org."
    assert dns.get_quota(zone.project_id).zones == 10
    dns.delete_recordset(made, zone)
    dns.delete_zone(zone)
    api.wing.transfer()
    assert list(dns.zones()) == []
