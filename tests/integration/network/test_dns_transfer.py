"""Record sets reach a real name server, which is Debian's bind9, by signed updates."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import pytest

from tests.support.dns_api import DnsApi
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("named") is None, reason="bind9 is not installed")

#: The operator's zones: one for the zones of users, one for the addresses of the pool, and a user's own.
ZONES = ("cloud.test", "2.0.192.in-addr.arpa", "own.test")
_ZONE = "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n"


class Named:
    """bind9 at a port of this machine, with dynamic zones. ``key``: file of the key that may change them."""

    def __init__(self, path: Path) -> None:
        self.path, self.key = path, path / "key"
        self.key.write_text(
            subprocess.run(["tsig-keygen", "cloud"], check=True, stdout=subprocess.PIPE, text=True).stdout
        )
        self.key.chmod(0o640)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        zones = []
        for zone in ZONES:
            (path / zone).write_text(_ZONE)
            update = "update-policy { grant cloud zonesub ANY; };"
            zones.append(f'zone "{zone}" {{ type primary; file "{path / zone}"; {update} }};')
        options = f'directory "{path}"; listen-on port {self.port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};'
        options += f' pid-file "{path}/pid"; session-keyfile "{path}/session"; recursion no; dnssec-validation no;'
        text = [f'include "{self.key}";', f"options {{ {options} }};", "controls { };", *zones]
        (path / "named.conf").write_text("\n".join(text))
        command = ["named", "-g", "-c", str(path / "named.conf"), "-n", "1"]
        with (path / "named.out").open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_for("bind9 answers", lambda: self.answers("cloud.test.", "SOA"))

    def answers(self, name: str, kind: str) -> list[str]:
        query = dns.message.make_query(name, kind)
        try:
            reply = dns.query.tcp(query, "127.0.0.1", 30, port=self.port)
        except (dns.exception.DNSException, EOFError, OSError):
            return []
        return sorted(str(item) for answer in reply.answer for item in answer)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Named]:
    made = Named(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def api(named: Named, tmp_path: Path) -> Iterator[DnsApi]:
    made = DnsApi(tmp_path / "state", f"server = 127.0.0.1\nport = {named.port}\nkey_file = {named.key}")
    yield made
    made.manager.close()


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()


def test_records_of_users_are_answered_changed_and_removed(named: Named, api: DnsApi) -> None:
    zone, own = api.zone("a.cloud.test."), api.zone("own.test.")
    made = api.records(zone, "www.a.cloud.test.", "A", "192.0.2.1", "192.0.2.2", ttl=60)
    api.records(zone, "a.cloud.test.", "MX", "10 mail.other.test.")
    api.records(zone, "*.a.cloud.test.", "CNAME", "www.a.cloud.test.")
    api.records(own, "own.test.", "TXT", '"v=spf1 -all"')
    api.records(own, "_sip._tcp.own.test.", "SRV", "10 0 5060 sip.own.test.")
    api.records(own, "v6.own.test.", "AAAA", "2001:db8::1")
    api.records(own, "own.test.", "CAA", '0 issue "ca.test"')
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == ["192.0.2.1", "192.0.2.2"]
    assert named.answers("a.cloud.test.", "MX") == ["10 mail.other.test."]
    assert "www.a.cloud.test." in named.answers("any.a.cloud.test.", "A")
    assert named.answers("own.test.", "TXT") == ['"v=spf1 -all"']
    assert named.answers("_sip._tcp.own.test.", "SRV") == ["10 0 5060 sip.own.test."]
    assert named.answers("v6.own.test.", "AAAA") == ["2001:db8::1"]
    assert named.answers("own.test.", "CAA") == ['0 issue "ca.test"']
    api.done("PUT", f"/zones/{zone['id']}/recordsets/{made['id']}", {"records": ["192.0.2.3"]})
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == ["192.0.2.3"]
    assert {item["status"] for item in api.listed("/recordsets")} == {"ACTIVE"}
    api.done("DELETE", f"/zones/{zone['id']}")
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == named.answers("a.cloud.test.", "MX") == []
    assert [item["name"] for item in api.listed("/zones", "zones")] == ["own.test."]


def test_floating_address_is_answered_by_name_and_address(named: Named, api: DnsApi) -> None:
    api.zone("a.cloud.test.")
    made = api.floating_ip(dns_name="www", dns_domain="a.cloud.test.")
    address = made["floating_ip_address"]
    api.done("PATCH", f"/reverse/floatingips/RegionOne:{made['id']}", {"ptrdname": "www.a.cloud.test."})
    api.wing.transfer()
    reverse = ".".join(reversed(address.split("."))) + ".in-addr.arpa."
    assert named.answers("www.a.cloud.test.", "A") == [address]
    assert named.answers(reverse, "PTR") == ["www.a.cloud.test."]
    assert api("DELETE", f"/v2.0/floatingips/{made['id']}", app=api.network).status_code == 204
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == named.answers(reverse, "PTR") == []


def test_zone_that_the_server_does_not_have_is_an_error_and_others_are_sent(named: Named, api: DnsApi) -> None:
    lost, zone = api.zone("lost.example."), api.zone("a.cloud.test.")
    api.records(lost, "www.lost.example.", "A", "192.0.2.1")
    api.records(zone, "www.a.cloud.test.", "A", "192.0.2.1")
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == ["192.0.2.1"]
    states = {item["name"]: item["status"] for item in api.listed("/zones", "zones")}
    assert states == {"lost.example.": "ERROR", "a.cloud.test.": "ACTIVE"}
    assert [item["status"] for item in api.listed(f"/zones/{lost['id']}/recordsets?type=A")] == ["ERROR"]


def test_change_waits_for_a_server_that_is_away(named: Named, api: DnsApi) -> None:
    zone = api.zone("a.cloud.test.")
    named.stop()
    api.records(zone, "www.a.cloud.test.", "A", "192.0.2.1")
    api.wing.transfer()
    assert [item["status"] for item in api.listed("/recordsets?type=A")] == ["PENDING"]


def test_update_with_another_key_is_refused(named: Named, tmp_path: Path) -> None:
    key = tmp_path / "other"
    text = subprocess.run(["tsig-keygen", "cloud"], check=True, stdout=subprocess.PIPE, text=True).stdout
    key.write_text(text)
    key.chmod(0o640)
    api = DnsApi(tmp_path / "state", f"server = 127.0.0.1\nport = {named.port}\nkey_file = {key}")
    zone = api.zone("a.cloud.test.")
    api.records(zone, "www.a.cloud.test.", "A", "192.0.2.1")
    api.wing.transfer()
    assert named.answers("www.a.cloud.test.", "A") == []
    assert [item["status"] for item in api.listed("/recordsets?type=A")] != ["ACTIVE"]
    api.manager.close()
