"""pytest plug-in: the fixture ``nova_lite_cloud``, a throw-away cloud for tests of programs that use OpenStack's APIs.

pytest loads it wherever nova_lite is installed. It imports no other module: the cloud is a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

#: Seconds for which a cloud may take to end.
_STOP_TIMEOUT = 30.0


@dataclasses.dataclass(frozen=True)
class DevCloud:
    """A running cloud. ``url``: of all its APIs. ``clouds_file``: its clouds.yaml. ``clouds``: the settings in it."""

    url: str
    clouds_file: str
    clouds: dict[str, dict[str, Any]]

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which OpenStack's clients find the cloud, as its admin."""
        return {"OS_CLIENT_CONFIG_FILE": self.clouds_file, "OS_CLOUD": next(iter(self.clouds))}

    def connect(self, user: str = "admin") -> Any:
        """Return openstacksdk's connection of a user."""
        import openstack

        for settings in self.clouds.values():
            if settings["auth"]["username"] == user:
                return openstack.connect(load_yaml_config=False, load_envvars=False, **settings)
        raise LookupError(f"the cloud has no user {user}")


@contextlib.contextmanager
def running_cloud(arguments: Sequence[str] = ()) -> Iterator[DevCloud]:
    """Run ``nova-lite dev`` on a free port, with more arguments, until the context ends."""
    command = [sys.executable, "-m", "nova_lite.cmd.dev", "dev", "--port", "0", "--json", "--parent", str(os.getpid())]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"nova-lite dev ended with status {process.wait()}; its error is above.")
        values = json.loads(line)
        yield DevCloud(values["url"], values["clouds_file"], values["clouds"])
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("nova_lite_dev", "arguments of nova-lite dev for the fixture nova_lite_cloud", type="args")


@pytest.fixture(scope="session")
def nova_lite_cloud(pytestconfig: pytest.Config) -> Iterator[DevCloud]:
    """Provide a cloud for the whole run of tests, with the arguments of the ini option ``nova_lite_dev``."""
    with running_cloud(pytestconfig.getini("nova_lite_dev")) as cloud:
        yield cloud
