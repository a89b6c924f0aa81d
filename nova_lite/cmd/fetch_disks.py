"""``python -m nova_lite.cmd.fetch_disks DIRECTORY PORT HOST COMMAND...``: rsync's remote shell for moves over TLS.

rsync runs it at the destination of a move, with the source's address and the command for the source's rsync.
``DIRECTORY`` has this host's certificates. The token of the move is in the environment.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys

from nova_lite.virt.libvirt.disks import offers, tls_pipe


def main() -> int:
    directory, port, host, *command = sys.argv[1:]
    try:
        _fetch(directory, host, int(port), shlex.join(command))
    except (OSError, tls_pipe.PipeError) as error:
        print(f"{host} port {port}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    return 0


def _fetch(directory: str, host: str, port: int, command: str) -> None:
    """Carry what rsync says. Raises `PipeError` with what the source refuses, or OSError."""
    plain = socket.create_connection((host, port), timeout=tls_pipe.GREETING_SECONDS)
    with tls_pipe.client_context(directory).wrap_socket(plain, server_hostname=host) as sock:
        sock.sendall(tls_pipe.request(os.environ.get(offers.VARIABLE, ""), command))
        if refusal := tls_pipe.read_line(sock):
            raise tls_pipe.PipeError(refusal)
        tls_pipe.pump(sock, sys.stdin.fileno(), sys.stdout.fileno(), ends_with_source=False)


if __name__ == "__main__":
    sys.exit(main())
