"""Names in DNS: checks of ``dns_name`` and ``dns_domain`` in Neutron's words, and names of ports by address."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from nova_lite.api.network import fields
from nova_lite.base import exceptions
from nova_lite.objects import FloatingIp, Port
from nova_lite.objects.instance import version_of

MAX_NAME = 255
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")


def _name(value: Any, attribute: str) -> str:
    """Return a name in lower case. It may be empty, and end with a dot."""
    name = fields.text(value, attribute).lower()
    if name and (why := _problem(name.removesuffix("."))):
        raise fields.invalid(attribute, f"Reason: '{name[:64]}' not a valid PQDN or FQDN. Reason: {why}")
    return name


def _problem(name: str) -> str | None:
    labels = name.split(".")
    for label in labels:
        if not label:
            return "Encountered an empty component"
        if label.startswith("-") or label.endswith("-"):
            return f"Name '{label[:64]}' must not start or end with a hyphen"
        if not _LABEL.fullmatch(label):
            return (
                f"Name '{label[:64]}' must be 1-63 characters long, each of which can only be alphanumeric or a hyphen"
            )
    return f"TLD '{labels[-1]}' must not be all numeric" if len(labels) > 1 and labels[-1].isdecimal() else None


def _domain(value: Any, attribute: str) -> str:
    name = _name(value, attribute)
    if name and not name.endswith("."):
        raise fields.invalid(attribute, f"Reason: '{name[:64]}' is not a FQDN")
    return name


Name: TypeAlias = Annotated[str, fields.checked(_name, maxLength=MAX_NAME)]
Domain: TypeAlias = Annotated[str, fields.checked(_domain, maxLength=MAX_NAME)]


def check_port_name(name: str, domain: str) -> None:
    """Check the name of a port. ``domain``: ``[network] dns_domain``, in which a name with a dot at its end has to be.

    Raises a 400.
    """
    of_cloud = f"{domain.strip('.')}."
    if name.endswith(".") and not name.endswith(f".{of_cloud}"):
        why = f"Its higher level labels must be equal to the dns_domain option, that has been set to '{of_cloud}'."
        raise fields.invalid("dns_name", f"Reason: The dns_name passed is a FQDN. {why}")
    if name and not name.endswith(".") and len(f"{name}.{of_cloud}") > MAX_NAME:
        why = f"With the dns_domain option '{of_cloud}' its length exceeds the maximum size of '{MAX_NAME}'"
        raise fields.invalid("dns_name", f"Reason: The dns_name passed is a PQDN. {why}")


def check_floating(name: str, domain: str) -> None:
    """Check that a floating address has both a name and a domain, or neither. Raises a 400."""
    for one, other, has_one, has_other in (
        ("dns_domain", "dns_name", domain, name),
        ("dns_name", "dns_domain", name, domain),
    ):
        if has_one and not has_other:
            raise exceptions.ValidationError(detail=f"{one} cannot be specified without a {other}")


def take_unchanged(changes: dict[str, Any], floating_ip: FloatingIp) -> None:
    """Take the name of a floating address out of ``changes``. Raises a 400 if it would change, as in Neutron."""
    for attribute, now in (("dns_name", floating_ip.dns_name), ("dns_domain", floating_ip.dns_domain)):
        if changes.pop(attribute, now) != now:
            raise exceptions.ValidationError(detail=f"Cannot update read-only attribute {attribute}")


def name_of(port: Port) -> str:
    """Return the name of a port: its own, or the host name of its server."""
    return port.dns_name or port.hostname.partition(".")[0].lower()


def addresses(port: Port) -> list[tuple[int, str]]:
    """Return the addresses of a port with their IP versions."""
    first = [(4, port.address), (6, port.address6 or "")]
    return [pair for pair in first if pair[1]] + [(version_of(text), text) for text in port.further or ()]


def assignment(port: Port, domain: str) -> list[dict[str, str]]:
    """Return the name of each address of a port. ``domain``: of networks without one."""
    found, name = [], name_of(port)
    own = (port.dns_domain or port.network_domain or domain).strip(".")
    for _, address in addresses(port):
        host = name or "host-" + re.sub("[.:]", "-", address)
        fqdn = host if host.endswith(".") else f"{host}.{own}." if own else f"{host}."
        found.append({"ip_address": address, "hostname": host, "fqdn": fqdn})
    return found
