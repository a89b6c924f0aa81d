"""Requests at the limits of every type, derived from the APIs' route tables, so that new routes are covered.

Each request is a good one of its route, with one extreme value: in a variable of the URL, a query parameter, a header,
or any place of the body.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from nova_lite.api.http import microversions
from nova_lite.api.http.router import extension_classes
from nova_lite.api.network import tags
from tests.support import requests_of_routes as routes

_UUID = "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"

#: Texts that a database, a parser or a converter may refuse, although they pass as texts.
CORE_TEXTS = (
    "", "\0", "a\0b", "\udcff", "\ud800", "\ufffe", "\U0001f600" * 60, "a" * 255, "a" * 256, "\n", "\\", "'", "%",
    "%2F", "0", "-1", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 30,
    "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", _UUID,
)  # fmt: skip
#: More texts, for parsers of our own.
TEXTS = (
    *CORE_TEXTS, " ", "a" * 1025, "\u202e", "\u00e9" * 255, "../../etc/passwd", "9" * 5000, "-9223372036854775809",
    "1e400", "NaN", "Infinity", "-0", "+1", " 1", "1_000", "0x10", "\u00b2", "\u0663", "true", "null", "[", "(" * 250,
    "a{99999999999}", "(?P<a", "fe80::1%lo", "fe80::/64", "::/0", "0.0.0.0/0", "10.0.0.0/-1", "1.2.3.4/99999999999",
    "::", "255.255.255.255", "01:00:5e:00:00:01", "{" + _UUID + "}", "urn:uuid:" + _UUID, _UUID.replace("-", ""),
    "0000-00-00T00:00:00Z", "0001-01-01", "10000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00+99:99",
    "2026-W01-1", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "gt:9999-12-31T23:59:59-14:00",
    "lte:0001-01-01T00:00:00+14:00", "in:\"", "in:" + "a" * 140000, "name:desc:asc", "name,", ":", "=", "a=b", "{",
    "{}", "{'a': 1}", "[" * 2000, "data:;base64,", "AAAA", "/dev/../vda", "/dev/" + "v" * 300,
)  # fmt: skip
CORE_NUMBERS = (0, -1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**31) - 1, -(2**63) - 1, 1.5, 1e308)
OTHERS = (None, True, [], {}, [None], [[]], [{}], {"": ""}, [1], ["a"], {"a": {"b": {"c": []}}})
#: JSON that other programs cannot read, or only with trouble.
RAW = (
    b"1e400", b"-1e400", b"NaN", b"Infinity", b"1" + b"0" * 400, b"1" + b"0" * 5000, b"-0", b"1E-400",
    b"[" * 90000, b"[" * 200 + b"]" * 200, b"[" * 2000 + b"]" * 2000, b'{"a":' * 600 + b"1" + b"}" * 600,
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', b'{"a": 1, "a": 2}',
)  # fmt: skip
#: Whole bodies.
RAW_BODIES = (
    *RAW, b"", b" ", b"\0", b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"{", b"[]", b"0", b'""', b"null", b"true", b"{}",
    b'{"": null}', b'{"\\ud800": {}}', b'{"\\u0000": {}}', b"a=b", b"[" + b"{}," * 30000 + b"{}]",
)  # fmt: skip

#: Values of headers, as a server passes them to the application. Any header may have any bytes.
HEADERS = {
    "HTTP_OPENSTACK_API_VERSION": (
        "",
        "compute",
        "compute 2",
        "compute 2.",
        "compute 2.99999999999",
        "volume 3.9999999999",
        "volume 3.\u00b2",
        "compute -1.1",
        "compute 2.\xb2",
        "\xff",
        "," * 5000,
        "compute " + "9" * 5000,
        "compute 2.1\0",
    ),
    "HTTP_X_OPENSTACK_NOVA_API_VERSION": ("", "2." + "9" * 5000, "\xff", "2.\xb2"),
    "CONTENT_TYPE": (
        "",
        "\xff",
        "application/json; charset=utf-16",
        "application/json; charset=\xff",
        "a" * 5000,
        ";",
        "/",
        "application/json; charset=nobody",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
    ),
    "HTTP_X_AUTH_TOKEN": ("", "\xff", "\xc3\xa9", "a" * 70000, "=", "gAAAA", "gAAAAA==", "\0"),
    "HTTP_X_SUBJECT_TOKEN": ("", "\xff", "\xc3\xa9", "a" * 70000, "=", "gAAAA", "\0"),
    "HTTP_ACCEPT": ("\xff", "", ",;q=9999999999999999999", "a" * 5000),
    "HTTP_HOST": ("", "\xff", "[", "[::1", "a:99999999", "a" * 5000, "a b", "\0", "[fe80::1%lo]:1"),
    "HTTP_X_FORWARDED_FOR": ("", "\xff", "," * 99, "::1%lo"),
    "HTTP_X_INSTANCE_ID": ("", "\xff", "\0", "a" * 5000),
    "HTTP_IDEMPOTENCY_KEY": ("", "\xff", "\0", "a" * 70000),
    "HTTP_RANGE": ("bytes=", "bytes=-1", "bytes=99999999999999999999-", "bytes=0-9999999999999999999999", "\xff"),
    "HTTP_IF_MODIFIED_SINCE": ("Fri, 31 Dec 9999 23:59:59 -1400", "Mon, 01 Jan 0001 00:00:00 +1400", "\xff"),
    "HTTP_IF_NONE_MATCH": ("\xff", '"', "*"),
    "HTTP_COOKIE": ("\xff", "=" * 5000),
    "HTTP_ORIGIN": ("\xff", "null", "http://[", "a" * 5000),
}

#: Resources of Cinder that the volume API lists as empty.
ABSENT_OF_VOLUMES = (
    "cgsnapshots",
    "clusters",
    "consistencygroups",
    "group_snapshots",
    "group_types",
    "groups",
    "manageable_snapshots",
    "manageable_volumes",
    "messages",
)

#: Complete bodies of the services that declare no schemas. A test reports a route without one.
BODIES: dict[tuple[str, str, str], Any] = {
    ("identity", "POST", "/v3/projects"): {
        "project": {"name": "new", "description": "text", "enabled": True, "domain_id": "default"}
    },
    ("identity", "PATCH", "/v3/projects/{id}"): {
        "project": {"name": "demo", "description": "text", "enabled": True, "tags": ["red"], "parent_id": "default"}
    },
    ("identity", "PUT", "/v3/projects/{id}/tags"): {"tags": ["red", "blue"]},
    ("identity", "PUT", "/v3/projects/{id}/tags/{tag}"): None,
    ("identity", "PUT", "/v3/regions/{id}"): {"region": {"description": "text", "color": "red"}},
    ("identity", "POST", "/v3/users"): {
        "user": {"name": "new", "password": "word", "default_project_id": "{project}", "enabled": True}
    },
    ("identity", "PATCH", "/v3/users/{id}"): {
        "user": {"name": "admin", "default_project_id": "{project}", "enabled": True, "domain_id": "default"}
    },
    ("identity", "POST", "/v3/users/{id}/password"): {"user": {"password": "word", "original_password": "wrong"}},
    ("identity", "POST", "/v3/groups"): {"group": {"name": "new", "description": "text", "domain_id": "default"}},
    ("identity", "PATCH", "/v3/groups/{id}"): {"group": {"name": "new", "description": "text"}},
    ("identity", "PUT", "/v3/groups/{group_id}/users/{user_id}"): None,
    ("identity", "POST", "/v3/domains"): {"domain": {"name": "new", "description": "text", "enabled": True}},
    ("identity", "PATCH", "/v3/domains/{id}"): {"domain": {"name": "new", "description": "text", "enabled": True}},
    ("identity", "PUT", "/v3/domains/{domain_id}/users/{user_id}/roles/{role}"): None,
    **{
        ("identity", "PUT", f"/v3/OS-INHERIT/{target}/{holder}/roles/{{role}}/inherited_to_projects"): None
        for target in ("projects/{project_id}", "domains/{domain_id}")
        for holder in ("users/{user_id}", "groups/{group_id}")
    },
    ("identity", "PUT", "/v3/system/users/{user_id}/roles/{role}"): None,
    ("identity", "PUT", "/v3/system/groups/{group_id}/roles/{role}"): None,
    ("identity", "POST", "/v3/roles"): {
        "role": {"name": "new", "description": "text", "domain_id": "default", "color": "red"}
    },
    ("identity", "PATCH", "/v3/roles/{id}"): {"role": {"name": "new", "description": "text"}},
    ("identity", "PUT", "/v3/roles/{id}/implies/{implied_id}"): None,
    ("identity", "PUT", "/v3/domains/{domain_id}/groups/{group_id}/roles/{role}"): None,
    ("identity", "PUT", "/v3/projects/{project_id}/groups/{group_id}/roles/{role}"): None,
    ("identity", "POST", "/v3/OS-TRUST/trusts"): {
        "trust": {
            "trustor_user_id": "{own_user}", "trustee_user_id": "{user}", "project_id": "{own_project}",
            "impersonation": True, "roles": [{"name": "member"}], "expires_at": "2090-01-01T00:00:00Z",
            "remaining_uses": 2,
        }
    },
    **{
        ("identity", method, "/v3/OS-FEDERATION/identity_providers/{idp_id}"): {
            "identity_provider": {
                "enabled": True, "description": "text", "remote_ids": ["https://id.example.org"],
                "authorization_ttl": 5,
            }
        }
        for method in ("PUT", "PATCH")
    },
    **{
        ("identity", method, "/v3/OS-FEDERATION/identity_providers/{idp_id}/protocols/{protocol_id}"): {
            "protocol": {"mapping_id": "one", "remote_id_attribute": "OIDC-iss"}
        }
        for method in ("PUT", "PATCH")
    },
    ("identity", "POST", "/v3/OS-FEDERATION/identity_providers/{idp_id}/protocols/{protocol_id}/auth"): None,
    **{
        ("identity", method, "/v3/OS-FEDERATION/mappings/{mapping_id}"): {
            "mapping": {
                "schema_version": "1.0",
                "rules": [
                    {
                        "local": [
                            {"user": {"id": "{0}", "name": "{1}", "email": "{1}", "type": "ephemeral"}},
                            {"group": {"name": "one", "domain": {"id": "default"}}},
                            {"groups": "{1}", "domain": {"name": "Default"}},
                            {"projects": [{"name": "one", "roles": [{"name": "member"}]}]},
                        ],
                        "remote": [
                            {"type": "OIDC-sub"},
                            {"type": "OIDC-groups", "regex": True, "whitelist": ["one"]},
                            {"type": "OIDC-iss", "any_one_of": ["https://id.example.org"]},
                        ],
                    }
                ],
            }
        }
        for method in ("PUT", "PATCH")
    },
    ("identity", "POST", "/v3/services"): {
        "service": {"type": "new", "name": "new", "description": "text", "enabled": True}
    },
    ("identity", "PATCH", "/v3/services/{id}"): {"service": {"type": "new", "name": "new", "enabled": True}},
    ("identity", "POST", "/v3/endpoints"): {
        "endpoint": {
            "service_id": "{catalog_service}", "interface": "public", "url": "http://cloud/v1/%(project_id)s",
            "region_id": "RegionOne", "enabled": True,
        }
    },
    ("identity", "PATCH", "/v3/endpoints/{id}"): {"endpoint": {"url": "http://cloud/v1", "region": "RegionOne"}},
    ("identity", "POST", "/v3/regions"): {
        "region": {"id": "new", "description": "text", "parent_region_id": "RegionOne"}
    },
    ("identity", "PATCH", "/v3/regions/{id}"): {"region": {"description": "text", "parent_region_id": "RegionOne"}},
    ("identity", "POST", "/v3/users/{user_id}/application_credentials"): {
        "application_credential": {
            "name": "new", "description": "text", "secret": "word", "expires_at": "2090-01-01T00:00:00Z",
            "roles": [{"name": "member"}], "unrestricted": False,
            "access_rules": [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}],
        }
    },
    ("identity", "POST", "/v3/users/{user_id}/credentials/OS-EC2"): {"tenant_id": "{own_project}"},
    ("identity", "POST", "/v3/s3tokens"): {
        "credentials": {"access": "{ec2_credential}", "signature": "c2lnbmF0dXJl", "token": "dGV4dA=="}
    },
    ("identity", "POST", "/v3/registered_limits"): {
        "registered_limits": [
            {
                "service_id": "{catalog_service}",
                "region_id": None,
                "resource_name": "pictures",
                "default_limit": 5,
                "description": "text",
            }
        ]
    },
    ("identity", "PATCH", "/v3/registered_limits/{id}"): {
        "registered_limit": {"default_limit": 6, "resource_name": "things", "description": "text"}
    },
    ("identity", "POST", "/v3/limits"): {
        "limits": [
            {
                "service_id": "{catalog_service}",
                "region_id": None,
                "project_id": "{project}",
                "resource_name": "things",
                "resource_limit": 5,
                "description": "text",
            }
        ]
    },
    ("identity", "PATCH", "/v3/limits/{id}"): {"limit": {"resource_limit": 6, "description": "text"}},
    ("identity", "POST", "/v3/policies"): {"policy": {"type": "application/json", "blob": "{}", "color": "red"}},
    ("identity", "PATCH", "/v3/policies/{id}"): {"policy": {"type": "application/json", "blob": "{}"}},
    ("identity", "PUT", "/v3/domains/{id}/config"): {
        "config": {"identity": {"driver": "ldap"}, "ldap": {"url": "ldap://cloud", "page_size": 5}}
    },
    ("identity", "PATCH", "/v3/domains/{id}/config"): {"config": {"ldap": {"url": "ldap://cloud"}}},
    ("identity", "PATCH", "/v3/domains/{id}/config/{group}"): {"config": {"ldap": {"url": "ldap://cloud"}}},
    ("identity", "PATCH", "/v3/domains/{id}/config/{group}/{option}"): {"config": {"url": "ldap://cloud"}},
    ("identity", "POST", "/v3/OS-EP-FILTER/endpoint_groups"): {
        "endpoint_group": {"name": "new", "description": "text", "filters": {"interface": "public"}}
    },
    ("identity", "PATCH", "/v3/OS-EP-FILTER/endpoint_groups/{id}"): {
        "endpoint_group": {"name": "new", "filters": {"service_id": "{catalog_service}"}}
    },
    ("identity", "PUT", "/v3/OS-EP-FILTER/endpoint_groups/{id}/projects/{project_id}"): None,
    ("identity", "PUT", "/v3/OS-EP-FILTER/projects/{project_id}/endpoints/{endpoint_id}"): None,
    ("identity", "POST", "/v3/ec2tokens"): {
        "ec2Credentials": {
            "access": "{ec2_credential}", "signature": "guess", "host": "heat:8000", "verb": "GET", "path": "/v1",
            "params": {"Action": "ListStacks", "SignatureVersion": "2", "Timestamp": "2026-01-01T00:00:00Z"},
            "headers": {"Host": "heat:8000", "X-Amz-Date": "20260101T000000Z", "Authorization": "AWS4-HMAC-SHA256 x"},
            "body_hash": "x",
        }
    },
    ("identity", "POST", "/v3/credentials"): {
        "credential": {
            "type": "totp", "blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "user_id": "{own_user}",
            "project_id": "{own_project}",
        }
    },
    ("identity", "PATCH", "/v3/credentials/{id}"): {
        "credential": {"type": "totp", "blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "user_id": "{own_user}"}
    },
    ("identity", "PUT", "/v3/projects/{project_id}/users/{user_id}/roles/{role}"): None,
    ("identity", "POST", "/v3/auth/tokens"): {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": "nobody", "password": "word", "domain": {"id": "default", "name": "x"}}},
            },
            "scope": {"project": {"id": "x", "name": "demo", "domain": {"id": "default"}}},
        }
    },
    ("image", "POST", "/images"): {
        "id": _UUID, "name": "new", "disk_format": "raw", "container_format": "bare", "visibility": "private",
        "min_disk": 1, "min_ram": 1, "tags": ["tag"], "owner": "demo", "protected": False, "os_hidden": False,
        "key": "value",
    },
    ("image", "POST", "/images/{id}/actions/deactivate"): None,
    ("image", "POST", "/images/{id}/actions/reactivate"): None,
    ("image", "POST", "/images/{id}/import"): {
        "method": {"name": "glance-direct", "uri": "http://cloud/one"}, "stores": ["local"], "all_stores": False,
    },
    ("image", "PATCH", "/images/{id}"): [{"op": "add", "path": "/key", "value": "text"}],
    ("image", "PUT", "/images/{id}/tags/{tag}"): None,
    ("image", "POST", "/images/{id}/members"): {"member": "{project}"},
    ("image", "PUT", "/images/{id}/members/{member_id}"): {"status": "accepted"},
    ("image", "POST", "/metadefs/namespaces"): {
        "namespace": "new", "display_name": "text", "description": "text", "visibility": "public", "protected": False,
        "owner": "demo", "tags": [{"name": "tag"}], "resource_type_associations": [{"name": "OS::Nova::Flavor"}],
        "objects": [{"name": "one"}], "properties": {"one": {"title": "text", "type": "string"}},
    },
    ("image", "PUT", "/metadefs/namespaces/{namespace}"): {
        "namespace": "one", "display_name": "text", "description": "text", "visibility": "private", "protected": False,
        "owner": "demo",
    },
    ("image", "POST", "/metadefs/namespaces/{namespace}/objects"): {
        "name": "new", "description": "text", "required": ["one"],
        "properties": {"one": {"title": "text", "type": "string", "default": "text"}},
    },
    ("image", "PUT", "/metadefs/namespaces/{namespace}/objects/{key}"): {"name": "key", "description": "text"},
    ("image", "POST", "/metadefs/namespaces/{namespace}/properties"): {
        "name": "new", "title": "text", "type": "string", "description": "text", "enum": ["text"], "minimum": 1,
    },
    ("image", "PUT", "/metadefs/namespaces/{namespace}/properties/{key}"): {
        "name": "key", "title": "text", "type": "string",
    },
    ("image", "POST", "/metadefs/namespaces/{namespace}/tags"): {"tags": [{"name": "key"}]},
    ("image", "POST", "/metadefs/namespaces/{namespace}/tags/{key}"): None,
    ("image", "PUT", "/metadefs/namespaces/{namespace}/tags/{key}"): {"name": "key"},
    ("image", "POST", "/metadefs/namespaces/{namespace}/resource_types"): {
        "name": "OS::Nova::Server", "prefix": "text", "properties_target": "text",
    },
    ("volume", "POST", "/volumes"): {
        "volume": {
            "size": 1, "name": "new", "description": "text", "volume_type": "local", "availability_zone": "nova",
            "metadata": {"key": "value"}, "imageRef": None, "snapshot_id": None, "source_volid": None,
            "multiattach": False, "consistencygroup_id": None, "backup_id": None,
        }
    },
    ("volume", "PUT", "/volumes/{id}"): {
        "volume": {"name": "one", "description": "text", "metadata": {"key": "value"}}
    },
    ("volume", "POST", "/volumes/{id}/action"): {"os-set_bootable": {"bootable": True}},
    ("volume", "POST", "/volumes/{id}/metadata"): {"metadata": {"key": "value"}},
    ("volume", "PUT", "/volumes/{id}/metadata"): {"metadata": {"key": "value"}},
    ("volume", "POST", "/snapshots"): {
        "snapshot": {
            "volume_id": "{volume}", "name": "new", "description": "text", "metadata": {"key": "value"}, "force": False,
        }
    },
    ("volume", "PUT", "/snapshots/{id}"): {"snapshot": {"name": "one", "description": "text"}},
    ("volume", "POST", "/snapshots/{id}/action"): {"os-reset_status": {"status": "available"}},
    ("volume", "POST", "/snapshots/{id}/metadata"): {"metadata": {"key": "value"}},
    ("volume", "PUT", "/snapshots/{id}/metadata"): {"metadata": {"key": "value"}},
    ("volume", "PUT", "/snapshots/{id}/metadata/{key}"): {"meta": {"key": "value"}},
    ("volume", "PUT", "/volumes/{id}/metadata/{key}"): {"meta": {"key": "value"}},
    ("volume", "POST", "/os-volume-transfer"): {
        "transfer": {"volume_id": "{volume}", "name": "new", "no_snapshots": False}
    },
    ("volume", "POST", "/os-volume-transfer/{id}/accept"): {"accept": {"auth_key": "0123456789abcdef"}},
    ("volume", "POST", "/types"): {
        "volume_type": {
            "name": "new", "description": "text", "os-volume-type-access:is_public": True,
            "extra_specs": {"key": "value"},
        }
    },
    ("volume", "PUT", "/types/{id}"): {"volume_type": {"name": "one", "description": "text", "is_public": True}},
    ("volume", "POST", "/types/{id}/action"): {"addProjectAccess": {"project": "{project}"}},
    ("volume", "POST", "/types/{id}/extra_specs"): {"extra_specs": {"key": "value"}},
    ("volume", "PUT", "/types/{id}/extra_specs/{key}"): {"key": "value"},
    ("volume", "POST", "/volume-transfers"): {
        "transfer": {"volume_id": "{volume}", "name": "new", "no_snapshots": False}
    },
    ("volume", "POST", "/volume-transfers/{id}/accept"): {"accept": {"auth_key": "0123456789abcdef"}},
    ("volume", "POST", "/attachments"): {
        "attachment": {
            "volume_uuid": "{volume}", "instance_uuid": "{server}", "mode": "rw",
            "connector": {"host": "host1", "mountpoint": "/dev/vdb"},
        }
    },
    ("volume", "PUT", "/attachments/{id}"): {"attachment": {"connector": {"host": "host1", "mountpoint": "/dev/vdb"}}},
    ("volume", "POST", "/attachments/{id}/action"): {"os-complete": {}},
    ("volume", "POST", "/backups"): {
        "backup": {
            "volume_id": "{volume}", "name": "new", "description": "text", "metadata": {"key": "value"},
            "snapshot_id": None, "incremental": False, "force": False,
        }
    },
    ("volume", "PUT", "/backups/{id}"): {
        "backup": {"name": "one", "description": "text", "metadata": {"key": "value"}}
    },
    ("volume", "POST", "/backups/{id}/restore"): {"restore": {"name": "new", "volume_id": None}},
    ("volume", "POST", "/backups/{id}/action"): {"os-reset_status": {"status": "available"}},
    ("volume", "POST", "/backups/import_record"): {
        "backup-record": {"backup_service": "cinder.backup.drivers.nova_lite.LocalBackups", "backup_url": "e30="}
    },
    ("volume", "POST", "/qos-specs"): {"qos_specs": {"name": "new", "consumer": "both", "key": "value"}},
    ("volume", "PUT", "/qos-specs/{id}"): {"qos_specs": {"consumer": "both", "key": "value"}},
    ("volume", "PUT", "/qos-specs/{id}/delete_keys"): {"keys": ["key"]},
    ("volume", "POST", "/types/{id}/encryption"): {
        "encryption": {"provider": "luks", "control_location": "front-end", "cipher": "aes", "key_size": 256}
    },
    ("volume", "PUT", "/types/{id}/encryption/{key}"): {
        "encryption": {"provider": "luks", "control_location": "front-end", "cipher": "aes", "key_size": 256}
    },
    ("volume", "PUT", "/default-types/{project_id}"): {"default_type": {"volume_type": "local"}},
    **{
        ("volume", "PUT", f"/os-services/{name}"): {
            "host": "host1", "binary": "cinder-volume", "disabled_reason": "text"
        }
        for name in ("enable", "disable", "disable-log-reason", "freeze", "thaw", "failover_host", "failover")
    },
    ("volume", "PUT", "/os-quota-class-sets/{name}"): {"quota_class_set": {"volumes": 10, "backups": 10}},
    ("volume", "PUT", "/os-quota-sets/{id}"): {"quota_set": {"volumes": 10, "snapshots": 10, "gigabytes": 1000}},
    **{("volume", "PUT", f"/{name}/{{id}}"): {"name": "one"} for name in ABSENT_OF_VOLUMES},
    ("network", "POST", "/networks"): {
        "network": {
            "name": "new", "description": "text", "mtu": 1500, "shared": False, "project_id": "{project}",
            "admin_state_up": True, "tags": ["blue"],
        }
    },
    ("network", "PUT", "/networks/{id}"): {"network": {"name": "one", "description": "text", "mtu": 1500}},
    ("network", "POST", "/subnets"): {
        "subnet": {
            "name": "new", "description": "text", "network_id": "{network}", "cidr": "10.66.0.0/24", "ip_version": 4,
            "gateway_ip": "10.66.0.1", "allocation_pools": [{"start": "10.66.0.2", "end": "10.66.0.9"}],
            "dns_nameservers": ["10.66.0.1"], "enable_dhcp": True, "host_routes": [],
        }
    },
    ("network", "PUT", "/subnets/{id}"): {
        "subnet": {
            "name": "one", "description": "text", "gateway_ip": "10.65.0.1", "enable_dhcp": True,
            "allocation_pools": [{"start": "10.65.0.2", "end": "10.65.0.254"}], "dns_nameservers": ["9.9.9.9"],
            "host_routes": [{"destination": "10.70.0.0/16", "nexthop": "10.65.0.9"}],
        }
    },
    ("network", "POST", "/ports"): {
        "port": {
            "name": "new", "description": "text", "network_id": "{network}", "project_id": "{project}",
            "fixed_ips": [{"subnet_id": "{subnet}", "ip_address": "10.65.0.99"}], "mac_address": "fa:16:3e:00:00:01",
            "security_groups": ["{security_group}"], "device_id": "", "device_owner": "", "binding:host_id": "",
            "port_security_enabled": True,
            "allowed_address_pairs": [{"ip_address": "10.65.0.98", "mac_address": "fa:16:3e:00:00:02"}],
            "admin_state_up": True,
        }
    },
    ("network", "PUT", "/ports/{id}"): {"port": {"name": "one", "description": "text", "security_groups": []}},
    ("network", "POST", "/security-groups"): {
        "security_group": {"name": "new", "description": "text", "tags": ["blue"]}
    },
    ("network", "PUT", "/security-groups/{id}"): {"security_group": {"name": "one", "description": "text"}},
    ("network", "POST", "/security-group-rules"): {
        "security_group_rule": {
            "security_group_id": "{security_group}", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
            "port_range_min": 1, "port_range_max": 2, "remote_ip_prefix": "10.0.0.0/8", "remote_group_id": None,
            "remote_address_group_id": None, "tags": ["blue"],
            "description": "text",
        }
    },
    ("network", "POST", "/floatingips"): {
        "floatingip": {
            "floating_network_id": "{pool}", "floating_ip_address": None, "port_id": None, "fixed_ip_address": None,
            "description": "text", "project_id": "{project}", "subnet_id": "{subnet_of_pool}", "tags": ["blue"],
        }
    },
    ("network", "PUT", "/floatingips/{id}"): {
        "floatingip": {"port_id": None, "fixed_ip_address": None, "description": "text"}
    },
    ("network", "POST", "/floatingips/{floatingip_id}/port_forwardings"): {
        "port_forwarding": {
            "internal_port_id": "{forwarded_port}", "internal_ip_address": None, "protocol": "tcp", "internal_port": 80,
            "internal_port_range": None, "external_port": 8080, "external_port_range": None, "description": "text",
            "project_id": "{project}",
        }
    },
    ("network", "PUT", "/floatingips/{floatingip_id}/port_forwardings/{id}"): {
        "port_forwarding": {
            "internal_port_id": "{forwarded_port}", "internal_ip_address": None, "protocol": "udp",
            "internal_port": None, "internal_port_range": "80:81", "external_port": None,
            "external_port_range": "90:91", "description": "text",
        }
    },
    ("network", "POST", "/routers"): {
        "router": {
            "name": "new", "description": "text", "project_id": "{project}", "admin_state_up": True,
            "external_gateway_info": {"network_id": "{pool}", "enable_snat": True, "external_fixed_ips": []},
        }
    },
    ("network", "PUT", "/routers/{id}"): {
        "router": {"name": "one", "description": "text", "external_gateway_info": None, "routes": []}
    },
    ("network", "PUT", "/routers/{id}/add_extraroutes"): {
        "router": {"routes": [{"destination": "10.70.0.0/16", "nexthop": "10.65.0.9"}]}
    },
    ("network", "PUT", "/routers/{id}/remove_extraroutes"): {
        "router": {"routes": [{"destination": "10.70.0.0/16", "nexthop": "10.65.0.9"}]}
    },
    ("network", "PUT", "/routers/{id}/add_router_interface"): {"subnet_id": "{subnet}"},
    ("network", "PUT", "/routers/{id}/remove_router_interface"): {"subnet_id": "{subnet}"},
    ("network", "POST", "/trunks"): {
        "trunk": {
            "name": "new", "description": "text", "project_id": "{project}", "admin_state_up": True,
            "port_id": "{free_parent}", "sub_ports": [],
        }
    },
    ("network", "PUT", "/trunks/{id}"): {"trunk": {"name": "one", "description": "text", "admin_state_up": True}},
    ("network", "PUT", "/trunks/{id}/add_subports"): {
        "sub_ports": [{"port_id": "{free_subport}", "segmentation_type": "vlan", "segmentation_id": 3}]
    },
    ("network", "PUT", "/trunks/{id}/remove_subports"): {"sub_ports": [{"port_id": "{subport}"}]},
    **{
        ("network", method, f"/{name}/{{id}}/tags"): {"tags": ["blue", "green"]}
        for name in tags.KINDS
        for method in ("POST", "PUT")
    },
    **{("network", "PUT", f"/{name}/{{id}}/tags/{{tag}}"): None for name in tags.KINDS},
    ("network", "POST", "/subnetpools"): {
        "subnetpool": {
            "name": "new", "description": "text", "prefixes": ["10.66.0.0/16"], "min_prefixlen": 16,
            "max_prefixlen": 28, "default_prefixlen": 24, "default_quota": 1, "is_default": False, "shared": False,
            "address_scope_id": "{address_scope}", "tags": ["blue"], "project_id": "{project}",
        }
    },
    ("network", "PUT", "/subnetpools/{id}"): {
        "subnetpool": {
            "name": "one", "description": "text", "prefixes": ["10.67.0.0/16"], "min_prefixlen": 16,
            "max_prefixlen": 28, "default_prefixlen": 24, "default_quota": None, "address_scope_id": None,
        }
    },
    ("network", "PUT", "/subnetpools/{id}/add_prefixes"): {"prefixes": ["10.68.0.0/16"]},
    ("network", "PUT", "/subnetpools/{id}/remove_prefixes"): {"prefixes": ["10.67.255.0/24"]},
    ("network", "POST", "/address-scopes"): {
        "address_scope": {"name": "new", "ip_version": 4, "shared": False, "project_id": "{project}"}
    },
    ("network", "PUT", "/address-scopes/{id}"): {"address_scope": {"name": "one", "shared": True}},
    ("network", "POST", "/address-groups"): {
        "address_group": {
            "name": "new", "description": "text", "addresses": ["10.66.0.0/16"], "project_id": "{project}",
        }
    },
    ("network", "PUT", "/address-groups/{id}"): {"address_group": {"name": "one", "description": "text"}},
    ("network", "PUT", "/address-groups/{id}/add_addresses"): {"addresses": ["10.68.0.0/16"]},
    ("network", "PUT", "/address-groups/{id}/remove_addresses"): {"addresses": ["10.0.0.0/8"]},
    ("network", "POST", "/rbac-policies"): {
        "rbac_policy": {
            "object_type": "network", "object_id": "{network}", "action": "access_as_shared", "target_tenant": "*",
        }
    },
    ("network", "PUT", "/rbac-policies/{id}"): {"rbac_policy": {"target_tenant": "other"}},
    ("network", "POST", "/qos/policies"): {
        "policy": {
            "name": "new", "description": "text", "is_default": False, "shared": False, "project_id": "{project}",
            "tags": ["blue"],
        }
    },
    ("network", "PUT", "/qos/policies/{id}"): {
        "policy": {"name": "one", "description": "text", "is_default": False, "shared": False}
    },
    ("network", "POST", "/qos/policies/{policy_id}/bandwidth_limit_rules"): {
        "bandwidth_limit_rule": {"max_kbps": 1000, "max_burst_kbps": 100, "direction": "ingress"}
    },
    ("network", "PUT", "/qos/policies/{policy_id}/bandwidth_limit_rules/{id}"): {
        "bandwidth_limit_rule": {"max_kbps": 1000, "max_burst_kbps": 100, "direction": "egress"}
    },
    ("network", "POST", "/qos/policies/{policy_id}/dscp_marking_rules"): {"dscp_marking_rule": {"dscp_mark": 8}},
    ("network", "PUT", "/qos/policies/{policy_id}/dscp_marking_rules/{id}"): {"dscp_marking_rule": {"dscp_mark": 8}},
    ("network", "PUT", "/quotas/{project_id}"): {
        "quota": {
            "network": -1, "subnet": -1, "port": -1, "floatingip": -1, "security_group": -1, "security_group_rule": -1,
            "subnetpool": -1, "rbac_policy": -1, "check_limit": False,
        }
    },
}  # fmt: skip
#: More bodies beside those in `BODIES`: further actions, and lists of resources to create.
ACTIONS: dict[tuple[str, str, str], list[Any]] = {
    ("volume", "POST", "/volumes/{id}/action"): [
        {"os-extend": {"new_size": 2}},
        {"os-reset_status": {"status": "available"}},
        {"os-nothing": None},
    ],
    **{
        ("network", "POST", path): [{f"{key}s": [one, one]} for key, one in BODIES["network", "POST", path].items()]
        for path in ("/networks", "/ports", "/routers", "/security-groups", "/security-group-rules")
    },
    ("network", "POST", "/subnets"): [
        {"subnets": [BODIES["network", "POST", "/subnets"]["subnet"]] * 2},
        {
            "subnet": {
                "network_id": "{network}",
                "cidr": "fd40:1::/64",
                "ip_version": 6,
                "ipv6_ra_mode": "slaac",
                "ipv6_address_mode": "slaac",
                "gateway_ip": "fd40:1::1",
                "allocation_pools": [{"start": "fd40:1::2", "end": "fd40:1::9"}],
            }
        },
    ],
}
#: Query parameters of the services, which declare none, besides the attributes of their resources.
QUERY = (
    "limit", "marker", "offset", "sort", "sort_key", "sort_dir", "name", "id", "status", "all_tenants", "project_id",
    "metadata", "bootable", "volume_id", "visibility", "tag", "size_min", "size_max", "created_at", "updated_at",
    "owner", "min_disk", "os_hidden", "protected", "enabled", "domain_id", "user.id", "role.id", "scope.project.id",
    "include_names", "usage", "page_reverse", "fields", "fixed_ips", "router:external", "member_status", "nobodys",
    "nocatalog", "display_name", "type", "user_id",
)  # fmt: skip

#: Whole query strings.
QUERIES = (
    "%ff=%ff",
    "%ff",
    "&",
    "=",
    "&&&=&",
    "a=%",
    "a=%zz",
    "limit=1;limit=2",
    "a=%00",
    "name=%ed%a0%80",
    "&" * 9999,
)

#: Kinds of resources that `tests.support.requests_of_routes` does not name, by the segment before the variable.
KINDS = {
    "os-aggregates": "aggregate",
    "os-services": "service",
    "os-hypervisors": "hypervisor",
    "os-hosts": "host",
    "security-groups": "security_group",
}
#: The same, of the identity API.
IDENTITY_KINDS = {
    "services": "catalog_service",
    "endpoints": "catalog_endpoint",
    "regions": "catalog_region",
    "implies": "other_role",
}
#: The same, of the Placement API.
PLACEMENT_KINDS = {
    "resource_providers": "hypervisor",
    "inventories": "resource_class",
    "resource_classes": "resource_class",
    "traits": "trait",
    "registered_limits": "registered_limit",
}
#: Kinds of resources in bodies of the compute API, by the name of the field.
REAL = {
    "imageRef": "active_image", "flavorRef": "public_flavor", "volumeId": "volume", "volume_id": "volume",
    "port_id": "own_port", "net_id": "network", "group_id": "security_group", "parent_group_id": "security_group",
    "server_uuid": "server", "tenant_id": "project", "networkId": "network", "host": "host", "public_key": "public_key",
}  # fmt: skip


class Request(NamedTuple):
    """``body``: bytes, or a value for JSON. ``headers``: of the WSGI environment."""

    service: str
    method: str
    path: str
    body: Any = None
    version: str = "2.96"
    headers: Mapping[str, str] | None = None
    what: str = ""

    def __str__(self) -> str:
        return f"{self.service} {self.method} {self.path[:150]} {self.version} [{self.what}] {repr(self.body)[:200]}"


class Extremes:
    """The requests about ``things``, ids of resources by kind. With ``core``, only values that databases judge.

    ``most``: number of values for each place, chosen at random by ``seed``; None: all of them.
    """

    def __init__(
        self, things: Mapping[str, list[str]], core: bool = False, most: int | None = None, seed: int = 0
    ) -> None:
        self.things = things
        self._most = most
        self._random = random.Random(seed)
        self.texts: Sequence[str] = CORE_TEXTS if core else TEXTS
        self.values: Sequence[Any] = (*self.texts, *CORE_NUMBERS, *(() if core else OTHERS))
        self.raw: Sequence[bytes] = RAW[:1] if core else RAW
        self.raw_bodies: Sequence[bytes] = () if core else RAW_BODIES
        self.headers: Mapping[str, Sequence[str]] = {} if core else HEADERS

    def __iter__(self) -> Iterator[Request]:
        for row in routes.rows():
            if not row.unserved:
                yield from self._of_route(row)
        yield from self._queries()
        yield from self._headers()
        yield from self._metadata()

    def good(self) -> Iterator[Request]:
        """Yield the requests without extreme values, of routes that are served."""
        for row in routes.rows():
            if not row.unserved and row.method != "DELETE":
                for body in self._bodies(row):
                    yield Request(row.service, row.method, self._path(row), body, f"2.{row.version or 96}")

    # --- parts

    def _some(self, values: Sequence[Any]) -> Sequence[Any]:
        if self._most is None or len(values) <= self._most:
            return values
        return self._random.sample(values, self._most)

    def _of_route(self, row: routes.Row) -> Iterator[Request]:
        version, bodies = f"2.{row.version or 96}", self._bodies(row)
        for name in routes.VARIABLE.findall(row.path):
            for text in self._some(self.texts):
                what = f"{name}={text[:40]!r}"
                yield Request(row.service, row.method, self._path(row, name, text), bodies[0], version, what=what)
        if row.method == "DELETE":
            return
        for body in bodies:
            for changed, what in self._changed(body, row.schema):
                yield Request(row.service, row.method, self._path(row), changed, version, what=what)
        if row.method in ("POST", "PUT", "PATCH"):
            for raw in self._some(self.raw_bodies):
                yield Request(row.service, row.method, self._path(row), raw, version, what=repr(raw[:40]))

    def _bodies(self, row: routes.Row) -> list[Any]:
        key = row.service, row.method, row.path
        if row.service == "compute":
            return [self._real(body) for body in row.bodies]
        if key in BODIES:
            return [self._filled(BODIES[key]), *(self._filled(item) for item in ACTIONS.get(key, ()))]
        return [None]

    def _real(self, body: Any) -> Any:
        """Return the body with ids of resources that exist, so that it is refused for nothing else."""
        if isinstance(body, list):
            return [self._real(item) for item in body]
        if not isinstance(body, dict):
            return body
        real = {name: self.things[kind][0] for name, kind in REAL.items() if kind in self.things}
        return {
            name: real[name] if name in real and not isinstance(value, dict) else self._real(value)
            for name, value in body.items()
        }

    def _filled(self, body: Any) -> Any:
        text = json.dumps(body)
        for kind, values in self.things.items():
            text = text.replace(f'"{{{kind}}}"', json.dumps(values[0]))
        return json.loads(text)

    def _path(self, row: routes.Row, changed: str = "", text: str = "") -> str:
        path = row.path
        for name in routes.VARIABLE.findall(row.path):
            before = path.split("{" + name + "}")[0].rstrip("/").rpartition("/")[2]
            own = {"compute": KINDS, "identity": IDENTITY_KINDS, "placement": PLACEMENT_KINDS}
            kind = own.get(row.service, {}).get(before)
            kind = kind or routes.kind_of(row.path, name)
            value = text if name == changed else self.things.get(kind or "", ["1"])[0]
            path = path.replace("{" + name + "}", quoted(value))
        return path

    def _changed(self, body: Any, schema: Any) -> Iterator[tuple[Any, str]]:
        """Yield the body with an extreme value at each place, which the body or the schema has."""
        for place in dict.fromkeys((*places(body), *places_of_schema(schema))):
            if not place:
                continue
            what = ".".join(map(str, place))
            for value in self._some(self.values):
                if (changed := put(body, schema, place, value)) is not None:
                    yield changed, f"{what}={repr(value)[:40]}"
            for raw in self._some(self.raw)[:4]:
                if (changed := put(body, schema, place, "@raw@")) is not None:
                    yield json.dumps(changed).encode().replace(b'"@raw@"', raw), f"{what}={raw[:40]!r}"

    def _queries(self) -> Iterator[Request]:
        for service, path, version, names in self._lists():
            asked = f"2.{version or 96}"
            for name in names:
                for text in self._some(self.texts):
                    query = f"{quoted(name)}={quoted(text)}"
                    yield Request(service, "GET", f"{path}?{query}", version=asked, what=f"{name}={text[:40]!r}")
                twice = f"{path}?{quoted(name)}=a&{quoted(name)}=&{quoted(name)}"
                yield Request(service, "GET", twice, version=asked, what=f"{name} thrice")
            for text in self._some(self.texts):
                query = f"{path}?{quoted(text)}={quoted(text)}"
                yield Request(service, "GET", query, version=asked, what=f"{text[:40]!r}")
            for query in self._some(QUERIES):
                yield Request(service, "GET", f"{path}?{query}", version=asked, what=query[:40])

    def _lists(self) -> Iterator[tuple[str, str, int | None, Iterable[str]]]:
        """Yield service, path, version and query parameters of each GET."""
        for extension in extension_classes():
            for route in extension.routes:
                declared = route.declaration(extension)
                if route.method == "GET" and declared.query is not None:
                    version = min(route.until or routes.LATEST, routes.LATEST)
                    query = declared.query.at(microversions.Version(2, version))
                    path = self._path(routes.Row("compute", "GET", route.path, version, []))
                    yield "compute", path, version, sorted(query.get("properties", {}))
        unserved = {(row.service, row.path) for row in routes.rows() if row.unserved}
        for service, path, _, names in routes.every_list():
            if service not in ("compute", "page") and (service, path) not in unserved:
                yield service, path, None, sorted({*names, *QUERY})

    def _headers(self) -> Iterator[Request]:
        paths = (("compute", "/servers"), ("image", "/images"), ("volume", "/volumes"), ("network", "/networks"))
        identity, metadata = (("identity", "/v3/auth/tokens"),), (("metadata", "/openstack"), ("metadata", "/latest"))
        for (service, path), (name, values) in itertools.product((*paths, *identity, *metadata), self.headers.items()):
            for value in self._some(values):
                for method, body in (("GET", None), ("POST", {}), ("HEAD", None), ("OPTIONS", None), ("\xff", None)):
                    yield Request(service, method, path, body, headers={name: value}, what=f"{name}: {value[:40]!r}")

    def _metadata(self) -> Iterator[Request]:
        for text in self.texts:
            for before in ("/", "/latest/", "/latest/meta-data/", "/openstack/", "/openstack/latest/", "/ec2/"):
                yield Request("metadata", "GET", before + quoted(text), what=repr(text[:40]))
            password = text.encode("utf-8", "surrogatepass")
            yield Request("metadata", "POST", "/openstack/latest/password", password, what=repr(text[:40]))


def quoted(text: str) -> str:
    """Quote a text for a URL. Lone surrogates become bytes that are no UTF-8."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each place in a JSON value."""
    yield before
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*before, key))


def places_of_schema(schema: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each place that a schema knows. Items of arrays are the item 0."""
    yield before
    if not isinstance(schema, dict):
        return
    for name, item in schema.get("properties", {}).items():
        yield from places_of_schema(item, (*before, name))
    for item in schema.get("patternProperties", {}).values():
        yield from places_of_schema(item, (*before, routes.KEY))
    if "items" in schema:
        yield from places_of_schema(schema["items"], (*before, 0))
    for alternative in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from itertools.islice(places_of_schema(alternative, before), 1, None)


def put(body: Any, schema: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return the body with the value at a place, and what is missing on the way there. None if that is impossible."""
    changed = copy.deepcopy(body)
    if changed is None:
        changed = {}
    node = changed
    for key, following in itertools.pairwise(place):
        schema = _part(schema, key)
        missing = [] if following == 0 and isinstance(following, int) else {}
        if isinstance(node, list):
            if not node:
                node.append(missing)
            elif not isinstance(node[0], (dict, list)):
                node[0] = missing
            node = node[0]
            continue
        if not isinstance(node.get(key), type(missing)):
            made = routes.least(schema) if schema else missing
            node[key] = made if isinstance(made, type(missing)) else missing
        node = node[key]
    last = place[-1]
    if isinstance(node, list):
        node[:1] = [value]
    elif isinstance(node, dict):
        node[last] = value
    else:
        return None
    return changed


def _part(schema: Any, key: Any) -> Any:
    if not isinstance(schema, dict):
        return None
    if key == 0 and "items" in schema:
        return schema["items"]
    if key in schema.get("properties", {}):
        return schema["properties"][key]
    return next(iter(schema.get("patternProperties", {}).values()), None)
