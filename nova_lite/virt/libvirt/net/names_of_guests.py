"""Names of guests in DNS: files from which dnsmasq answers the guests of a network, and its settings of domains.

The guests of a router's networks know each other's names if all these networks belong to one project. Names of a
project never reach a network of another one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping

from nova_lite.base import files
from nova_lite.objects import HostRouter, Network
from nova_lite.objects.security_group import NetworkMembers

_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,126}")
#: Address, name, and domain of a guest.
_MEMBER = re.compile(r"([0-9a-f.:]{2,45}) ([A-Za-z0-9_.-]{1,255}) ([A-Za-z0-9_.-]{0,255})")


def domain_of(network: Network, default: str) -> str:
    """Return the domain of a network, without a dot at its end. ``default``: of networks without one."""
    own = network.dns_domain.strip(".")
    return own if _NAME.fullmatch(own) else default.strip(".")


def options(network: Network, default: str) -> list[str]:
    """Return dnsmasq's DHCP options by which guests look for names in their domain."""
    domain = domain_of(network, default)
    return [f"option:domain-name,{domain}", f"option6:domain-search,{domain}"]


def servers(default: str) -> list[str]:
    """Return the lines by which dnsmasq asks no other server for names of the cloud's own domain.

    A network's own domain may have further names, which others publish.
    """
    return [f"server=/{default.strip('.')}/"]


def texts(names: Mapping[str, NetworkMembers], routers: Iterable[HostRouter], default: str) -> dict[str, str]:
    """Return, by network, its file in the format of /etc/hosts. A list that has not come whole is left out."""
    names = {network_id: item for network_id, item in names.items() if item.base is None}
    together: dict[str, tuple[str, ...]] = {}
    for router in routers:
        if len({network.project_id for network in router.networks}) == 1:
            connected = tuple(network.id for network in router.networks)
            together |= dict.fromkeys(connected, connected)
    made: dict[tuple[str, ...], str] = {}
    found = {}
    for network_id in names:
        connected = together.get(network_id, (network_id,))
        if connected not in made:
            members = (text for other in connected if other in names for text in names[other].members)
            made[connected] = "".join(_line(text, default) for text in members)
        found[network_id] = made[connected]
    return found


def _line(member: str, default: str) -> str:
    """Return the line of an address; nothing if it is not valid. The first name is that of the address."""
    found = _MEMBER.fullmatch(member)
    if found is None:
        return ""
    address, name, domain = found.groups()
    full = name[:-1] if name.endswith(".") else f"{name}.{(domain or default).strip('.')}"
    return f"{address} {full} {name.partition('.')[0] if name.endswith('.') else name}\n"


def write(path: str, text: str, host: str) -> bool:
    """Write a file of names, if it changes. Return whether it did."""
    content = text.encode()
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        if file.read() == content:
            return False
    files.write_atomically(path, content, durable=False, mode=0o644, writer=host)
    return True
