"""DHCP options of ports: their names, which are those of dnsmasq, and the values that each may have (RFC 2132).

`words` makes the line of dnsmasq's file from parsed values only. So no text of a user has a meaning there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from nova_lite.base import ip

#: Number of options of a port.
MAX_OPTIONS = 32
#: Bytes of an option of DHCPv4, and of each text here.
MAX_BYTES = 255

#: Printable characters of a text. dnsmasq reads quotes and backslashes otherwise.
_TEXT = re.compile(r"[ !#-\[\]-~]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,126}")


class _Kind(NamedTuple):
    """A kind of values. ``words``: makes dnsmasq's words of a value; raises ValueError. ``may_be_empty``: the empty
    value keeps the server from sending the option.
    """

    meaning: str
    words: Callable[[str], str]
    may_be_empty: bool = False


def _each(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: ",".join(parse(item.strip()) for item in text.split(","))


def _address4(text: str) -> str:
    return str(ip.parse4(text))


def _routes(text: str) -> str:
    items = [item.strip() for item in text.split(",")]
    if len(items) % 2:
        raise ValueError
    pairs = zip(items[::2], items[1::2], strict=True)
    return ",".join(f"{ip.parse_network4(prefix)},{ip.parse4(address)}" for prefix, address in pairs)


def _name(text: str) -> str:
    if len(text) > MAX_BYTES or not _NAME.fullmatch(text):
        raise ValueError
    return text


def _text(text: str) -> str:
    if len(text) > MAX_BYTES or not _TEXT.fullmatch(text):
        raise ValueError
    return f'"{text}"'


def _number(highest: int) -> _Kind:
    def words(text: str) -> str:
        if not (text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= highest):
            raise ValueError
        return str(int(text))

    return _Kind(f"a number from 0 to {highest}", words)


_ADDRESS4 = _Kind("an IPv4 address", _address4)
_ADDRESSES4 = _Kind("IPv4 addresses with commas between them", _each(_address4))
_ROUTER = _ADDRESSES4._replace(may_be_empty=True)
_ROUTES = _Kind("pairs of an IPv4 prefix and an address, such as 10.1.0.0/16,10.0.0.9", _routes, True)
_ADDRESSES6 = _Kind("IPv6 addresses with commas between them", _each(lambda text: f"[{ip.parse6(text)}]"))
_DOMAIN = _Kind("a domain name", _name)
_DOMAINS = _Kind("domain names with commas between them", _each(_name))
_STRING = _Kind(f"a text of 1 to {MAX_BYTES} printable ASCII characters without quotes and backslashes", _text)
_FLAG, _BYTE, _SHORT, _LONG = (_number(highest) for highest in (1, 2**8 - 1, 2**16 - 1, 2**32 - 1))


class _Option(NamedTuple):
    name: str
    number: int
    kind: _Kind


def _of(kind: _Kind, **numbers: int) -> list[_Option]:
    return [_Option(name.replace("_", "-"), number, kind) for name, number in numbers.items()]


#: Options by IP version. Those by which a server and a client agree about an address are not among them.
_OPTIONS: Mapping[int, list[_Option]] = {
    4: [
        *_of(_ROUTER, router=3),
        *_of(_ROUTES, classless_static_route=121),
        *_of(_ADDRESS4, server_ip_address=255),
        *_of(_ADDRESSES4, dns_server=6, log_server=7, lpr_server=9, nis_server=41, ntp_server=42, netbios_ns=44),
        *_of(_ADDRESSES4, netbios_dd=45, x_windows_fs=48, x_windows_dm=49, mobile_ip_home=68, smtp_server=69),
        *_of(_ADDRESSES4, pop3_server=70, nntp_server=71, irc_server=74, tftp_server_address=150),
        _Option("nis+-server", 65, _ADDRESSES4),
        *_of(_DOMAIN, domain_name=15, nis_domain=40),
        _Option("nis+-domain", 64, _DOMAIN),
        *_of(_DOMAINS, domain_search=119),
        *_of(_STRING, root_path=17, extension_path=18, netbios_scope=47, tftp_server=66, bootfile_name=67),
        *_of(_STRING, posix_timezone=100, tzdb_timezone=101),
        *_of(_FLAG, ip_forward_enable=19, all_subnets_local=27, router_discovery=31, trailer_encapsulation=34),
        *_of(_FLAG, ethernet_encap=36),
        *_of(_BYTE, default_ttl=23, tcp_ttl=37, netbios_nodetype=46),
        *_of(_SHORT, boot_file_size=13, max_datagram_reassembly=22, mtu=26),
        *_of(_LONG, time_offset=2, arp_timeout=35, tcp_keepalive=38, ipv6_only=108),
    ],
    6: [
        *_of(_ADDRESSES6, sip_server=22, dns_server=23, nis_server=27, sntp_server=31, ntp_server=56),
        _Option("nis+-server", 28, _ADDRESSES6),
        *_of(_DOMAINS, sip_server_domain=21, domain_search=24, nis_domain=29),
        _Option("nis+-domain", 30, _DOMAINS),
        *_of(_STRING, posix_timezone=41, tzdb_timezone=42, bootfile_url=59, bootfile_param=60),
        *_of(_LONG, information_refresh_time=32),
    ],
}
_BY_NAME = {
    version: {name: option for option in options for name in (option.name, str(option.number))}
    for version, options in _OPTIONS.items()
}


def names(version: int) -> list[str]:
    """Return the names of the options of an IP version."""
    return [option.name for option in _OPTIONS[version]]


def number(name: str, version: int) -> int:
    """Return the number of an option, given by its name or number. Raises ValueError for an unknown one."""
    found = _BY_NAME.get(version, {}).get(name)
    if found is None:
        raise ValueError(f"DHCP option {name[:64]!r} of IPv{version} is none of {', '.join(names(version))}")
    return found.number


def words(name: str, value: str, version: int) -> list[str]:
    """Return the lines of an option in dnsmasq's format, without a tag. Raises ValueError with what would be right."""
    number(name, version)
    option = _BY_NAME[version][name]
    if not value and option.kind.may_be_empty:
        text = ""
    else:
        try:
            text = f",{option.kind.words(value)}"
        except ValueError:
            raise ValueError(f"the value of DHCP option {option.name} must be {option.kind.meaning}") from None
    lines = [f"{'option' if version == 4 else 'option6'}:{option.name}{text}"]
    # Windows has a number of its own for routes.
    return [*lines, f"249{text}"] if option.kind is _ROUTES else lines


def merged(present: Iterable[Mapping[str, Any]], changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the options of a port after a change. One without a value is removed, and those not named stay.

    Raises ValueError for more than `MAX_OPTIONS`.
    """
    found = {(item["ip_version"], number(item["opt_name"], item["ip_version"])): {**item} for item in present}
    for item in changes:
        key = (item["ip_version"], number(item["opt_name"], item["ip_version"]))
        if item["opt_value"] is None:
            found.pop(key, None)
        else:
            found[key] = {**item}
    if len(found) > MAX_OPTIONS:
        raise ValueError(f"a port has at most {MAX_OPTIONS} DHCP options")
    return [*found.values()] or None
