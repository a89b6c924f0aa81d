"""Print the commands on standard input, a list in JSON, that their client refuses, with its reason. Nothing is sent."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from types import SimpleNamespace
from unittest import mock

from novaclient import api_versions, shell
from osc_lib.command import commandmanager

from nova_lite.cmd import manage

GROUPS = ("common", "compute.v2", "identity.v3", "image.v2", "network.v2", "volume.v3", "load_balancer.v2")


def refusal(manager: commandmanager.CommandManager, line: str) -> str:
    """Return what the client of the command says against it, or nothing."""
    program, *words = shlex.split(line)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            if program == "openstack":
                # An option of the client itself stands before the command.
                words = words[2:] if words[0] == "--os-compute-api-version" else words
                factory, name, rest = manager.find_command(words)
                factory(SimpleNamespace(client_manager=mock.MagicMock()), None).get_parser(name).parse_args(rest)
            elif program == "nova":
                version = api_versions.APIVersion("2.1")
                client = shell.OpenStackComputeShell()
                client.extensions = []
                client.get_subcommand_parser(version, False, []).parse_args(words)
            else:
                manage.parser().parse_args(words)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    manager = commandmanager.CommandManager("openstack.cli")
    for group in GROUPS:
        manager.add_command_group(f"openstack.{group}")
    print(json.dumps([[line, reason] for line in json.load(sys.stdin) if (reason := refusal(manager, line))]))


if __name__ == "__main__":
    main()
