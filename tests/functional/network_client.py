"""Requests to the network API of a running cloud."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from typing import Any

from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell
from osc_lib.clientmanager import ClientCache

from tests.functional.cloud import PASSWORDS, Cloud


class Client:
    """The ``openstack`` command as one of the users, in this process: its imports take longer than what it does."""

    def __init__(self, cloud: Cloud, user: str) -> None:
        self._options = (
            f"--os-auth-url {cloud.identity_url} --os-username {user} --os-password {shlex.quote(PASSWORDS[user])} "
            f"--os-project-name {user} --os-user-domain-id default --os-project-domain-id default"
        )

    def __call__(self, command: str, status: int = 0) -> str:
        _forget_clients()
        said, error = io.StringIO(), io.StringIO()
        shell = OpenStackShell()
        shell.stdout, shell.stderr = said, error
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            code = shell.run([*shlex.split(self._options), *shlex.split(command)])
        assert code == status, f"openstack {command}: {said.getvalue()}{error.getvalue()}"
        return said.getvalue() if status == 0 else error.getvalue()

    def one(self, command: str) -> Any:
        return json.loads(self(f"{command} -f json"))


def _forget_clients() -> None:
    """Reset the command's connections: its process keeps the previous user's connections."""
    for kind in ClientManager.__mro__:
        for var in vars(kind).values():
            if isinstance(var, ClientCache):
                var._handle = None
