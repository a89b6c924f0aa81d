"""Port at which other hosts fetch disks of servers that move to them, by TLS with the hosts' certificates.

Each connection gets a process of its own, ``nova-lite-send-disks``, which makes the handshake and checks the token of
the move. So the daemon reads nothing of what a stranger sends.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.daemon import sockets
from nova_lite.virt.libvirt.net import migration_peers

LOG = logging.getLogger(__name__)

#: Connections at a time. Further ones wait.
MAX_CONNECTIONS = 16
#: Seconds after an error of the listening socket, such as too many open files.
ERROR_PAUSE = 1.0


def port_of(conf: cfg.ConfigOpts) -> int:
    """Return the port at which this host serves disks. 0: it does not, and SSH does."""
    return int(conf.libvirt.disk_port) if conf.libvirt.live_migration_tls else 0


class DiskServer:
    """The listening socket, and the thread that starts the processes."""

    def __init__(self, conf: cfg.ConfigOpts, instances_path: str) -> None:
        self._conf = conf
        self._command = [sys.executable, "-m", "nova_lite.cmd.send_disks", "--connection"]
        self._command += [conf.libvirt.certificates_directory, instances_path]
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Listen, unless this host does already or is not to. Without the port other hosts cannot fetch its disks."""
        port = port_of(self._conf)
        if not port or self._socket is not None:
            return
        try:
            self._socket = sockets.listen(migration_peers.own_address(self._conf), port)
        except exceptions.ConfigurationError as error:
            LOG.error("Other hosts cannot fetch disks from here ([libvirt] disk_port): %s", error.message)
            return
        threading.Thread(target=self._accept, args=(self._socket,), name="disk-server", daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            self._free.acquire()
            try:
                connection, (address, *_) = listening.accept()
            except OSError as error:
                LOG.error("A connection for disks cannot be accepted: %s", error)
                self._free.release()
                time.sleep(ERROR_PAUSE)
                continue
            threading.Thread(target=self._serve, args=(connection, address), name="disk-sender", daemon=True).start()

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            with connection:
                connection.setblocking(True)
                done = subprocess.run(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    check=False,
                )
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                LOG.warning("Disks were not sent to %s: %s", address, said[-1] if said else done.returncode)
        except OSError as error:
            LOG.error("Disks cannot be sent to %s: %s", address, error)
        finally:
            self._free.release()
