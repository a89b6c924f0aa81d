"""A broker that has devstack's configuration is reached over loopback alone, and so are its node and epmd.

A node of RabbitMQ of its own, with ports of its own, under a name that this machine does not have.
"""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.private import PrivateBroker
from tests.functional.cloud import ROOT
from tests.support.ports import free_port

#: Writes devstack's configuration into a directory, for a broker of this port on a machine of this name.
WRITE = """
source devstack/lib/common.sh
cd "$TOP"
source devstack/lib/rabbitmq.sh
has_systemd() { false; }
hostname() { echo "$NAME"; }
BROKER_ETC=$1 BROKER_PORT=$2 BROKER_ADDRESS=$3
"${@:4}"
"""
NAME = f"machine-{uuid.uuid4().hex[:8]}"


def in_shell(*arguments: str, epmd_port: int = 0) -> str:
    command = ["bash", "-c", WRITE, "test", *arguments]
    environment = {**os.environ, "NAME": NAME, "ERL_EPMD_PORT": str(epmd_port)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


class Configured(PrivateBroker):
    """Broker whose listening addresses devstack configures."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.node = f"rabbit@{NAME}"
        self.epmd_port = free_port()
        self.etc = path / "etc"
        self.etc.mkdir()
        (self.etc / "rabbitmq-env.conf").write_text("# a package's\n")
        in_shell(str(self.etc), str(self.port), "127.0.0.1", "write_broker_addresses")

    def environment(self) -> dict[str, str]:
        given = super().environment()
        for name in ("RABBITMQ_NODE_IP_ADDRESS", "RABBITMQ_NODE_PORT"):
            del given[name]
        return {
            **given,
            "RABBITMQ_CONF_ENV_FILE": str(self.etc / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILES": str(self.etc / "conf.d"),
            "ERL_EPMD_PORT": str(self.epmd_port),
        }


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    with Configured(tmp_path_factory.mktemp("broker")) as made:
        yield made


def test_broker_is_unreachable_from_other_addresses(configured: Configured) -> None:
    """Whatever addresses this machine has; and where it has no others, it would not listen at them."""
    ports = (configured.port, configured.distribution_port, configured.epmd_port)
    assert configured.control("list_vhosts", "--silent").split() == ["/"], "its tools find it by its name"
    for port in ports:
        assert reaches("127.0.0.1", port)
        assert {address for address in listening(port) if not address.startswith(("127.", "[::1]"))} == set()
        assert not any(reaches(address, port) for address in other_addresses())


def test_broker_on_another_address_is_noticed(configured: Configured, tmp_path: Path) -> None:
    """The script's own look, at a port that is open to all, and at the broker's."""

    def open_at(port: int) -> str:
        arguments = (str(tmp_path), str(port), "127.0.0.1", "broker_listens_too_widely")
        return in_shell(*arguments, epmd_port=configured.epmd_port).strip()

    with socket.socket() as wide:
        wide.bind(("0.0.0.0", 0))
        wide.listen()
        port = int(wide.getsockname()[1])
        assert open_at(port) == f"0.0.0.0:{port}"
    assert open_at(configured.port) == ""


def reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def listening(port: int) -> set[str]:
    command = ["ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = :{port}"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    assert lines, f"nobody listens at port {port}"
    return {line.split()[3].rpartition(":")[0] for line in lines}


def other_addresses() -> list[str]:
    command = ["ip", "-4", "-oneline", "address", "show", "scope", "global"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    return [line.split()[3].partition("/")[0] for line in lines]
