"""Sets of group members in the real nft equal a model, for generated groups, networks and routers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.objects import VIF, HostRouter, Network, PortFilters, SecurityGroup, SecurityGroupRule, Subnet6
from nova_lite.objects.security_group import IPV4, IPV6, NetworkMembers
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.security_groups import member_changes, ruleset

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")

#: All networks have the same addresses.
NETWORKS = [
    Network(
        id=f"net-{number}", name="n", cidr="10.0.0.0/24", cidr6="fd00::/64", subnet6=Subnet6(), bridge=f"br{number}"
    )
    for number in range(4)
]
ADDRESSES = [*(f"10.0.0.{number}" for number in range(2, 6)), *(f"fd00::{number}" for number in range(2, 6))]
GROUPS = ["group-a", "group-b"]
#: A kernel of its own for each example, which goes with the process.
_LOAD = "nft -f - && nft -j list ruleset"

members = st.dictionaries(st.sampled_from([network.id for network in NETWORKS]), st.sets(st.sampled_from(ADDRESSES)))


@st.composite
def topologies(draw: st.DrawFn) -> list[HostRouter]:
    """Return routers. Each network is on one of them at most, for both IP versions or one."""
    routers = [HostRouter(id=f"router-{number}") for number in range(2)]
    for network in NETWORKS:
        on, only = draw(st.sampled_from([*routers, None])), draw(st.sampled_from([None, 4, 6]))
        if on is not None:
            on.networks.append(network)
            on.only |= {network.id: only} if only else {}
    return routers


@st.composite
def groups(draw: st.DrawFn) -> dict[str, SecurityGroup]:
    def rule(group_id: str, number: int) -> SecurityGroupRule:
        remote, ethertype = draw(st.sampled_from([*GROUPS, "gone", None])), draw(st.sampled_from([IPV4, IPV6]))
        direction = draw(st.sampled_from(["ingress", "egress"]))
        values = {"ethertype": ethertype, "direction": direction, "remote_group_id": remote}
        return SecurityGroupRule(id=f"{number}", security_group_id=group_id, **values)

    return {
        key: SecurityGroup(id=key, name=key, rules=[rule(key, n) for n in range(draw(st.integers(0, 3)))])
        for key in GROUPS
    }


def with_members(known: dict[str, SecurityGroup], found: dict[str, dict[str, set[str]]]) -> dict[str, SecurityGroup]:
    return {
        key: msgspec.structs.replace(
            group,
            members_by_network={name: NetworkMembers(members=sorted(texts)) for name, texts in found[key].items()},
        )
        for key, group in known.items()
    }


def loaded(text: str) -> list[dict[str, Any]]:
    command = ["unshare", "--net", "sh", "-c", _LOAD]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr + text
    found: list[dict[str, Any]] = json.loads(result.stdout)["nftables"]
    return found


def admitted(found: list[dict[str, Any]], vif: VIF) -> list[tuple[str, str, Any]]:
    """Return direction, IP version and remote addresses of each rule of an interface's groups; None: all addresses."""
    sets = {item["set"]["name"]: set(item["set"].get("elem", [])) for item in found if "set" in item}
    rules: dict[str, list[Any]] = {}
    for item in found:
        if "rule" in item:
            rules.setdefault(item["rule"]["chain"], []).append(item["rule"]["expr"])
    ways = []
    for direction, start in (("ingress", "in"), ("egress", "out")):
        port = rules[f"port_{start}_{nft.identifier(vif.id)}"]
        jumps = [expression[-1]["jump"]["target"] for expression in port if "jump" in expression[-1]]
        for match in (expression[0]["match"] for chain in jumps for expression in rules.get(chain, [])):
            if "payload" in match["left"]:  # nft leaves the version out, since the address has one
                version = {"ip": "ipv4", "ip6": "ipv6"}[match["left"]["payload"]["protocol"]]
                ways.append((direction, version, sets[match["right"].removeprefix("@")]))
            else:
                ways.append((direction, match["right"], None))
    return ways


def model(vif: VIF, filters: PortFilters) -> list[tuple[str, str, Any]]:
    """Return the same: members on the network itself, and on networks that a router connects it with."""
    ways = []
    for direction in ("ingress", "egress"):
        for group_id in GROUPS:
            for rule in filters.groups[group_id].rules:
                if rule.direction != direction or rule.remote_group_id == "gone":
                    continue
                version = 4 if rule.ethertype == IPV4 else 6
                reached = {vif.network.id}
                for router in filters.routers or []:
                    ids = {item.id for item in router.networks if router.only.get(item.id) in (None, version)}
                    reached |= ids if vif.network.id in ids else set()
                named = None
                if rule.remote_group_id is not None:
                    lists = filters.groups[rule.remote_group_id].members_by_network or {}
                    texts = {text for key, item in lists.items() if key in reached for text in item.members}
                    named = {text for text in texts if (":" in text) == (version == 6)}
                ways.append((direction, rule.ethertype.lower(), named))
    return ways


@settings(max_examples=40, deadline=None)
@given(topologies(), groups(), *[st.fixed_dictionaries(dict.fromkeys(GROUPS, members))] * 2)
def test_sets_equal_a_model_before_and_after_a_change_of_members(
    routers: list[HostRouter],
    known: dict[str, SecurityGroup],
    first: dict[str, dict[str, set[str]]],
    then: dict[str, dict[str, set[str]]],
) -> None:
    vifs = [
        VIF(id=f"port-{number}", mac_address=f"fa:16:3e:00:00:0{number}", address="10.0.0.2", network=network)
        for number, network in enumerate(NETWORKS)
    ]
    ports = {vif.id: [vif] for vif in vifs}
    before, after = (
        PortFilters(groups=with_members(known, found), instances=dict.fromkeys(ports, GROUPS), routers=routers)
        for found in (first, then)
    )
    text, changes = ruleset("t", ports, before), member_changes("t", ports, before, after)
    assert changes is not None
    for filters, found in ((before, loaded(text)), (after, loaded(text + changes))):
        for vif in vifs:
            assert admitted(found, vif) == model(vif, filters)
