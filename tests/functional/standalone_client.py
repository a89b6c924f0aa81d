"""Requests to the standalone services of a running cloud."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from openstack.compute.v2._proxy import Proxy
from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell
from osc_lib import utils
from osc_lib.clientmanager import ClientCache

from tests.functional.cloud import PASSWORDS, Cloud

LOOK_SECONDS = 0.2


class Client:
    """The ``openstack`` command as one of the users, in this process: its imports take longer than what it does.

    ``--wait`` polls each `LOOK_SECONDS`, instead of each five seconds.
    """

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
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error), _looking_often():
            code = shell.run([*shlex.split(self._options), *shlex.split(command)])
        assert code == status, f"openstack {command}: {said.getvalue()}{error.getvalue()}"
        return said.getvalue() if status == 0 else error.getvalue()

    def rows(self, command: str, *columns: str) -> list[dict[str, Any]]:
        """Return the rows of a list command, and check its columns."""
        found: list[dict[str, Any]] = json.loads(self(f"{command} -f json"))
        for row in found:
            assert list(row) == list(columns), command
        return found

    def one(self, command: str) -> Any:
        return json.loads(self(f"{command} -f json"))


@contextlib.contextmanager
def _looking_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "wait_for_status", functools.partial(utils.wait_for_status, sleep_time=LOOK_SECONDS))
        often = functools.partialmethod(Proxy.wait_for_delete, interval=LOOK_SECONDS)
        patch.setattr(Proxy, "wait_for_delete", often)
        yield


def _forget_clients() -> None:
    """Reset the command's connections: its process keeps the previous user's connections."""
    for kind in ClientManager.__mro__:
        for var in vars(kind).values():
            if isinstance(var, ClientCache):
                var._handle = None
