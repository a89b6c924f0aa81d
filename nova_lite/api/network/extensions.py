"""Extensions of Neutron's API that this network API supports, by the aliases that clients look for."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network.resource import NetworkResource
from nova_lite.base import exceptions
from nova_lite.network.trunks import WING
from nova_lite.policies import network_service as policies

_KNOWN = {
    "address-group": ("Address group", "Prefixes that rules of security groups name together"),
    "address-scope": ("Address scope", "Sets of subnet pools whose prefixes do not overlap"),
    "agent": ("agent", "The compute hosts, each as an agent"),
    "allowed-address-pairs": ("Allowed Address Pairs", "Ports have further addresses"),
    "availability_zone": ("Availability Zone", "Those of the compute hosts"),
    "binding": ("Port Binding", "On which host a port is, for admins"),
    "default-subnetpools": ("Default Subnetpools", "Subnets get a prefix of the default pool"),
    "dns-domain-ports": ("dns_domain for ports", "Ports have a dns_domain of their own"),
    "dns-integration": ("DNS Integration", "Networks, ports and floating addresses have names in DNS"),
    "ext-gw-mode": ("Neutron L3 Configurable external gateway mode", "Gateways of routers with and without SNAT"),
    "expose-port-forwarding-in-fip": ("Expose Port Forwarding in FIP", "Floating addresses show their forwardings"),
    "external-net": ("Neutron external network", "Pools of floating addresses are external networks"),
    "filter-validation": ("Filter parameters validation", "A filter that is not known is refused"),
    "extra_dhcp_opt": ("Neutron Extra DHCP options", "Ports have DHCP options of their own"),
    "extraroute": ("Neutron Extra Route", "Routers have static routes"),
    "extraroute-atomic": ("Atomically add/remove extra routes", "Routes are added and removed one by one"),
    "fip-port-details": ("Floating IP Port Details Extension", "Floating addresses show the port they lead to"),
    "floating-ip-port-forwarding": ("Floating IP Port Forwarding", "Ports of floating addresses lead to other ports"),
    "floating-ip-port-forwarding-description": ("Floating IP Port Forwarding new attribute description", "As it says"),
    "floating-ip-port-forwarding-detail": ("Floating IP Port Forwarding detail", "Ids of forwardings and their ports"),
    "floating-ip-port-forwarding-port-ranges": ("Floating IP Port Forwarding support Port Ranges", "As it says"),
    "ip-substring-filtering": ("IP address substring filtering", "Ports are found by a part of an address"),
    "net-mtu": ("Network MTU", "Networks have an MTU"),
    "net-mtu-writable": ("Network MTU (writable)", "The MTU of a network can be changed"),
    "network_availability_zone": ("Network Availability Zone", "Networks are in all zones"),
    "network-ip-availability": (
        "Network IP Availability",
        "Addresses of networks that are in use, for admins",
    ),
    "pagination": ("Pagination support", "Lists come in pages"),
    "port-security": ("Port Security", "Ports are filtered, unless their owner turns that off"),
    "project-id": ("project_id field enabled", "Resources have the fields project_id and tenant_id"),
    "qos": ("Quality of Service", "Limits of bandwidth, and DSCP marks, of ports and networks"),
    "qos-bw-limit-direction": ("Direction for QoS bandwidth limit rule", "Limits of what a guest sends, or receives"),
    "qos-default": ("QoS default policy", "A project's new networks have its default policy"),
    "qos-fip": ("Floating IP QoS", "Limits of floating addresses"),
    "qos-port-network-policy": ("QoS port network policy", "Ports show the policy of their network"),
    "qos-rule-type-details": ("Details of QoS rule types", "Parameters of each type of rules"),
    "qos-rule-type-filter": ("QoS rule type filter", "The types that hosts enforce are all of them"),
    "quota-check-limit": ("Quota engine limit check", "A quota below the usage is refused if the request wants that"),
    "quota_details": ("Quota details management support", "Quotas show the usage"),
    "quotas": ("Quota management support", "Quotas of projects"),
    "router": ("Neutron L3 Router", "Routers, their interfaces and gateways, and floating addresses"),
    "security-group": ("security-group", "Security groups and their rules"),
    "security-groups-remote-address-group": ("Remote address group id field for security group rules", "As it says"),
    "security-groups-normalized-cidr": ("Normalized CIDR field for security group rules", "Prefixes without host bits"),
    "security-groups-shared-filtering": ("Security group filtering on the shared field", "As it says"),
    "service-type": ("Neutron Service Type Management", "The hosts of the guests provide routers"),
    "stateful-security-group": ("Stateful security group", "Groups with and without connection tracking"),
    "sorting": ("Sorting support", "Lists are sorted by any attribute"),
    "standard-attr-description": ("standard-attr-description", "Resources have a description"),
    "rbac-address-group": ("Add address_group type to RBAC", "Projects share address groups"),
    "rbac-address-scope": ("Add address_scope type to RBAC", "Projects share address scopes"),
    "rbac-policies": ("RBAC Policies", "Projects share networks with other projects"),
    "rbac-security-groups": ("Add security_group type to network RBAC", "Projects share security groups"),
    "rbac-subnetpool": ("Add subnetpool type to RBAC", "Projects share subnet pools"),
    "revision-if-match": ("If-Match constraints based on revision_number", "Changes of one revision only"),
    "standard-attr-revisions": ("standard-attr-revisions", "Resources have a number that grows with each change"),
    "standard-attr-tag": ("Tag support for resources with standard attribute", "Resources have tags"),
    "subnet-service-types": ("Subnet service types", "Ports get addresses of the subnets for their owner"),
    "subnet_allocation": ("Subnet Allocation", "Subnets get a prefix of a pool"),
    "subnetpool-prefix-ops": ("Subnet Pool Prefix Operations", "Prefixes are added to and removed from pools"),
    "tag": ("Tag support", "Networks have tags"),
    "tag-creation": ("Tag creation extension", "Several tags are added to a resource at once"),
    "tag-ports-during-bulk-creation": ("Tag Ports During Bulk Creation", "Resources have tags from their creation on"),
    "standard-attr-timestamp": ("Resource timestamps", "Resources have times of creation and of the last change"),
}

#: Extensions of clouds with the wing.
_OF_TRUNKS = {
    "trunk": ("Trunk Extension", "Servers reach networks of further ports by VLANs on an interface"),
    "trunk-details": ("Trunk port details", "Parent ports show their trunks"),
}


class Extensions(NetworkResource):
    """Extensions of Neutron's API."""

    @route("GET", "/extensions", policies.EXTENSIONS_GET, response="extensions")
    def index(self, req: ServiceRequest) -> list[dict[str, Any]]:
        return self._views()

    @route("GET", "/extensions/{alias}", policies.EXTENSIONS_GET, response="extension")
    def show(self, req: ServiceRequest, alias: str) -> dict[str, Any]:
        for extension in self._views():
            if extension["alias"] == alias:
                return extension
        raise exceptions.NotFound(f"Extension with alias {alias[:64]} does not exist")

    def _views(self) -> list[dict[str, Any]]:
        known = _KNOWN | (_OF_TRUNKS if WING in self.conf.wings else {})
        return [
            {"alias": alias, "name": name, "description": text, "updated": "2026-01-01T00:00:00-00:00", "links": []}
            for alias, (name, text) in sorted(known.items())
        ]
