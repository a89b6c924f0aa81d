"""Consoles of the fake guests: the console proxies, and servers in place of each guest's screen and serial port."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import struct
import threading
from typing import Any

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.console.daemon import NOVNC, SERIAL, ConsoleKind, ConsoleProxy

#: Size of the screen in pixels, and its colour as blue, green, red, and an unused byte.
_WIDTH, _HEIGHT = 320, 200
_PIXEL = bytes((120, 60, 20, 0))

_VERSION = b"RFB 003.008\n"
_NO_SECURITY = 1
#: Pixels of 32 bits, depth 24, little-endian, true colour with 8 bits each of red, green and blue.
_PIXEL_FORMAT = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
_NAME = b"nova-lite-guest"
#: Length of each message of a client after its type. Two have a list, whose length is in their last bytes.
_MESSAGES = {0: 19, 2: 3, 3: 9, 4: 7, 5: 5, 6: 7}
_SET_PIXEL_FORMAT, _SET_ENCODINGS, _UPDATE_REQUEST, _CUT_TEXT = 0, 2, 3, 6

_GREETING = b"\r\nnova-lite-guest: a fake guest, which repeats what you type\r\nlogin: "


class DevConsoleProxy(ConsoleProxy):
    """A console proxy on a socket that exists already. Without noVNC's files on this machine it has no pages."""

    def __init__(self, conf: cfg.ConfigOpts, kind: ConsoleKind, sock: socket.socket, connect: rpc.Connect) -> None:
        has_pages = kind.page is not None and os.path.isfile(os.path.join(conf.web, kind.page))
        super().__init__(conf, kind if has_pages else kind._replace(page=None), connect)
        self._sock = sock

    def listen(self) -> socket.socket:
        return self._sock


class GuestConsoles:
    """The screen and the serial port of every fake guest. ``ports``: for `nova_lite.virt.fake_hypervisor.Control`."""

    def __init__(self) -> None:
        self._servers = {"novnc": _Server(_Screen), "serial": _Server(_SerialPort)}
        self.ports = {name: server.server_address[1] for name, server in self._servers.items()}
        for name, server in self._servers.items():
            threading.Thread(target=server.serve_forever, name=f"guests-{name}", daemon=True).start()

    def close(self) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hangs up."""


class _SerialPort(socketserver.BaseRequestHandler):
    """A serial port that greets, and repeats what is typed."""

    def handle(self) -> None:
        self.request.sendall(_GREETING)
        while typed := self.request.recv(4096):
            self.request.sendall(typed.replace(b"\r", b"\r\n"))


class _Screen(socketserver.StreamRequestHandler):
    """A VNC server (RFB 3.8, without a password) with a screen of one colour."""

    def handle(self) -> None:
        with contextlib.suppress(EOFError):
            self._shake_hands()
            self._serve()

    def _shake_hands(self) -> None:
        self.wfile.write(_VERSION)
        self._read(len(_VERSION))
        self.wfile.write(bytes((1, _NO_SECURITY)))
        self._read(1)
        self.wfile.write(struct.pack(">I", 0))
        self._read(1)
        self.wfile.write(struct.pack(">HH", _WIDTH, _HEIGHT) + _PIXEL_FORMAT + struct.pack(">I", len(_NAME)) + _NAME)

    def _serve(self) -> None:
        """Send the screen for each full update request. An incremental one waits for a change, and none comes."""
        pixel = _PIXEL
        while True:
            (kind,) = self._read(1)
            if kind not in _MESSAGES:
                return
            message = self._read(_MESSAGES[kind])
            if kind == _SET_PIXEL_FORMAT:
                pixel = _PIXEL[: message[3] // 8]
            elif kind == _SET_ENCODINGS:
                self._read(4 * int.from_bytes(message[-2:], "big"))
            elif kind == _CUT_TEXT:
                self._read(int.from_bytes(message[-4:], "big"))
            elif kind == _UPDATE_REQUEST and not message[0]:
                self.wfile.write(struct.pack(">BxHHHHHi", 0, 1, 0, 0, _WIDTH, _HEIGHT, 0) + pixel * _WIDTH * _HEIGHT)

    def _read(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) < length:
            raise EOFError
        return data


def make_proxies(conf: cfg.ConfigOpts, socks: dict[str, socket.socket], connect: rpc.Connect) -> list[DevConsoleProxy]:
    """Return the proxies of both kinds of consoles, not yet started."""
    kinds = {"novnc": NOVNC, "serial": SERIAL}
    return [DevConsoleProxy(conf, kinds[name], sock, connect) for name, sock in socks.items()]
