"""Listeners that end TLS: their certificates go from secrets of the project to the host that has the address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite.base import sealing
from nova_lite.db.core.models import Secret, VolumeKey
from nova_lite.db.load_balancer import hosts
from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.objects import Assignment, HostReport, Report
from tests.support.api_client import STRANGER
from tests.support.certificates import make
from tests.support.load_balancers import World

ONE, OTHER = make("one.example.org"), make("other.example.org")
KEY = sealing.new_private_key()


def listener_of(world: World, balancer: str, reference: str | None, **values: Any) -> dict[str, Any]:
    wanted = {"loadbalancer_id": balancer, "protocol": "TERMINATED_HTTPS", "protocol_port": 443}
    return world.make("/listeners", "listener", **wanted, default_tls_container_ref=reference, **values)


def assigned(world: World, host: str, *reports: Report) -> Assignment:
    report = HostReport(public_key=sealing.public_key(KEY), balancers=list(reports))
    (found,) = world.db.write(hosts.sync, host, report).balancers
    return found


def texts(item: Assignment, listener_id: str) -> list[str]:
    found: list[str] = msgspec.json.decode(sealing.unseal(KEY, item.certificates[listener_id]))
    return found


def said(world: World, balancer: str, **values: Any) -> Report:
    row = world.row(balancer)
    assert row is not None
    return Report(**{"id": balancer, "version": row.tree["version"], "holds": True} | values)


def count(world: World) -> int:
    tables = (sa.select(sa.func.count()).select_from(table) for table in (Secret, VolumeKey))
    secrets, keys = world.db.read(lambda uow: [uow.session.scalar(query) for query in tables])
    assert secrets == keys
    return int(secrets or 0)


def test_certificates_reach_the_host_with_the_address_until_it_runs_them(world: World) -> None:
    for name in ("host1", "host2"):
        world.add_host(name)
    balancer = world.balancer()["id"]
    reference, sni = world.secret(ONE.pkcs12), world.secret(OTHER.pkcs12)
    listener = listener_of(world, balancer, reference, sni_container_refs=[sni])
    shown = world.get(f"/listeners/{listener['id']}")["listener"]
    assert (shown["default_tls_container_ref"], shown["sni_container_refs"]) == (reference, [sni])
    assert shown["provisioning_status"] == "ACTIVE" and "certificates" not in shown
    item = assigned(world, "host1")
    found = texts(item, listener["id"])
    assert [text.split("-----BEGIN PRIVATE")[0] for text in found] == [
        ONE.certificate.decode(),
        OTHER.certificate.decode(),
    ]
    (document,) = item.balancer.listeners
    assert document.certificates == [certificates.digest(text) for text in found]
    assert assigned(world, "host1", said(world, balancer)).certificates == {}
    assert assigned(world, "host1", said(world, balancer, version=1)).certificates != {}
    assert assigned(world, "host1", said(world, balancer, problem="a file is missing")).certificates != {}
    assert assigned(world, "host2").certificates == {}, "the stand-by has no certificates"


def test_listener_keeps_its_certificates_when_its_secret_goes_and_loses_them_in_the_end(world: World) -> None:
    world.add_host("host1")
    balancer = world.balancer()["id"]
    reference = world.secret(ONE.pkcs12)
    listener = listener_of(world, balancer, reference)["id"]
    assert count(world) == 2
    assert world.keys("DELETE", reference).status_code == 204
    assert count(world) == 1 and len(texts(assigned(world, "host1"), listener)) == 1
    other = world.secret(OTHER.pkcs12)
    body = {"listener": {"default_tls_container_ref": other}}
    assert world("PUT", f"/listeners/{listener}", body).status_code == 200
    assert texts(assigned(world, "host1"), listener)[0].startswith(OTHER.certificate.decode())
    world.tick()
    assert world("PUT", f"/listeners/{listener}", {"listener": {"name": "x"}}).status_code == 200
    assert texts(assigned(world, "host1"), listener)[0].startswith(OTHER.certificate.decode())
    world.tick()
    assert world("DELETE", f"/listeners/{listener}").status_code == 204
    world.tick()
    assert count(world) == 1
    listener_of(world, balancer, other)
    assert count(world) == 2
    assert world("DELETE", f"/loadbalancers/{balancer}?cascade=true").status_code == 204
    world.tick()
    assert world.row(balancer) is None and count(world) == 1


def test_certificate_comes_from_a_container(world: World) -> None:
    world.add_host("host1")
    parts = {"certificate": ONE.certificate, "private_key": ONE.key, "intermediates": OTHER.certificate}
    refs = [{"name": name, "secret_ref": world.secret(data)} for name, data in parts.items()]
    container = world.keys("POST", "/containers", {"type": "certificate", "secret_refs": refs}).json["container_ref"]
    listener = listener_of(world, world.balancer()["id"], container)["id"]
    (text,) = texts(assigned(world, "host1"), listener)
    assert text.startswith((ONE.certificate + OTHER.certificate).decode())


def test_load_balancer_is_made_whole_with_a_certificate(world: World) -> None:
    world.add_host("host1")
    reference = world.secret(ONE.pkcs12)
    listener = {"protocol": "TERMINATED_HTTPS", "protocol_port": 443, "default_tls_container_ref": reference,
                "insert_headers": {"X-Forwarded-Proto": "true"},
                "default_pool": {"protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"}}  # fmt: skip
    made = world.balancer(listeners=[listener])
    assert len(texts(assigned(world, "host1"), made["listeners"][0]["id"])) == 1


def test_invalid_certificate_is_refused(world: World) -> None:
    world.add_host("host1")
    balancer = world.balancer()["id"]
    good, bad = world.secret(ONE.pkcs12), world.secret(b"junk")
    unknown = f"{good.rpartition('/')[0]}/00000000-0000-4000-8000-00000000dead"
    refs = [{"name": "certificate", "secret_ref": good}]
    container = world.keys("POST", "/containers", {"type": "certificate", "secret_refs": refs}).json["container_ref"]
    wanted = {"loadbalancer_id": balancer, "protocol": "TERMINATED_HTTPS", "protocol_port": 443}
    for reference, text in (
        (bad, "no PKCS12"), (unknown, "another castle"), ("https://x/evil\nglobal", "not the reference"),
        (container, "no PKCS12"), (None, "default_tls_container_ref"),
    ):  # fmt: skip
        body = {"listener": wanted | {"default_tls_container_ref": reference}}
        world.refused("POST", "/listeners", body, 400, text)
    body = {"listener": wanted | {"protocol": "HTTP", "default_tls_container_ref": good}}
    world.refused("POST", "/listeners", body, 400, "and no others")
    theirs = world("POST", "/loadbalancers", {"loadbalancer": {"vip_network_id": world.network.id}}, STRANGER)
    assert theirs.status_code == 201
    world.tick()
    wanted |= {"loadbalancer_id": theirs.json["loadbalancer"]["id"], "default_tls_container_ref": good}
    world.refused("POST", "/listeners", {"listener": wanted}, 400, "another castle", STRANGER)


def test_lost_master_key_stops_no_other_load_balancer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add_host("host1")
    balancer = world.balancer()["id"]
    listener_of(world, balancer, world.secret(ONE.pkcs12))
    world.conf.set_override("encryption_key_file", "", group="volume")
    assert assigned(world, "host1").certificates == {}
    assert f"Certificates of load balancer {balancer} cannot be read" in caplog.text
    assert "PRIVATE KEY" not in caplog.text
