"""Passes the sockets of the metadata service to the APIs of this machine (`nova_lite.metadata.network_sockets`)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from nova_lite.base import files, unix_sockets
from nova_lite.metadata import network_sockets
from nova_lite.metadata.network_sockets import ADDED, COMPLETE, GONE

#: Connections of APIs that wait to be accepted.
_BACKLOG = 64


class _Api:
    """A process that serves metadata. ``known``: inodes of the sockets that it has, by the networks' ids."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.known: dict[str, int] = {}
        self.is_complete = False

    def update(self, current: Mapping[str, socket.socket]) -> None:
        """Send what is new. Raises BlockingIOError if the API has to read first, or another OSError."""
        with contextlib.suppress(BlockingIOError):
            if not self.channel.recv(1):
                raise ConnectionResetError("the API has ended")
        for network_id in self.known.keys() - current.keys():
            network_sockets.send(self.channel, GONE, network_id)
            del self.known[network_id]
        for network_id, sock in current.items():
            inode = os.fstat(sock.fileno()).st_ino
            if self.known.get(network_id) != inode:
                network_sockets.send(self.channel, ADDED, network_id, sock.fileno())
                self.known[network_id] = inode
        if not self.is_complete:
            network_sockets.send(self.channel, COMPLETE)
            self.is_complete = True


class MetadataSockets:
    """Server of the Unix socket at ``path``. ``current`` returns the driver's sockets, by the networks' ids.

    The group of the socket's directory may connect.
    """

    def __init__(self, path: str, current: Callable[[], Mapping[str, socket.socket]]) -> None:
        self._path = path
        self._current = current
        self._apis: list[_Api] = []
        self._listening: socket.socket | None = None

    def tick(self) -> None:
        """Serve the APIs. Call it several times a second."""
        if self._listening is None:
            self._listening = self._listen()
        with contextlib.suppress(BlockingIOError):
            while True:
                channel, _ = self._listening.accept()
                channel.setblocking(False)
                self._apis.append(_Api(channel))
        current = self._current()
        for api in list(self._apis):
            try:
                api.update(current)
            except BlockingIOError:
                continue
            except OSError:
                api.channel.close()
                self._apis.remove(api)

    def _listen(self) -> socket.socket:
        directory = files.private_directory(os.path.dirname(self._path))
        made = unix_sockets.listen(self._path, _BACKLOG, socket.SOCK_SEQPACKET)
        os.chown(self._path, -1, os.stat(directory).st_gid)
        return made

    def close(self) -> None:
        for api in self._apis:
            api.channel.close()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
