"""Agents for members, and the extensions that are served."""

from __future__ import annotations

from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"


def test_member_gets_no_agents(api: Api) -> None:
    assert api.get("/agents") == {"agents": []}
    api.refused("GET", f"/agents/{NOBODY}", None, 403, "PolicyNotAuthorized", "get_agent")


def test_extensions_are_those_that_are_served(api: Api) -> None:
    known = {item["alias"] for item in api.get("/extensions")["extensions"]}
    assert known == {
        "address-group",
        "address-scope",
        "agent",
        "allowed-address-pairs",
        "availability_zone",
        "binding",
        "default-subnetpools",
        "dns-domain-ports",
        "dns-integration",
        "extra_dhcp_opt",
        "extraroute",
        "extraroute-atomic",
        "expose-port-forwarding-in-fip",
        "ext-gw-mode",
        "external-net",
        "filter-validation",
        "fip-port-details",
        "floating-ip-port-forwarding",
        "floating-ip-port-forwarding-description",
        "floating-ip-port-forwarding-detail",
        "floating-ip-port-forwarding-port-ranges",
        "net-mtu",
        "net-mtu-writable",
        "ip-substring-filtering",
        "tag",
        "network-ip-availability",
        "network_availability_zone",
        "pagination",
        "port-security",
        "project-id",
        "qos",
        "qos-bw-limit-direction",
        "qos-default",
        "qos-fip",
        "qos-port-network-policy",
        "qos-rule-type-details",
        "qos-rule-type-filter",
        "quota-check-limit",
        "quota_details",
        "quotas",
        "rbac-address-group",
        "rbac-address-scope",
        "rbac-policies",
        "rbac-security-groups",
        "rbac-subnetpool",
        "revision-if-match",
        "router",
        "security-group",
        "security-groups-normalized-cidr",
        "security-groups-remote-address-group",
        "security-groups-shared-filtering",
        "service-type",
        "sorting",
        "standard-attr-description",
        "standard-attr-revisions",
        "standard-attr-tag",
        "standard-attr-timestamp",
        "stateful-security-group",
        "subnet-service-types",
        "subnet_allocation",
        "subnetpool-prefix-ops",
        "tag-creation",
        "tag-ports-during-bulk-creation",
    }
    for alias in known:
        assert api.get(f"/extensions/{alias}")["extension"]["alias"] == alias
