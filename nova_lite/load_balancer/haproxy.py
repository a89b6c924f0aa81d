"""The configuration of HAProxy for a load balancer.

Every word is made from a parsed value or a constant. A value that is not valid raises ValueError, whatever the API has
accepted. Each listener has a frontend, and a backend of its own for its pool, which has the listener's timeouts.
"""

from __future__ import annotations

import csv
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.base import ip
from nova_lite.load_balancer.objects import Counters, HealthMonitor, Listener, LoadBalancer, Member, Pool, Provisioning

ALGORITHMS = {"ROUND_ROBIN": "roundrobin", "LEAST_CONNECTIONS": "leastconn", "SOURCE_IP": "source"}
PERSISTENCE = ("SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE")
#: Protocols of pools, with the word by which the members learn of the client.
POOLS = {"TCP": "", "HTTP": "", "HTTPS": "", "PROXY": "send-proxy", "PROXYV2": "send-proxy-v2"}
MONITORS = ("TCP", "HTTP", "HTTPS", "TLS-HELLO")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE")
#: Headers that a listener may insert, with the lines that do it.
HEADERS = {
    "X-Forwarded-For": "option forwardfor",
    "X-Forwarded-Port": "http-request set-header X-Forwarded-Port %[dst_port]",
    "X-Forwarded-Proto": "http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]",
}
COOKIE = re.compile(r"[A-Za-z0-9_.-]{1,255}")
URL_PATH = re.compile(r"/[A-Za-z0-9/_.~!$&()*+,;=:@%?-]{0,254}")
DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
#: Protocol of listeners that end TLS, what they speak then, and names of files with a certificate.
TLS = "TERMINATED_HTTPS"
_TLS = "alpn h2,http/1.1 ssl-min-ver TLSv1.2 no-tls-tickets"
_CERTIFICATE = re.compile(r"[0-9a-f]{64}")
_CODES = re.compile(r"[1-5][0-9]{2}([,-][1-5][0-9]{2}){0,20}")

#: Name of the process, and its address, for the process that replaces it and takes its tables of sessions.
PEER, _PEERS = "self", "127.0.0.1:10000"
_TABLE = f"size 10k expire 1h peers {PEER}"


class Place(NamedTuple):
    """Place of a process: socket of its commands, file with states of members, an empty directory, its user, the
    largest number of its connections, and the directory of its certificates.
    """

    socket: str
    states: str
    empty: str
    user: str
    connections: int
    certificates: str = ""


def is_needed(balancer: LoadBalancer) -> bool:
    """Check whether a load balancer needs a process: HAProxy does not start without a listener."""
    return bool(_listeners(balancer))


def configuration(balancer: LoadBalancer, address: str, place: Place) -> str:
    """Return the configuration. ``address``: of the load balancer. Raises ValueError."""
    vip = str(ip.parse4(address))
    lines = [
        "global",
        f"  maxconn {int(place.connections)}",
        f"  localpeer {PEER}",
        "  nbthread 1",
        f"  user {place.user}",
        f"  group {place.user}",
        f"  chroot {place.empty}",
        f"  stats socket {place.socket} mode 600 level admin expose-fd listeners",
        f"  server-state-file {place.states}",
        "defaults",
        "  timeout http-request 30s",
        "  timeout queue 60s",
        "  retries 3",
        "  option redispatch",
        "  load-server-state-from-file global",
        f"peers {PEER}",
        f"  peer {PEER} {_PEERS}",
    ]
    for listener in _listeners(balancer):
        pool = _pool(balancer, listener)
        lines += [f"frontend {_id(listener.id)}", *(f"  {line}" for line in _frontend(listener, pool, vip, place))]
        if pool is not None:
            lines += [f"backend {_backend_name(pool, listener)}", *(f"  {line}" for line in _backend(pool, listener))]
    return "\n".join([*lines, ""])


def _listeners(balancer: LoadBalancer) -> list[Listener]:
    every = balancer.listeners if balancer.admin_state_up else []
    return [one for one in every if one.admin_state_up and one.provisioning_status != Provisioning.PENDING_DELETE]


def _pool(balancer: LoadBalancer, listener: Listener) -> Pool | None:
    pool = balancer.pool(listener.default_pool_id)
    return pool if pool is not None and pool.admin_state_up else None


def _id(text: str) -> str:
    return str(uuid.UUID(text))


def _backend_name(pool: Pool, listener: Listener) -> str:
    return f"{_id(pool.id)}:{_id(listener.id)}"


def _mode(listener: Listener) -> str:
    return "http" if listener.protocol in ("HTTP", TLS) else "tcp"


def certificate_file(place: Place, digest: str) -> str:
    """Return the path of a certificate. Raises ValueError."""
    if not _CERTIFICATE.fullmatch(digest):
        raise ValueError(f"certificate {digest[:64]!r}")
    return f"{place.certificates}/{digest}.pem"


def certificates(balancer: LoadBalancer) -> list[str]:
    """Return the digests of the certificates that the process needs."""
    found = (
        digest for listener in _listeners(balancer) if listener.protocol == TLS for digest in listener.certificates
    )
    return list(dict.fromkeys(found))


def _bind(listener: Listener, vip: str, place: Place) -> Iterator[str]:
    yield f"bind {vip}:{int(listener.protocol_port)}"
    if listener.protocol == TLS:
        if not listener.certificates:
            raise ValueError(f"listener {_id(listener.id)} has no certificate")
        yield "ssl"
        yield from (f"crt {certificate_file(place, digest)}" for digest in listener.certificates)
        yield _TLS


def _frontend(listener: Listener, pool: Pool | None, vip: str, place: Place) -> Iterator[str]:
    yield " ".join(_bind(listener, vip, place))
    yield f"mode {_mode(listener)}"
    if listener.connection_limit >= 0:
        yield f"maxconn {int(listener.connection_limit)}"
    yield f"timeout client {int(listener.timeout_client_data)}"
    if listener.timeout_tcp_inspect:
        yield f"tcp-request inspect-delay {int(listener.timeout_tcp_inspect)}"
    if listener.allowed_cidrs:
        for cidr in listener.allowed_cidrs:
            yield f"acl is_allowed src {ip.parse_network4(cidr)}"
        yield "tcp-request connection reject unless is_allowed"
    for header, flag in sorted(listener.insert_headers.items()):
        if flag == "true" and _mode(listener) == "http":
            yield HEADERS[header]
    if pool is not None:
        yield f"default_backend {_backend_name(pool, listener)}"


def _backend(pool: Pool, listener: Listener) -> Iterator[str]:
    monitor = pool.healthmonitor
    if monitor is not None and (
        not monitor.admin_state_up or monitor.provisioning_status == Provisioning.PENDING_DELETE
    ):
        monitor = None
    yield f"mode {_mode(listener)}"
    yield f"balance {ALGORITHMS[pool.lb_algorithm]}"
    yield f"timeout connect {int(listener.timeout_member_connect)}"
    yield f"timeout server {int(listener.timeout_member_data)}"
    kind, cookie = _persistence(pool, listener)
    if kind == "SOURCE_IP":
        yield from (f"stick-table type ip {_TABLE}", "stick on src")
    elif kind == "HTTP_COOKIE":
        yield "cookie SRV insert indirect nocache"
    elif kind == "APP_COOKIE":
        yield f"stick-table type string len 64 {_TABLE}"
        yield from (f"stick store-response res.cook({cookie})", f"stick match req.cook({cookie})")
    if monitor is not None:
        yield from _checks(monitor)
    for member in pool.members:
        if member.admin_state_up and member.provisioning_status != Provisioning.PENDING_DELETE:
            yield " ".join(_server(member, pool, monitor, kind == "HTTP_COOKIE"))


def _persistence(pool: Pool, listener: Listener) -> tuple[str, str]:
    """Return kind and cookie of the sessions, and empty texts without sessions. Only HTTP has cookies."""
    wanted = pool.session_persistence or {}
    kind, cookie = wanted.get("type") or "", wanted.get("cookie_name") or ""
    if kind == "APP_COOKIE" and not COOKIE.fullmatch(cookie):
        raise ValueError(f"cookie {cookie[:64]!r}")
    return (kind, cookie) if kind == "SOURCE_IP" or _mode(listener) == "http" else ("", "")


def _checks(monitor: HealthMonitor) -> Iterator[str]:
    yield f"timeout check {int(monitor.timeout)}s"
    if monitor.type == "TLS-HELLO":
        yield "option ssl-hello-chk"
    if monitor.type not in ("HTTP", "HTTPS"):
        return
    method, path, codes = monitor.http_method or "GET", monitor.url_path or "/", monitor.expected_codes or "200"
    if method not in METHODS or not URL_PATH.fullmatch(path) or not _CODES.fullmatch(codes):
        raise ValueError(f"health monitor {monitor.id}")
    yield "option httpchk"
    words = f"http-check send meth {method} uri {path}"
    if monitor.domain_name is not None:
        if not DOMAIN.fullmatch(monitor.domain_name):
            raise ValueError(f"domain name {monitor.domain_name[:64]!r}")
        words += f" ver HTTP/1.1 hdr Host {monitor.domain_name}"
    elif monitor.http_version == 1.1:
        words += " ver HTTP/1.1"
    yield words
    yield f"http-check expect status {codes}"


def _server(member: Member, pool: Pool, monitor: HealthMonitor | None, has_cookie: bool) -> Iterator[str]:
    yield f"server {_id(member.id)} {ip.parse4(member.address)}:{int(member.protocol_port)}"
    yield f"weight {int(member.weight)}"
    if monitor is not None:
        yield f"check inter {int(monitor.delay)}s fall {int(monitor.max_retries_down)} rise {int(monitor.max_retries)}"
        if monitor.type == "HTTPS":
            yield "check-ssl verify none"
        if member.monitor_address is not None:
            yield f"addr {ip.parse4(member.monitor_address)}"
        if member.monitor_port is not None:
            yield f"port {int(member.monitor_port)}"
    if has_cookie:
        yield f"cookie {_id(member.id)}"
    if word := POOLS[pool.protocol]:
        yield word
    if member.backup:
        yield "backup"


def statistics(text: str) -> tuple[dict[str, Counters], dict[str, bool]]:
    """Return the counters of listeners, and whether members pass their checks, from the reply to ``show stat``."""
    counters: dict[str, Counters] = {}
    members: dict[str, bool] = {}
    for row in csv.DictReader(text.removeprefix("# ").splitlines()):
        if row["svname"] == "FRONTEND":
            counters[row["pxname"]] = Counters(
                active_connections=int(row["scur"] or 0),
                bytes_in=int(row["bin"] or 0),
                bytes_out=int(row["bout"] or 0),
                request_errors=int(row["ereq"] or 0),
                total_connections=int(row["stot"] or 0),
            )
        elif row["svname"] != "BACKEND" and row["status"] != "no check":
            members[row["svname"]] = row["status"].startswith("UP")
    return counters, members
