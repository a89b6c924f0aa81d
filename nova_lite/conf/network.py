"""``[network]``: where addresses come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

from nova_lite.base import ip


class Range(types.String):
    """Type of an option: an IPv4 or IPv6 network without host bits."""

    def __call__(self, value: object) -> str:
        return str(ip.parse_network(super().__call__(value)))


OPTS = [
    cfg.StrOpt(
        "backend",
        default="local",
        help="Entry point in nova_lite.network.backends: local, neutron or none; fake is for tests.",
    ),
    cfg.IntOpt(
        "fixed_ips_per_project",
        default=500,
        min=-1,
        help=(
            "Conductor: number of ports on the built-in networks that a project may have: interfaces of its servers "
            "and routers, and ports of its users; -1: unlimited. A project's own quota port (fixed_ips) overrides it."
        ),
    ),
    cfg.IntOpt(
        "networks_per_project",
        default=10,
        min=-1,
        help="Conductor: number of networks that a project may create by the network API; -1: unlimited.",
    ),
    cfg.IntOpt(
        "routers_per_project",
        default=10,
        min=-1,
        help="Conductor: number of routers that a project may create by the network API; -1: unlimited.",
    ),
    cfg.ListOpt(
        "project_ranges",
        item_type=Range(),
        default=[],
        help=(
            "Conductor: IPv4 and IPv6 ranges to which members are restricted for subnets of their own networks, like "
            "10.64.0.0/10 and fd40::/10. Without any of an IP version, they may use any range: networks may have the "
            "same addresses. Set it if routers work without SNAT, or if guests must reach certain ranges outside."
        ),
    ),
    cfg.ListOpt(
        "project_vnis",
        item_type=types.String(regex=r"\d{1,8}-\d{1,8}"),
        default=[],
        help=(
            "Conductor: VNIs for networks of the network API, like 100000-109999. Each network gets a free "
            "one and spans hosts. Without any, guests of such a network meet on one host only."
        ),
    ),
    cfg.StrOpt(
        "dns_domain",
        default="openstacklocal",
        regex=r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\.?",
        help=(
            "API and compute: domain of guests on networks without a dns_domain. Hosts answer for all of it. It is the "
            "same on all machines."
        ),
    ),
    cfg.IntOpt(
        "call_timeout",
        default=30,
        min=1,
        help="Seconds after which a call to an external network service is considered over.",
    ),
    cfg.IntOpt(
        "vif_plugging_timeout",
        default=300,
        min=0,
        help=(
            "Compute: seconds for which a new guest waits, paused, until Neutron has connected its "
            "interfaces. 0: it does not wait."
        ),
    ),
    cfg.BoolOpt(
        "vif_plugging_is_fatal",
        default=True,
        help=(
            "Compute: fail a build whose interfaces were not connected in time. If false, the guest starts "
            "without them."
        ),
    ),
    cfg.BoolOpt(
        "metadata_service",
        default=False,
        help=(
            "Compute: provide the metadata API at 169.254.169.254 to guests on the networks of this host. An API with "
            "metadata among [api] enabled_apis has to run on this machine. Needs nft."
        ),
    ),
    cfg.StrOpt(
        "metadata_directory",
        default="/run/nova-lite-metadata",
        help=(
            "Directory in which compute daemons pass the sockets of their networks to the metadata API of the machine. "
            "Only root may write there, and the group of the directory is the API's. Use the same for APIs and "
            "compute. Change it if several clouds share a machine."
        ),
    ),
    cfg.BoolOpt(
        "security_groups",
        default=True,
        help=("Compute: filter guests' traffic by their security groups. Needs nft and the kernel's br_netfilter."),
    ),
    cfg.IntOpt(
        "security_group_refresh_interval",
        default=60,
        min=1,
        help=("Compute: seconds after which a host queries its filter rules again without a change notification."),
    ),
    cfg.StrOpt(
        "public_interface",
        default="lo",
        help=(
            "Compute: interface of this machine that gets the floating addresses of its guests. With lo the "
            "machine answers for them on all interfaces, but announces no address that moves between hosts."
        ),
    ),
    cfg.ListOpt(
        "host_ports",
        item_type=types.Integer(min=1, max=65535),
        default=[],
        help=("Compute: TCP ports of this host that guests may reach besides DHCP, DNS and the metadata service."),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="network")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"network": OPTS}
