"""The configuration of HAProxy: HAProxy accepts it, and no value of a user becomes a word of its own."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.load_balancer import haproxy
from nova_lite.load_balancer.haproxy import Place
from nova_lite.load_balancer.objects import HealthMonitor, Listener, LoadBalancer, Member, Pool, Provisioning
from tests.support.certificates import make


def an_id() -> str:
    return str(uuid.uuid4())


def balancer_of(
    listener: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    monitor: dict[str, Any] | None = None,
    member: dict[str, Any] | None = None,
) -> LoadBalancer:
    """Return a load balancer with one part of each kind. Without ``monitor`` it has none."""
    of_pool: dict[str, Any] = {"id": an_id(), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"} | (pool or {})
    made = Pool(**of_pool)
    made.members = [Member(**{"id": an_id(), "address": "10.0.0.9", "protocol_port": 8080} | (member or {}))]
    made.members.append(Member(id=an_id(), address="10.0.0.10", protocol_port=8080, backup=True))
    if monitor is not None:
        values = {"id": an_id(), "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2} | monitor
        made.healthmonitor = HealthMonitor(**values)
    of_listener: dict[str, Any] = {"id": an_id(), "protocol": "TCP", "protocol_port": 80} | (listener or {})
    first = Listener(**of_listener, default_pool_id=made.id)
    second = Listener(id=an_id(), protocol="TCP", protocol_port=8443, default_pool_id=made.id)
    return LoadBalancer(id=an_id(), project_id="demo", listeners=[first, second], pools=[made])


def text_of(balancer: LoadBalancer, directory: str = "/run/lb") -> str:
    paths = f"{directory}/haproxy.sock", f"{directory}/states", f"{directory}/empty"
    place = Place(*paths, "haproxy", 1000, directory)
    return haproxy.configuration(balancer, "10.0.0.5", place)


def lines_of(balancer: LoadBalancer) -> list[str]:
    return [line.strip() for line in text_of(balancer).splitlines()]


CERTIFICATES = ["a" * 64, "b" * 64]
EVERY = [
    *({"listener": {"protocol": protocol}, "pool": {"protocol": pool, "lb_algorithm": algorithm}}
      for protocol, (pool, algorithm) in itertools.product(
          ("TCP", "HTTP", "HTTPS"), zip(("HTTP", "PROXY", "PROXYV2"), haproxy.ALGORITHMS, strict=True))),
    *({"listener": {"protocol": "HTTP"}, "pool": {"session_persistence": {"type": kind, "cookie_name": name}}}
      for kind, name in (("SOURCE_IP", None), ("HTTP_COOKIE", None), ("APP_COOKIE", "JSESSIONID"))),
    *({"monitor": {"type": kind}} for kind in haproxy.MONITORS),
    {
        "monitor": {
            "type": "HTTPS", "http_method": "HEAD", "url_path": "/health?a=b", "expected_codes": "200,201",
            "domain_name": "example.org", "http_version": 1.1,
        },
        "member": {"monitor_address": "10.0.0.11", "monitor_port": 81, "weight": 0},
    },
    {"monitor": {"type": "HTTP", "expected_codes": "200-204", "http_version": 1.1}},
    {
        "listener": {
            "protocol": "TERMINATED_HTTPS", "certificates": CERTIFICATES,
            "insert_headers": dict.fromkeys(haproxy.HEADERS, "true"),
        },
        "pool": {"protocol": "HTTP"},
    },
    {
        "listener": {
            "protocol": "HTTP", "connection_limit": 10, "timeout_tcp_inspect": 10,
            "insert_headers": dict.fromkeys(haproxy.HEADERS, "true"),
            "allowed_cidrs": [f"10.{number}.0.0/16" for number in range(100)],
        },
    },
]  # fmt: skip


@pytest.mark.parametrize("parts", EVERY)
def test_configuration_is_accepted_by_haproxy(tmp_path: Path, parts: dict[str, Any]) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed")
    file = tmp_path / "haproxy.cfg"
    file.write_text(text_of(balancer_of(**parts), str(tmp_path)))
    (tmp_path / "states").write_text("1\n")
    for name in CERTIFICATES:
        made = make(f"{name[0]}.example.org")
        (tmp_path / f"{name}.pem").write_bytes(made.certificate + made.key)
    result = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "ALERT" not in result.stderr and "WARNING" not in result.stderr, result.stderr


EVIL = "x\nglobal\n  insecure-fork-wanted"


@pytest.mark.parametrize(
    "parts",
    [
        {"listener": {"id": EVIL}},
        {"listener": {"allowed_cidrs": [EVIL]}},
        {"listener": {"protocol": "TERMINATED_HTTPS", "certificates": []}},
        {"listener": {"protocol": "TERMINATED_HTTPS", "certificates": [EVIL]}},
        {"listener": {"protocol": "TERMINATED_HTTPS", "certificates": ["../" * 20]}},
        {"listener": {"protocol": "HTTP", "insert_headers": {EVIL: "true"}}},
        {"pool": {"id": EVIL}},
        {"pool": {"lb_algorithm": EVIL}},
        {"pool": {"protocol": EVIL}},
        {
            "listener": {"protocol": "HTTP"},
            "pool": {"session_persistence": {"type": "APP_COOKIE", "cookie_name": EVIL}},
        },
        {"member": {"id": EVIL}},
        {"member": {"address": EVIL}},
        {"member": {"monitor_address": EVIL}, "monitor": {}},
        {"monitor": {"type": "HTTP", "url_path": f"/{EVIL}"}},
        {"monitor": {"type": "HTTP", "http_method": EVIL}},
        {"monitor": {"type": "HTTP", "expected_codes": EVIL}},
        {"monitor": {"type": "HTTP", "domain_name": EVIL}},
    ],
)
def test_invalid_value_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        text_of(balancer_of(**parts))


def test_texts_of_users_are_not_written() -> None:
    balancer = balancer_of(listener={"name": EVIL, "description": EVIL}, pool={"name": EVIL}, member={"name": EVIL})
    balancer.name = balancer.description = EVIL
    assert "insecure" not in text_of(balancer)


def test_frontend_has_what_its_listener_says() -> None:
    balancer = balancer_of(
        listener={"protocol": "HTTP", "insert_headers": {"X-Forwarded-For": "true", "X-Forwarded-Port": "false"},
                  "connection_limit": 7, "timeout_client_data": 9, "allowed_cidrs": ["10.0.0.0/8"]},
        pool={"protocol": "HTTP"},
    )  # fmt: skip
    lines = lines_of(balancer)
    for line in ("bind 10.0.0.5:80", "mode http", "maxconn 7", "timeout client 9", "acl is_allowed src 10.0.0.0/8",
                 "tcp-request connection reject unless is_allowed", "option forwardfor"):  # fmt: skip
        assert line in lines
    assert not any("X-Forwarded-Port" in line for line in lines)


def test_frontend_that_ends_tls_has_its_certificates() -> None:
    listener = {"protocol": "TERMINATED_HTTPS", "protocol_port": 443, "certificates": CERTIFICATES,
                "insert_headers": {"X-Forwarded-Proto": "true"}}  # fmt: skip
    balancer = balancer_of(listener, {"protocol": "HTTP"})
    lines = lines_of(balancer)
    files = " ".join(f"crt /run/lb/{name}.pem" for name in CERTIFICATES)
    assert f"bind 10.0.0.5:443 ssl {files} alpn h2,http/1.1 ssl-min-ver TLSv1.2 no-tls-tickets" in lines
    assert lines.count("mode http") == 2  # of frontend and backend
    assert haproxy.certificates(balancer) == CERTIFICATES
    balancer.listeners[0].admin_state_up = False
    assert haproxy.certificates(balancer) == []


def test_part_that_is_down_or_being_deleted_is_left_out() -> None:
    balancer = balancer_of()
    (pool,) = balancer.pools
    pool.members[0].admin_state_up = False
    assert not any(pool.members[0].id in line for line in lines_of(balancer))
    pool.members[1].provisioning_status = Provisioning.PENDING_DELETE
    assert not any(line.startswith("server ") for line in lines_of(balancer))
    pool.admin_state_up = False
    assert not any(line.startswith("backend") for line in lines_of(balancer))
    balancer.listeners[0].provisioning_status = Provisioning.PENDING_DELETE
    assert "bind 10.0.0.5:80" not in lines_of(balancer) and haproxy.is_needed(balancer)
    balancer.listeners[1].admin_state_up = False
    assert not haproxy.is_needed(balancer)
    assert not haproxy.is_needed(msgspec.structs.replace(balancer_of(), admin_state_up=False))


def test_statistics_are_read_by_listener_and_member() -> None:
    text = (
        "# pxname,svname,scur,stot,bin,bout,ereq,status,\n"
        "l1,FRONTEND,2,9,100,200,1,OPEN,\n"
        "p1:l1,m1,0,0,0,0,,UP,\n"
        "p1:l1,m2,0,0,0,0,,UP 1/3,\n"
        "p1:l1,m3,0,0,0,0,,DOWN,\n"
        "p1:l1,m4,0,0,0,0,,no check,\n"
        "p1:l1,BACKEND,0,0,0,0,,UP,\n\n"
    )
    counters, members = haproxy.statistics(text)
    found = counters.pop("l1")
    assert (found.active_connections, found.total_connections, found.bytes_in, found.bytes_out) == (2, 9, 100, 200)
    assert found.request_errors == 1 and counters == {}
    assert members == {"m1": True, "m2": True, "m3": False}
