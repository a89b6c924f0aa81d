"""``[otel]``: traces of requests by OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.URIOpt(
        "endpoint",
        schemes=["http", "https"],
        help=(
            "URL at which a collector takes traces by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. Set it "
            "for all daemons to see where the time of a request goes. It needs the package's extra otel. Unset: no "
            "traces."
        ),
    ),
    cfg.FloatOpt(
        "sample_ratio",
        default=1.0,
        min=0.0,
        max=1.0,
        help=(
            "Part of the requests that have traces. Set the same for all daemons, and less than 1 where there are many "
            "requests a second."
        ),
    ),
    cfg.StrOpt(
        "ca_file",
        help="PEM file with the authority of the collector's certificate. Set it if that is none of the system's.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="otel")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"otel": OPTS}
