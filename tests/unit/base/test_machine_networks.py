"""Networks that a machine uses outside of the cloud's bridges, from the kernel's tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_messaging import TransportURL

from nova_lite.base.machine_networks import used
from tests.support import make

ROUTE = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
eth0 0000420A 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth0 000010AC 0100420A 0003 0 0 0 0000F0FF 0 0 0
eth0 0000FEA9 00000000 0001 0 0 0 0000FFFF 0 0 0
* 000010C0 00000000 0200 0 0 0 00FFFFFF 0 0 0
nlbr0a0a0a0a 0000400A 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
ZERO = "0" * 32
ROUTE6 = f"""{"fd".ljust(32, "0")} 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001 eth0
{"fe80".ljust(32, "0")} 40 {ZERO} 00 {ZERO} 00000100 00000002 00000000 00000001 eth0
{ZERO} 00 {ZERO} 00 {"fd".ljust(31, "0")}1 00000400 00000003 00000000 00000003 eth0
{"fd".ljust(31, "0")}2 80 {ZERO} 00 {ZERO} 00000000 00000003 00000000 80200001 eth0
{"fd40".ljust(32, "0")} 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001 nlbr0a0a0a0a
{"ff".ljust(32, "0")} 08 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001 eth0
"""


def conf_of(transport_url: str) -> cfg.ConfigOpts:
    conf = make.conf("sqlite://")
    TransportURL.parse(conf)  # it registers the option
    conf.set_override("transport_url", transport_url)
    return conf


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "route").write_text(ROUTE)
    (tmp_path / "ipv6_route").write_text(ROUTE6)
    (tmp_path / "resolv.conf").write_text(
        "# by hand\nnameserver 10.7.7.7\nnameserver 127.0.0.53\nsearch x\nnameserver\n"
    )
    return tmp_path


def test_networks_are_routes_name_servers_and_brokers_without_bridges(proc: Path) -> None:
    conf = conf_of("rabbit://u:p@10.8.8.8:5672,u:p@[fd99::8]:5672/nova")
    found = used(conf, "10.9.9.9", proc=str(proc), resolv_conf=str(proc / "resolv.conf"))
    assert found == sorted(
        ["10.66.0.0/24", "172.16.0.0/12", "fd00::/64", "10.7.7.7/32", "10.8.8.8/32", "fd99::8/128", "10.9.9.9/32"]
    )


def test_machine_without_tables_has_no_networks(tmp_path: Path) -> None:
    conf = conf_of("rabbit://localhost")
    assert used(conf, proc=str(tmp_path), resolv_conf=str(tmp_path / "none")) == []
