"""TLS to MariaDB, by each driver: the server has to prove its name, and cannot do without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import engine
from tests.faults.private import PrivateDatabase
from tests.support import make
from tests.support.http_site import make_certificate


class TlsDatabase(PrivateDatabase):
    """A server on two addresses, with a certificate for 127.0.0.1, which is its authority's as well. ``has_tls`` counts
    at its start.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.certificate, self._key = make_certificate(path)
        self.has_tls = True

    def command(self) -> list[str]:
        tls = [f"--ssl-cert={self.certificate}", f"--ssl-key={self._key}"] if self.has_tls else ["--skip-ssl"]
        return [*super().command(), "--bind-address=127.0.0.1,127.0.0.2", *tls]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsDatabase]:
    with TlsDatabase(tmp_path_factory.mktemp("database")) as running:
        yield running


@pytest.fixture(params=["mysqldb", "pymysql"])
def url(server: TlsDatabase, request: pytest.FixtureRequest) -> str:
    return server.url.replace("mysql", f"mysql+{request.param}", 1)


def cipher(url: str, authority: str | Path) -> str:
    database = engine.Database(make.conf(f"{url}&ssl_ca={authority}"))
    try:
        database.ping()
        asked = database.read(lambda uow: uow.rows(sa.text("SHOW STATUS LIKE 'Ssl_cipher'")).one())
        return str(asked[1])
    finally:
        database.close()


def test_connection_is_encrypted_if_the_authority_is_the_servers(server: TlsDatabase, url: str) -> None:
    assert cipher(url, server.certificate).startswith("TLS_")


def test_connection_fails_if_the_authority_is_another(tmp_path: Path, url: str) -> None:
    with pytest.raises(exceptions.DatabaseUnavailable):
        cipher(url, make_certificate(tmp_path)[0])


def test_connection_fails_if_the_certificate_has_another_name(server: TlsDatabase, url: str) -> None:
    with pytest.raises(exceptions.DatabaseUnavailable):
        cipher(url.replace("127.0.0.1", "127.0.0.2"), server.certificate)


def test_connection_fails_if_the_server_has_no_tls(server: TlsDatabase, url: str) -> None:
    if server.has_tls:
        server.has_tls = False
        server.restart(0)
    with pytest.raises(exceptions.DatabaseUnavailable):
        cipher(url, server.certificate)
