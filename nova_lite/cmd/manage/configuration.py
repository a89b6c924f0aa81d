"""Command ``config``: check the configuration, and print its reference page."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from importlib import metadata

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, explain
from nova_lite.db import migration


def register(commands: Commands) -> None:
    noun = commands.noun("config", "Check and document the configuration.")
    commands.verb(
        noun, "check", "Check the configuration, its files, and its services; exit with 1 on a problem.", check
    )
    commands.verb(noun, "reference", "Print reference/configuration.md, a page of the documentation.", reference)


def reference(app: App, args: argparse.Namespace) -> None:
    """Print the page on all options. The clients of other services are imported only here."""
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.cmd.manage import pages
        from nova_lite.conf import opts

    print(pages.configuration(opts.list_opts()), end="")


def check(app: App, args: argparse.Namespace) -> int:
    problems = list(_problems(app.conf))
    for problem in problems:
        print(problem)
    if not problems:
        print("The configuration can work.")
    return 1 if problems else 0


def _problems(conf: cfg.ConfigOpts) -> Iterator[str]:
    yield from _plugins(conf)
    if conf.service_down_time < 2 * conf.report_interval:
        yield (
            f"[DEFAULT] service_down_time = {conf.service_down_time} must be at least twice report_interval "
            f"({conf.report_interval}), or one late report takes a host out."
        )
    yield from _transport(conf)
    if conf.image.backend == "glance":
        yield from _glance(conf)
    try:
        migration.check(conf)
    except exceptions.NovaLiteException as error:
        yield f"[database] connection: {explain(error)}"


def _transport(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Check the connection to the broker. The message bus is imported here only, because it loads slowly."""
    with warnings.catch_warnings(action="ignore"):
        from nova_lite import rpc

    try:
        rpc.Transport(conf, rpc.MANAGE).cleanup()
    except exceptions.ConfigurationError as error:
        yield error.message


def _glance(conf: cfg.ConfigOpts) -> Iterator[str]:
    from nova_lite.image.glance_client import GlanceClient

    try:
        GlanceClient(conf)
    except exceptions.ConfigurationError as error:
        yield error.message


def _plugins(conf: cfg.ConfigOpts) -> Iterator[str]:
    for option, namespace, names in (
        ("[DEFAULT] compute_driver", "nova_lite.virt.drivers", [conf.compute_driver]),
        ("[image] backend", "nova_lite.image.backends", [conf.image.backend]),
        ("[network] backend", "nova_lite.network.backends", [conf.network.backend]),
        ("[scheduler] enabled_filters", "nova_lite.scheduler.filters", conf.scheduler.enabled_filters),
        ("[scheduler] weight_classes", "nova_lite.scheduler.weights", conf.scheduler.weight_classes),
    ):
        known = sorted(entry.name for entry in metadata.entry_points(group=namespace))
        for name in names:
            if name not in known:
                yield f"{option}: {name} is unknown; there are {', '.join(known)}."
