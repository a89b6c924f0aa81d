"""Checks of new security group rules, which run before the transaction that writes them."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.network import security_rules
from tests.support.security_groups import tcp


def test_checked_rule_has_a_protocol_in_lower_case_and_a_prefix_length() -> None:
    rule = security_rules.checked(tcp("g", protocol="TCP", remote_ip_prefix="10.1.2.3"))
    assert (rule.protocol, rule.remote_ip_prefix) == ("tcp", "10.1.2.3/32")


@pytest.mark.parametrize(
    "values",
    [
        {"protocol": "gre"},
        {"protocol": "112"},
        {"protocol": None},
        {"protocol": "256", "port_range_min": None, "port_range_max": None},
        {"protocol": "-1", "port_range_min": None, "port_range_max": None},
        {"protocol": "nonsense", "port_range_min": None, "port_range_max": None},
        {"protocol": "ipv6-icmp", "port_range_min": None, "port_range_max": None},
        {"protocol": "41", "port_range_min": None, "port_range_max": None},
        {"port_range_min": 0},
        {"port_range_max": 65536},
        {"port_range_min": 81},
        {"port_range_min": None},
        {"protocol": "icmp", "port_range_min": 256},
        {"protocol": "icmp", "port_range_min": None},
        {"remote_ip_prefix": "10.0.0.0/33"},
        {"remote_ip_prefix": "2001:db8::/32"},
        {"remote_ip_prefix": "fe80::%lo/64", "ethertype": "IPv6"},
        {"remote_ip_prefix": "fe80::%lo", "ethertype": "IPv6"},
        {"remote_ip_prefix": "10.0.0.0/8", "remote_group_id": "default"},
        {"direction": "sideways"},
        {"ethertype": "IPX"},
    ],
)
def test_rule_that_contradicts_itself_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(exceptions.SecurityGroupRuleInvalid):
        security_rules.checked(tcp("g", **values))
