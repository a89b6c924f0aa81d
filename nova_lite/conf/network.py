"""``[network]``: where addresses come from."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

OPTS = [
    cfg.StrOpt(
        "backend",
        default="local",
        help="Entry point in nova_lite.network.backends: local, neutron or none (fake is for tests).",
    ),
    cfg.IntOpt(
        "fixed_ips_per_project",
        default=100,
        min=-1,
        help="Conductor: addresses of the built-in networks that a project may have, -1 for any number. Servers with "
        "one interface are bounded by the quota of servers alone. A quota fixed_ips of the project's own goes first.",
    ),
    cfg.IntOpt(
        "networks_per_project",
        default=10,
        min=-1,
        help="Conductor: networks of its own that a project may make by the network API, -1 for any number.",
    ),
    cfg.ListOpt(
        "project_ranges",
        item_type=types.String(regex=r"\d+\.\d+\.\d+\.\d+/\d+"),
        default=[],
        help="Conductor: IPv4 networks in which the subnets of projects' own networks have to lie, like 10.64.0.0/10. "
        "Hosts route to whatever is there, so name what nothing else uses. Without any, only admins make subnets.",
    ),
    cfg.ListOpt(
        "project_vnis",
        item_type=types.String(regex=r"\d{1,8}-\d{1,8}"),
        default=[],
        help="Conductor: VNIs for networks that are made by the network API, like 100000-109999: each gets one that is "
        "free, and spans hosts by it. Without any, the guests of such a network meet on one host alone.",
    ),
    cfg.IntOpt(
        "call_timeout",
        default=30,
        min=1,
        help="Seconds after which a call to a network service of its own has ended, one way or the other.",
    ),
    cfg.IntOpt(
        "vif_plugging_timeout",
        default=300,
        min=0,
        help="Compute: seconds for which a new guest is held, paused, until Neutron has connected its interfaces. "
        "0: it is not held.",
    ),
    cfg.BoolOpt(
        "vif_plugging_is_fatal",
        default=True,
        help="Compute: a guest whose interfaces were not connected in this time is not made. Else it runs without.",
    ),
    cfg.BoolOpt(
        "metadata_service",
        default=False,
        help="Compute: guests on the networks that this host runs find the metadata API, which has to listen on this "
        "machine at [api] metadata_listen, at 169.254.169.254. Needs nft.",
    ),
    cfg.BoolOpt(
        "security_groups",
        default=True,
        help="Compute: filter what reaches guests, and what they reach, by their security groups. Needs nft, and the "
        "kernel's br_netfilter.",
    ),
    cfg.IntOpt(
        "security_group_refresh_interval",
        default=60,
        min=1,
        help="Compute: seconds after which a host asks again what it has to filter, if nobody told it of a change.",
    ),
    cfg.StrOpt(
        "public_interface",
        default="lo",
        help="Compute: the interface of this machine that gets the floating addresses of its guests. With lo they are "
        "answered for on all interfaces, but nobody is told when one has come from another host.",
    ),
    cfg.ListOpt(
        "host_ports",
        item_type=types.Integer(min=1, max=65535),
        default=[],
        help="Compute: TCP ports of this host that guests may reach besides DHCP, DNS and the metadata service.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="network")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"network": OPTS}
