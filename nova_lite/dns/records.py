"""Checks of names and records. They raise `ValidationError`, which is a 400."""

from __future__ import annotations

import re

import dns.exception
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from nova_lite.base import exceptions
from nova_lite.dns.objects import TYPES, RecordSet, Zone

MAX_NAME = 255
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}")
#: The part of a record that names another machine, by type.
_TARGETS = {"CNAME": "target", "MX": "exchange", "NS": "target", "PTR": "target", "SRV": "target"}


def check_name(name: str, wildcard: bool = False) -> None:
    """Check a name in lower case, with a dot at its end. ``wildcard``: its first label may be ``*``."""
    labels = name.removesuffix(".").split(".")
    first = labels[1:] if wildcard and labels[0] == "*" else labels
    if not name.endswith(".") or len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in first):
        raise exceptions.ValidationError(detail=f"'{name[:64]}' is not a valid name: use labels, and a dot at the end.")


def check_zone(name: str) -> None:
    check_name(name)
    if name.count(".") < 2:
        raise exceptions.ValidationError(detail=f"More than one label is required in the name '{name}' of a zone.")


def check_email(email: str) -> None:
    if not _EMAIL.fullmatch(email):
        raise exceptions.ValidationError(detail=f"'{email[:64]}' is not an e-mail address.")


def check_in_zone(recordset: RecordSet, zone: Zone) -> None:
    """Check name and type of a new record set."""
    name, kind = recordset.name, recordset.type
    check_name(name, wildcard=True)
    if kind not in TYPES:
        raise exceptions.ValidationError(detail=f"'{kind[:16]}' is not one of {', '.join(TYPES)}.")
    if name != zone.name and not name.endswith(f".{zone.name}"):
        raise exceptions.ValidationError(detail=f"RecordSet {name} is not contained within its parent zone {zone.name}")
    if kind == "SOA":
        raise exceptions.ValidationError(detail="SOA recordsets cannot be managed: the zone has one.")
    if name == zone.name and kind in ("CNAME", "NS"):
        raise exceptions.ValidationError(detail=f"{kind} recordsets may not be created at the zone apex.")


def check_records(kind: str, records: list[str]) -> None:
    """Check the records of a set of this type."""
    if not records or len(set(records)) < len(records):
        raise exceptions.ValidationError(detail="A record set has records, and each of them once.")
    if kind == "CNAME" and len(records) > 1:
        raise exceptions.ValidationError(detail="A CNAME record set has one record.")
    for text in records:
        check_record(kind, text)


def check_record(kind: str, text: str) -> None:
    try:
        parsed = dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.from_text(kind), text)
    except (dns.exception.DNSException, ValueError) as error:
        raise exceptions.ValidationError(detail=f"'{text[:64]}' is not a valid {kind} record: {error}") from error
    target = getattr(parsed, _TARGETS[kind]) if kind in _TARGETS else None
    if target is not None and not target.is_absolute():
        raise exceptions.ValidationError(detail=f"The name in the {kind} record '{text[:64]}' needs a dot at its end.")


def soa(zone: Zone, name_servers: list[str]) -> str:
    """Return the SOA record of a zone. The name server that has it keeps its own."""
    first = name_servers[0] if name_servers else zone.name
    user, _, host = zone.email.partition("@")
    mail = user.replace(".", "\\.")
    return f"{first} {mail}.{host}. {zone.serial} 3600 600 86400 {min(zone.ttl, 3600)}"
