"""TLS from a console proxy to the consoles of hosts, with certificates of `nova_lite.base.host_certificates`."""

from __future__ import annotations

import os
import socket
import ssl

from oslo_config import cfg

from nova_lite.base import exceptions, host_certificates, key_files

_OPTION = "[console] tls_directory"


class HostTls:
    """TLS client with the proxy's certificate. It believes a host only by a certificate in the host's name."""

    def __init__(self, context: ssl.SSLContext, is_required: bool) -> None:
        self._context = context
        self.is_required = is_required

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> HostTls | None:
        """Read the files that the options name. None: no TLS. Raises `ConfigurationError`."""
        directory = conf.console.tls_directory
        return None if directory is None else cls(_context(directory), conf.console.require_tls)

    def secure(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        """Do the handshake with a console of ``host``. Raises `OSError`."""
        secured = self._context.wrap_socket(sock)
        try:
            certificate = secured.getpeercert() or {}
            if ("DNS", host) not in certificate.get("subjectAltName", ()):
                raise ssl.SSLCertVerificationError(f"its certificate is not of host {host}")
        except BaseException:
            secured.close()
            raise
        return secured


def _context(directory: str) -> ssl.SSLContext:
    authority, certificate, key = (
        os.path.join(directory, name)
        for name in (
            host_certificates.CA_CERTIFICATE,
            host_certificates.CLIENT_CERTIFICATE,
            host_certificates.CLIENT_KEY,
        )
    )
    for path in (authority, certificate):
        key_files.check(path, _OPTION)
    key_files.check(key, _OPTION, hidden_from=0o077, chmod="0600")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A name of a host need not be a name of the DNS, so `secure` compares it.
    context.check_hostname = False
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise exceptions.ConfigurationError(reason=f"{_OPTION} = {directory}: {error}") from error
    return context
