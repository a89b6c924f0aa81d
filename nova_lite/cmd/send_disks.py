"""``nova-lite-send-disks``: sends disks to the destination of a move.

It reads the destination's rsync command, checks the token of its move, and runs ``rrsync -ro`` on the one directory
that the token opens.

The compute daemon runs it with a TCP connection as its standard input (``--connection CERTIFICATES INSTANCES_PATH``).
Or sshd runs it with the directory of instances (``command=`` in authorized_keys). Then it is the only command that
another host's SSH key may run on this one.
"""

from __future__ import annotations

import os
import shlex
import socket
import ssl
import subprocess
import sys

from nova_lite.virt.libvirt.disks import offers, tls_pipe

RRSYNC = "/usr/bin/rrsync"


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[1] == "--connection":
        return _serve_connection(*sys.argv[2:])
    if len(sys.argv) != 2 or not os.path.isabs(sys.argv[1]):
        print("usage: nova-lite-send-disks INSTANCES_PATH (as command= in authorized_keys)", file=sys.stderr)
        return 2
    try:
        directory, command = allowed(sys.argv[1], dict(os.environ))
    except offers.OfferError as error:
        print(f"nova-lite-send-disks: {error}", file=sys.stderr)
        return 1
    return subprocess.run([RRSYNC, "-ro", directory], env=_environment(command), check=False).returncode


def _environment(command: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "SSH_ORIGINAL_COMMAND": command}


def _serve_connection(certificates: str, instances_path: str) -> int:
    """Serve the connection that is the standard input. Returns the exit status."""
    try:
        plain = socket.socket(fileno=os.dup(sys.stdin.fileno()))
        plain.settimeout(tls_pipe.GREETING_SECONDS)
        with tls_pipe.server_context(certificates).wrap_socket(plain, server_side=True) as sock:
            return _send(sock, instances_path)
    except (OSError, tls_pipe.PipeError, offers.OfferError) as error:
        print(f"nova-lite-send-disks: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1


def _send(sock: ssl.SSLSocket, instances_path: str) -> int:
    """Read a request and carry what rsync says. Raises `PipeError`, OSError, and `OfferError` for what it refuses."""
    offer, wanted = tls_pipe.parse(tls_pipe.read_line(sock))
    try:
        directory, command = allowed(instances_path, {offers.VARIABLE: offer, "SSH_ORIGINAL_COMMAND": wanted})
    except offers.OfferError as error:
        sock.sendall(f"{error}\n".encode())
        raise
    sock.sendall(b"\n")
    with subprocess.Popen(
        [RRSYNC, "-ro", directory], env=_environment(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rsync:
        assert rsync.stdin is not None and rsync.stdout is not None
        try:
            tls_pipe.pump(sock, rsync.stdout.fileno(), os.dup(rsync.stdin.fileno()), ends_with_source=True)
        except BaseException:
            rsync.kill()
            raise
        rsync.stdin.close()
        return rsync.wait(tls_pipe.GREETING_SECONDS)


def allowed(instances_path: str, environment: dict[str, str]) -> tuple[str, str]:
    """Return the directory that the caller may read, and its rsync command, relative to that. Raises `OfferError`."""
    try:
        words = shlex.split(environment.get("SSH_ORIGINAL_COMMAND", ""))
    except ValueError:
        words = []
    if len(words) < 5 or words[:3] != ["rsync", "--server", "--sender"] or words[-2] != ".":
        raise offers.OfferError("only rsync can fetch disks here")
    directory, name = offers.check(instances_path, environment.get(offers.VARIABLE, ""), words[-1])
    return directory, shlex.join([*words[:-1], name])


if __name__ == "__main__":
    sys.exit(main())
