"""QMP, by which qemu is controlled: one connection to one guest's monitor."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from nova_lite.base import exceptions

#: Largest reply that is accepted. A guest may have taken its qemu over.
MAX_REPLY = 4 * 1024 * 1024


class QMPError(exceptions.VirtDriverError):
    """A command that qemu refuses. ``kind``: qemu's class of the error."""

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason=reason)
        self.kind = kind


class MonitorGone(exceptions.VirtDriverError):
    """A monitor that has ended. ``silent``: it may still exist, but does not answer in time."""

    def __init__(self, reason: str, silent: bool = False) -> None:
        super().__init__(reason=reason)
        self.silent = silent


class Monitor:
    """A connection. qemu serves one at a time, and lets others wait.

    ``timeout``: seconds for each reply. Raises `MonitorGone`.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._replies = self._socket.makefile("rb")
        try:
            self._socket.connect(path)
            self._read()
            self.execute("qmp_capabilities")
        except OSError as error:
            self.close()
            reason = f"the monitor of its qemu does not answer: {error}"
            raise MonitorGone(reason, isinstance(error, TimeoutError)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # The connection lasts until both are closed, and qemu serves no other one before.
        self._replies.close()
        self._socket.close()

    def execute(self, command: str, arguments: dict[str, Any] | None = None, descriptor: int | None = None) -> Any:
        """Return the result of a command. ``descriptor`` is passed to qemu. Raises `QMPError` and `MonitorGone`."""
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        try:
            message = msgspec.json.encode(request) + b"\n"
            socket.send_fds(self._socket, [message], [] if descriptor is None else [descriptor])
            reply = self._read()
            while "event" in reply:
                reply = self._read()
        except OSError as error:
            raise MonitorGone(
                f"its qemu does not answer {command}: {error}", isinstance(error, TimeoutError)
            ) from error
        if "error" in reply:
            raise QMPError(f"qemu refuses {command}: {reply['error'].get('desc')}", str(reply["error"].get("class")))
        return reply["return"]

    def _read(self) -> dict[str, Any]:
        line = self._replies.readline(MAX_REPLY)
        try:
            reply: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            # An empty line is the end of the connection, and one without an end is too long.
            raise MonitorGone("the monitor of its qemu has ended the connection") from error
        return reply
