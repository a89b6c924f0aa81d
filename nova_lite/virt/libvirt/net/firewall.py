"""Access of guests to this host, and to link-local addresses around it: one nftables table per network.

libvirt's own rules let guests out and replies in, but do not protect the host. Here the whole host is blocked except
DHCP, DNS, ping, the operator's ports, and the metadata service. 169.254.169.254 is redirected to an address of the API.
The machine may itself use a metadata service of an outer cloud at that address; guests do not reach it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable

from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.objects import Network
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import bridge_name

LOG = logging.getLogger(__name__)

#: The address where guests look for the service, and the link-local range, which may matter to this machine itself.
METADATA_ADDRESS, METADATA_PORT = "169.254.169.254", 80
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")


class Firewall:
    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._metadata: tuple[str, int] | None = None
        if conf.network.metadata_service:
            self._metadata = conf.api.metadata_listen, conf.api.metadata_listen_port
        self._host_ports: list[int] = conf.network.host_ports
        self._works = False

    def prepare(self) -> None:
        """Check the options. Raises `ConfigurationError` if guests are to reach a metadata service, and cannot."""
        error = nft.run("list tables\n")
        self._works = not error
        if error and self._metadata is not None:
            raise exceptions.ConfigurationError(reason=f"[network] metadata_service: {error}")
        if error:
            LOG.warning("Guests can reach services of this host, and link-local addresses: %s", error)
        if self._metadata is not None:
            address = _checked(self._metadata[0])
            if address in LINK_LOCAL:
                images.run("ip", "address", "replace", f"{address}/32", "dev", "lo", "scope", "host")

    def serves(self, network: Network) -> bool:
        """Check whether guests there reach the metadata service. Without a gateway they have no route to its
        address."""
        return self._metadata is not None and network.gateway is not None

    def rules(self, networks: Iterable[Network]) -> str:
        """Return the nft commands that replace the tables of these networks. Raises `VirtDriverError`."""
        if not self._works:
            return ""
        try:
            return "".join(ruleset(network, self._metadata, self._host_ports) for network in networks)
        except ValueError as error:
            raise exceptions.VirtDriverError(reason=f"a network cannot be filtered: {error}") from error

    def rules_of_valid(self, networks: Iterable[Network]) -> str:
        """Return the nft commands like `rules`, without networks that are invalid, which are logged."""

        def rules(network: Network) -> str:
            return ruleset(network, self._metadata, self._host_ports)

        return "".join(nft.usable("network", networks, rules, lambda network: network.id)) if self._works else ""


def _checked(text: str) -> ipaddress.IPv4Address:
    try:
        address = ip.parse4(text)
    except ValueError:
        address = ipaddress.IPv4Address(0)
    if address.is_loopback or address.is_unspecified or text == METADATA_ADDRESS:
        raise exceptions.ConfigurationError(
            reason=f"[network] metadata_service: guests cannot reach [api] metadata_listen = {text}. It has to be "
            f"an IPv4 address of this machine, or one of {LINK_LOCAL}, such as 169.254.87.75, that it is then given "
            f"({METADATA_ADDRESS} may be its own cloud's)."
        )
    return address


def table_name(network: Network) -> str:
    return nft.table("nova_lite_", network.id)


def ruleset(network: Network, metadata: tuple[str, int] | None, host_ports: list[int]) -> str:
    """Return the nft commands that replace a table in one transaction. Raises ValueError for an invalid network."""
    table, bridge = f"inet {table_name(network)}", nft.interface(bridge_name(network))
    to_host = ["udp dport { 53, 67 } accept", "tcp dport 53 accept", "meta l4proto { icmp, ipv6-icmp } accept"]
    if host_ports:
        to_host.append(f"tcp dport {{ {', '.join(map(str, sorted(host_ports)))} }} accept")
    leads, only_led = "", ""
    if metadata is not None:
        text, port = metadata
        address = nft.address(ip.parse4(text))
        leads = f"iifname {bridge} ip daddr {METADATA_ADDRESS} tcp dport {METADATA_PORT} dnat ip to {address}:{port:d}"
        to_host.append(f"ip daddr {address} tcp dport {port:d} ct status dnat accept")
        if ip.parse4(text) in LINK_LOCAL:
            only_led = f'iifname != "lo" ip daddr {address} ct status ! dnat drop'
    lines = "\n    ".join(to_host)
    return f"""
add table {table}
delete table {table}
table {table} {{
  comment "bridge {bridge_name(network)}"
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {leads}
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    {only_led}
    iifname != {bridge} accept
    ct state established,related accept
    {lines}
    reject
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname {bridge} ip daddr {LINK_LOCAL} reject
  }}
}}
"""
