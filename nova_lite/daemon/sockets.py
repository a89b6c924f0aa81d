"""Sockets that daemons listen on, and TLS for them."""

from __future__ import annotations

import errno
import os
import resource
import socket
import ssl

from nova_lite.base import exceptions, ip, key_files

BACKLOG = 1024
MAX_OPEN_FILES = 65536


def listen(address: str, port: int, shared: bool = False) -> socket.socket:
    """Return a listening socket. Raises `ConfigurationError` if the address or port cannot be used.

    ``shared``: other processes may listen on the same port.
    """
    family = socket.AF_INET6 if _is_ipv6(address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        why = "the port is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise exceptions.ConfigurationError(reason=f"cannot listen on {address} port {port}: {why}.") from error
    # Connections inherit it. Without it, a body that is sent apart from its headers waits for an ACK of 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def allow_many_connections() -> None:
    """Raise this process' limit of open files, as far as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_ipv6(address: str) -> bool:
    try:
        return ip.parse(address).version == 6
    except ValueError:
        return False


def tls_context(cert_file: str | None, key_file: str | None, cert_option: str, key_option: str) -> ssl.SSLContext:
    """Return a TLS context. Raises `ConfigurationError`, with the option's name, if a file cannot be used."""
    for option, path in ((cert_option, cert_file), (key_option, key_file)):
        if not path or not os.access(path, os.R_OK):
            raise exceptions.ConfigurationError(reason=f"{option} = {path}: cannot be read.")
    assert cert_file is not None and key_file is not None
    key_files.check(cert_file, cert_option)
    key_files.check(key_file, key_option, hidden_from=0o007, chmod="0640")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(cert_file, key_file)
    except (ssl.SSLError, OSError) as error:
        raise exceptions.ConfigurationError(reason=f"{cert_option} and {key_option}: {error}") from error
    return context
