"""Network namespaces of this host: they are made, entered and removed by their names.

systemd's manager makes and removes them, where there is one. The compute daemon has a mount namespace of its own, in
which no other program would see a new namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator

from nova_lite.base import exceptions

DIRECTORY = "/run/netns"
SYSTEMD = "/run/systemd/system"

_CLONE_NEWNET = 0x40000000


def exists(name: str) -> bool:
    """Check whether a namespace exists. A file of that name alone, which a crash may leave, is none."""
    try:
        return os.stat(_path(name)).st_dev != os.stat(DIRECTORY).st_dev
    except FileNotFoundError:
        return False


def found(prefix: str) -> list[str]:
    """Return the names of namespaces that begin with ``prefix``."""
    names = os.listdir(DIRECTORY) if os.path.isdir(DIRECTORY) else []
    return sorted(name for name in names if name.startswith(prefix))


def add(name: str) -> None:
    """Make a namespace. Raises `VirtDriverError`."""
    if os.path.exists(_path(name)):
        run(*_by_manager(), "ip", "netns", "delete", name)
    run(*_by_manager(), "ip", "netns", "add", name)


def remove(name: str) -> None:
    """Remove a namespace. Raises `VirtDriverError`."""
    run(*_by_manager(), "ip", "netns", "delete", name)


def inside(name: str) -> tuple[str, ...]:
    """Return the words before a command that run it in a namespace."""
    return "nsenter", f"--net={_path(name)}", "--"


def ip_batch(lines: Iterable[str], name: str | None = None) -> None:
    """Carry out commands of ``ip``, in a namespace or in the host's own. Raises `VirtDriverError`."""
    if text := "".join(f"{line}\n" for line in lines):
        run(*(inside(name) if name else ()), "ip", "-batch", "-", text=text)


def run(*command: str, text: str = "") -> str:
    """Run a program with this input, and return its output. Raises `VirtDriverError`."""
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{command[0]} cannot be run: {error.strerror}") from error
    if result.returncode:
        raise exceptions.VirtDriverError(reason=f"{' '.join(command)}: {' '.join(result.stderr.split())}")
    return result.stdout


def has_manager() -> bool:
    """Check whether systemd runs this machine, and not one around this one (a daemon in another network namespace)."""
    try:
        return os.path.isdir(SYSTEMD) and os.readlink("/proc/1/ns/net") == os.readlink("/proc/self/ns/net")
    except PermissionError:
        return True  # the daemon's unit keeps it from looking


def _by_manager() -> tuple[str, ...]:
    return ("systemd-run", "--quiet", "--wait", "--collect") if has_manager() else ()


def _path(name: str) -> str:
    return os.path.join(DIRECTORY, name)


def make_socket(name: str) -> socket.socket:
    """Return a new TCP socket in a namespace. Raises `VirtDriverError`."""
    with within(name):
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def set_up(settings: Iterable[str], name: str | None = None) -> None:
    """Write settings of the kernel's network (``ipv4/ip_forward=1``), in a namespace or the host's own.

    Raises `VirtDriverError`.
    """
    with contextlib.nullcontext() if name is None else within(name):
        for path, _, value in (setting.partition("=") for setting in settings):
            try:
                with open(f"/proc/sys/net/{path}", "w") as file:
                    file.write(value)
            except OSError as error:
                raise exceptions.VirtDriverError(reason=f"{path} cannot be set: {error.strerror}") from error


@contextlib.contextmanager
def within(name: str) -> Iterator[None]:
    """Let this thread be in a namespace. What it does there must not let another green thread run."""
    with open("/proc/thread-self/ns/net") as own:
        try:
            with open(_path(name)) as other:
                _enter(other.fileno())
        except OSError as error:
            raise exceptions.VirtDriverError(reason=f"namespace {name} cannot be entered: {error.strerror}") from error
        try:
            yield
        finally:
            _enter(own.fileno())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
