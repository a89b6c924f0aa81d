"""The table of patches: it fits the installed libraries, and patches of other versions are left out or refused."""

from __future__ import annotations

import configparser
import contextlib
import errno
import importlib.metadata
import logging
import socket
import ssl
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import amqp.transport
import pytest
from packaging.requirements import Requirement

from nova_lite.base import exceptions
from nova_lite.rpc import patches
from nova_lite.rpc.patches import Patch, Target

SETUP = Path(__file__).parents[3] / "setup.cfg"


class Library:
    """Stands for a class of a messaging library."""

    def send(self, message: str, timeout: float | None = None) -> None: ...

    @staticmethod
    def on_blocked(reason: str) -> None: ...


FITTING = Target(Library, "send", ("self", "message", "timeout"))
CHANGED = Target(Library, "send", ("self", "message"))


def patch(name: str, target: Target, applied: list[str], essential: bool = False) -> Patch:
    return Patch(name, f"purpose of {name}", (target,), lambda: applied.append(name), essential)


def test_patch_names_are_unique() -> None:
    names = [made.name for made in patches.PATCHES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (FITTING, None),
        (Target(Library, "on_blocked", ("reason",)), None),
        (CHANGED, "Library.send takes (self, message, timeout)"),
        (Target(Library, "receive", ("self",)), "Library.receive does not exist"),
        (Target(sys.modules[__name__], "FITTING", None), None),
        (Target(sys.modules[__name__], "ABSENT", None), "ABSENT does not exist"),
    ],
)
def test_target_mismatch_is_described(target: Target, why: str | None) -> None:
    assert target.mismatch() == (why and f"{__name__}.{why}")


def test_patches_that_fit_are_applied_in_the_order_of_the_table() -> None:
    applied: list[str] = []
    patches.apply([patch("one", FITTING, applied), patch("two", FITTING, applied)])
    assert applied == ["one", "two"]


def test_optional_patch_that_does_not_fit_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    applied: list[str] = []
    with caplog.at_level(logging.WARNING):
        patches.apply([patch("one", CHANGED, applied), patch("two", FITTING, applied)])
    assert applied == ["two"]
    (line,) = caplog.messages
    assert "The patch one does not fit oslo.messaging" in line
    assert "Library.send takes (self, message, timeout)" in line


def test_essential_patch_that_does_not_fit_is_refused_before_any_is_applied() -> None:
    applied: list[str] = []
    table = [patch("one", FITTING, applied), patch("two", CHANGED, applied, essential=True)]
    with pytest.raises(exceptions.ConfigurationError, match=r"the patch two \(purpose of two\) does not fit oslo"):
        patches.apply(table)
    assert applied == []


def test_optional_patch_can_be_disabled() -> None:
    applied: list[str] = []
    patches.apply([patch("one", FITTING, applied), patch("two", FITTING, applied)], disabled=["one"])
    assert applied == ["two"]


@pytest.mark.parametrize("name", ["essential", "unknown"])
def test_other_patches_cannot_be_disabled(name: str) -> None:
    table = [patch("essential", FITTING, [], essential=True)]
    with pytest.raises(exceptions.ConfigurationError, match=f"there is no such optional patch: {name}"):
        patches.apply(table, disabled=[name])


@pytest.mark.parametrize("library", ["amqp", "kombu", "oslo.messaging"])
def test_versions_of_patched_libraries_are_bounded(library: str) -> None:
    """A new version is allowed in setup.cfg once the patches were tested with it."""
    setup = configparser.ConfigParser()
    setup.read(SETUP)
    requirements = [Requirement(line) for line in setup["options"]["install_requires"].split("\n") if line]
    (bounds,) = [requirement.specifier for requirement in requirements if requirement.name == library]
    assert any(bound.operator == "<" for bound in bounds)
    assert importlib.metadata.version(library) in bounds


def test_patches_fit_the_installed_libraries() -> None:
    """Verified in a process of its own: another test may have applied the patches in this one."""
    code = "from nova_lite.rpc import patches; print([patch.mismatch() for patch in patches.PATCHES])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == str([None] * len(patches.PATCHES))


class LostConsumer:
    """Consumer on a connection that is lost."""

    def cancel(self, tag: str) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class LostConnection:
    """Broker connection of oslo.messaging as far as `_cancel_consumers` uses it."""

    connection = types.SimpleNamespace(connection_errors=(OSError,), channel_errors=())

    def __init__(self) -> None:
        self._consumers = {LostConsumer(): "1"}
        self.timeouts: list[float] = []

    @contextlib.contextmanager
    def _transport_socket_timeout(self, timeout: float) -> Iterator[None]:
        self.timeouts.append(timeout)
        yield


def tls_pair() -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return the ends of a TLS connection without certificates."""
    contexts = [ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)]
    for context in contexts:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
    contexts[0].check_hostname, contexts[0].verify_mode = False, ssl.CERT_NONE
    mine, other = socket.socketpair()
    with futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(contexts[1].wrap_socket, other, server_side=True)
        return contexts[0].wrap_socket(mine), served.result(60)


def test_reset_of_a_tls_connection_does_not_wait_for_a_broker_that_stands_still() -> None:
    mine, broker = tls_pair()
    transport = amqp.transport.SSLTransport("nowhere")
    transport.sock = mine
    channel = types.SimpleNamespace(connection=types.SimpleNamespace(transport=transport))
    used = types.SimpleNamespace(channel=channel, connection=types.SimpleNamespace(collect=transport.close))
    with futures.ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(patches._reset, used).result(10)
        finally:
            broker.close()
    assert transport.sock is None


def test_server_stops_although_its_connection_is_lost() -> None:
    """Consumers are cancelled once, within a bounded time."""
    lost = LostConnection()
    assert patches._cancel_consumers(lost)
    assert not patches._cancel_consumers(lost)
    assert lost.timeouts == [patches._CANCEL_SECONDS]
