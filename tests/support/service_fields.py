"""Fields of OpenStack's services that their requests may have, with values that differ from the defaults."""

from __future__ import annotations

from typing import Any

_ID = "1f3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f02"
_TEXTS = {"name": "another", "description": "other"}
_PROVIDER = {"provider:network_type": "vlan", "provider:physical_network": "one", "provider:segmentation_id": 7}
_NETWORK = {
    **_TEXTS, **_PROVIDER, "is_default": True, "dns_domain": "example.org.", "segments": [_PROVIDER], "mtu": 1400,
    "admin_state_up": False, "shared": True, "qos_policy_id": _ID, "vlan_transparent": True, "port_security_enabled":
    False, "project_default": True, "pvlan": True,
}  # fmt: skip
_SUBNET = {
    **_TEXTS, "dns_nameservers": ["9.9.9.9"], "enable_dhcp": False, "segment_id": _ID,
    "service_types": ["compute:nova"],
    "host_routes": [{"destination": "10.70.0.0/16", "nexthop": "10.66.0.9"}], "dns_publish_fixed_ip": True,
    "gateway_ip": None, "leak_routes": True,
}  # fmt: skip
_PAIR = {"mac_address": "fa:16:3e:00:00:09", "ip_address": "10.65.0.97"}
_PORT = {
    **_TEXTS, "dns_name": "one", "dns_domain": "example.org.", "extra_dhcp_opts": [{"opt_name": "mtu",
    "opt_value": "1400", "ip_version": 4}], "device_id": "other",
    "device_owner": "octavia:health", "admin_state_up": False,
    "numa_affinity_policy": "required", "port_security_enabled": False, "trusted": True, "hints": {"one": {}},
    "binding:vnic_type": "direct", "binding:host_id": "host1", "binding:profile": {"key": "value"},
    "qos_policy_id": _ID, "propagate_uplink_status": True, "pvlan_type": "isolated", "pvlan_community": "one",
    "data_plane_status": "DOWN", "security_groups": [], "allowed_address_pairs": [_PAIR],
}  # fmt: skip
_ROUTER = {
    **_TEXTS, "distributed": True, "ha": True, "admin_state_up": False, "enable_ndp_proxy": True,
    "enable_default_route_bfd": True, "enable_default_route_ecmp": True, "external_gateways": [{"network_id": _ID}],
}  # fmt: skip
_FLOATING = {"description": "other", "qos_policy_id": _ID, "distributed": True, "router_id": _ID}
_SUBNET_POOL = {
    **_TEXTS, "default_quota": 2, "default_prefixlen": 25, "min_prefixlen": 17, "max_prefixlen": 27, "is_default": True,
}  # fmt: skip
_VOLUME = {"name": "other", "display_name": "other", "description": "other", "display_description": "other"}
#: Attributes that the services' own references accept, with a value that is not the default.
FIELDS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("network", "POST", "/networks"): {
        **_NETWORK, "availability_zone_hints": ["nova"], "ha": True, "qinq": True, "tags": ["red"],
    },
    ("network", "PUT", "/networks/{id}"): _NETWORK,
    ("network", "POST", "/subnets"): {
        **_SUBNET, "use_default_subnetpool": True, "subnetpool_id": _ID, "prefixlen": 26, "ipv6_ra_mode": "slaac",
        "ipv6_address_mode": "slaac", "tags": ["red"],
    },
    # The type is refused, as later ports of other owners would get no address.
    ("network", "PUT", "/subnets/{id}"): {**_SUBNET, "service_types": ["of nobody"]},
    ("network", "POST", "/ports"): {
        **_PORT, "device_profile": "one", "hardware_offload_type": "switchdev", "tags": ["red"],
        "mac_address": "fa:16:3e:00:00:07",
    },
    ("network", "PUT", "/ports/{id}"): _PORT,
    ("network", "POST", "/routers"): {
        **_ROUTER, "availability_zone_hints": ["nova"], "flavor_id": _ID, "service_type_id": _ID, "evpn_vni": 7,
        "tags": ["red"], "routes": [{"destination": "10.70.0.0/16", "nexthop": "10.65.0.9"}],
    },
    ("network", "PUT", "/routers/{id}"): _ROUTER,
    ("network", "POST", "/trunks"): {**_TEXTS, "admin_state_up": False},
    ("network", "PUT", "/trunks/{id}"): {**_TEXTS, "admin_state_up": False},
    ("network", "POST", "/floatingips"): {
        **_FLOATING, "dns_name": "one", "dns_domain": "example.org.", "tags": ["red"],
        "floating_ip_address": "172.24.9.40",
    },
    ("network", "PUT", "/floatingips/{id}"): _FLOATING,
    ("network", "POST", "/floatingips/{floatingip_id}/port_forwardings"): {"description": "other"},
    ("network", "PUT", "/floatingips/{floatingip_id}/port_forwardings/{id}"): {"description": "other"},
    ("network", "POST", "/security-groups"): {**_TEXTS, "stateful": False, "tags": ["red"]},
    ("network", "PUT", "/security-groups/{id}"): {**_TEXTS, "stateful": False},
    ("network", "POST", "/security-group-rules"): {"description": "other", "normalized_cidr": "10.0.0.0/8"},
    ("network", "POST", "/subnetpools"): {**_SUBNET_POOL, "shared": True, "tags": ["red"]},
    ("network", "PUT", "/subnetpools/{id}"): _SUBNET_POOL,
    ("network", "POST", "/address-scopes"): {"name": "other", "shared": True, "ip_version": 6},
    ("network", "POST", "/address-groups"): {**_TEXTS, "addresses": ["10.71.0.0/16"]},
    ("network", "PUT", "/address-groups/{id}"): _TEXTS,
    ("network", "POST", "/qos/policies"): {**_TEXTS, "shared": True, "is_default": True, "tags": ["red"]},
    ("network", "PUT", "/qos/policies/{id}"): {**_TEXTS, "shared": True, "is_default": True},
    ("volume", "POST", "/volumes"): {
        **_VOLUME, "metadata": {"key": "other"}, "size": 2, "availability_zone": "other", "multiattach": "true",
        "consistencygroup_id": _ID, "group_id": _ID, "volume_type": "other",
    },
    ("volume", "PUT", "/volumes/{id}"): {**_VOLUME, "metadata": {"key": "other"}},
    ("volume", "POST", "/snapshots"): {**_TEXTS, "metadata": {"key": "other"}},
    ("volume", "PUT", "/snapshots/{id}"): _VOLUME,
    ("volume", "POST", "/backups"): {
        "container": "other", "incremental": True, "snapshot_id": _ID, "availability_zone": "other",
    },
    ("volume", "PUT", "/backups/{id}"): {},
    ("volume", "POST", "/types"): {**_TEXTS, "os-volume-type-access:is_public": False, "extra_specs": {"a": "b"}},
    ("volume", "PUT", "/types/{id}"): {"description": "other", "is_public": True},
    ("identity", "POST", "/v3/projects"): {**_TEXTS, "enabled": False, "tags": ["red"], "options": {"immutable": True}},
    ("identity", "PATCH", "/v3/projects/{id}"): {**_TEXTS, "enabled": False, "options": {"immutable": True}},
    ("identity", "POST", "/v3/users"): {
        **_TEXTS, "email": "one@example.org", "enabled": False, "options": {"lock_password": True},
    },
    ("identity", "PATCH", "/v3/users/{id}"): {"description": "other", "email": "one@example.org"},
    ("identity", "POST", "/v3/groups"): _TEXTS,
    ("identity", "PATCH", "/v3/groups/{id}"): _TEXTS,
    ("identity", "POST", "/v3/domains"): {**_TEXTS, "enabled": False, "tags": ["red"], "options": {"immutable": True}},
    ("identity", "PATCH", "/v3/domains/{id}"): {**_TEXTS, "tags": ["red"], "options": {"immutable": True}},
    ("identity", "POST", "/v3/roles"): {**_TEXTS, "options": {"immutable": True}},
    ("identity", "PATCH", "/v3/roles/{id}"): {**_TEXTS, "options": {"immutable": True}},
    ("identity", "POST", "/v3/services"): {**_TEXTS, "enabled": False},
    ("identity", "PATCH", "/v3/services/{id}"): {**_TEXTS, "enabled": False},
    ("identity", "POST", "/v3/endpoints"): {**_TEXTS, "enabled": False},
    ("identity", "PATCH", "/v3/endpoints/{id}"): {"enabled": False, "description": "other"},
    ("identity", "POST", "/v3/regions"): {"description": "other", "parent_region_id": "one"},
    ("identity", "PATCH", "/v3/regions/{id}"): {"description": "other"},
    ("identity", "POST", "/v3/policies"): {"blob": "[]"},
    ("identity", "POST", "/v3/OS-EP-FILTER/endpoint_groups"): _TEXTS,
    ("image", "POST", "/images"): {
        "id": _ID, "name": "other", "disk_format": "qcow2", "container_format": "ami", "visibility": "public",
        "min_disk": 2, "min_ram": 2, "tags": ["red"], "owner": "other", "protected": True, "os_hidden": True,
    },
    ("image", "POST", "/metadefs/namespaces"): {"display_name": "other", "visibility": "private", "protected": True},
}  # fmt: skip
