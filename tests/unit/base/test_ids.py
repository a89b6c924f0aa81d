"""Ids that follow from other values. Some clients refuse a UUID of another version than 4."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from nova_lite.base.ids import derived_id
from nova_lite.objects.security_group import default_group, is_default
from nova_lite.objects.volume import default_type, is_default_type

PROJECT = Path(__file__).resolve().parents[3]
#: Modules that may derive ids by `uuid5`. Ids of identity are 32 digits, and installations store them. libvirt's uuid
#: of a network is seen by no client. The id of an IPv6 subnet is in rows.
DERIVING = {
    "base/ids.py",
    "api/identity/catalog.py",
    "api/identity/records.py",
    "virt/libvirt/net/former_networks.py",
} | {"objects/ipv6.py"}


def test_derived_id_is_a_uuid_of_version_4_and_the_same_for_the_same_text() -> None:
    namespace = uuid.uuid4()
    found = {text: derived_id(namespace, text) for text in map(str, range(100))}
    assert len(set(found.values())) == 100
    assert all((uuid.UUID(value).version, uuid.UUID(value).variant) == (4, uuid.RFC_4122) for value in found.values())
    assert derived_id(namespace, "7") == found["7"]


def test_default_group_and_type_have_ids_of_version_4_and_answer_to_them() -> None:
    group, kind = default_group("p1"), default_type("local")
    ids = [group.id, kind.id, *(rule.id for rule in group.rules)]
    assert {uuid.UUID(item).version for item in ids} == {4}
    assert is_default(group.id, "p1") and not is_default(group.id, "p2")
    assert is_default_type(kind.id, "local") and not is_default_type(kind.id, "fast")


def test_modules_derive_ids_of_version_5_only_where_no_client_reads_the_version() -> None:
    package = PROJECT / "nova_lite"
    found = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if re.search(r"\buuid[35]\(", path.read_text())
    }
    assert found == DERIVING
