"""Command ``api``: documents about the APIs."""

from __future__ import annotations

import argparse
import functools
import json
import warnings

from nova_lite.cmd.manage.app import App, Commands


def register(commands: Commands) -> None:
    noun = commands.noun("api", "Print documents about the APIs.")
    text = "Print the OpenAPI 3.1 document of an API, as the API serves it at /openapi.json."
    commands.verb(noun, "openapi", text, openapi).add_argument(
        "--api",
        choices=("compute", "identity", "image", "key_manager", "load_balancer", "network", "placement", "volume"),
        default="compute",
        help="the API; default: %(default)s",
    )
    commands.verb(noun, "reference", "Print reference/api.md.", reference)
    commands.verb(noun, "operations", "Print the generated part of reference/operations.md.", operations)
    commands.verb(noun, "hardware", "Print the generated part of reference/hardware.md.", hardware)
    commands.verb(noun, "metrics", "Print the generated part of reference/metrics.md.", metrics)
    commands.verb(noun, "messages", "Print reference/messages.md, a page of the documentation.", messages)
    commands.verb(noun, "errors", "Print reference/errors.md, a page of the documentation.", errors)
    commands.verb(
        noun, "notifications", "Print reference/notifications.md, a page of the documentation.", notifications
    )
    text = "Print reference/cli.md, a page of the documentation."
    commands.command("commands", text, functools.partial(command_line, commands.top))


def errors(app: App, args: argparse.Namespace) -> None:
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.cmd.manage import pages

    print(pages.errors(), end="")


def messages(app: App, args: argparse.Namespace) -> None:
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.cmd.manage import pages

    print(pages.messages(), end="")


def notifications(app: App, args: argparse.Namespace) -> None:
    from nova_lite.conductor.notifications import page

    print(page.markdown(), end="")


def command_line(top: argparse.ArgumentParser, app: App, args: argparse.Namespace) -> None:
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.cmd.manage import pages

    print(pages.commands(top), end="")


def openapi(app: App, args: argparse.Namespace) -> None:
    """Print an OpenAPI document. The API is imported here only, because it loads the message bus, which is slow."""
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.api.http import openapi as compute
        from nova_lite.api.http import service_openapi

    made = compute.document() if args.api == "compute" else service_openapi.document(args.api)
    print(json.dumps(made, indent=2))


def reference(app: App, args: argparse.Namespace) -> None:
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.api.http import reference as made

    print(made.markdown(), end="")


def operations(app: App, args: argparse.Namespace) -> None:
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.api.http import operations_page as made

    print(made.page(), end="")


def hardware(app: App, args: argparse.Namespace) -> None:
    """Print the hardware page. Each example runs through the driver's XML code, which needs libvirt's Python
    binding.
    """
    from nova_lite.virt.libvirt.domain import hardware_page as made

    print(made.page(), end="")


def metrics(app: App, args: argparse.Namespace) -> None:
    from nova_lite.base import metrics as made

    print(made.markdown_table(), end="")
