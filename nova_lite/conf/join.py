"""``[join]``: addresses that hosts get when they join with a token."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.base import exceptions, ip

#: Port of the broker for other machines, by TLS.
BROKER_PORT = 5671

OPTS = [
    cfg.StrOpt(
        "address",
        help=(
            "HOST:PORT by which new hosts reach the join API; a part of each token. Default: [DEFAULT] my_ip and "
            "[api] join_port. Set it if hosts use another address, such as that of a load balancer."
        ),
    ),
    cfg.StrOpt(
        "broker_address",
        help=(
            "HOST:PORT by which new hosts reach the message broker over TLS. Default: [DEFAULT] my_ip and port 5671. "
            "Set it if the broker runs on another machine."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="join")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"join": OPTS}


def join_address(conf: cfg.ConfigOpts) -> str:
    """Return HOST:PORT of the join API for tokens. Raises `ConfigurationError` if other machines cannot reach it."""
    return _address(conf, "address", conf.api.join_port)


def broker_address(conf: cfg.ConfigOpts) -> str:
    """Return HOST:PORT of the broker for hosts. Raises `ConfigurationError` if they cannot reach it."""
    return _address(conf, "broker_address", BROKER_PORT)


def _address(conf: cfg.ConfigOpts, option: str, port: int) -> str:
    if conf.join[option]:
        return str(conf.join[option])
    if ip.is_loopback(conf.my_ip):
        raise exceptions.ConfigurationError(
            reason="[DEFAULT] my_ip is a loopback address, which other machines do not reach. Set this controller up "
            f"with --address, or set [join] {option}."
        )
    return f"[{conf.my_ip}]:{port}" if ":" in conf.my_ip else f"{conf.my_ip}:{port}"
