"""Files that ``[database] connection`` names for TLS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import engine
from tests.support import make

MARIADB, POSTGRESQL = "mysql+pymysql://u:secret@127.0.0.1/n", "postgresql+psycopg://u:secret@127.0.0.1/n"
PUBLIC = [
    *((MARIADB, name) for name in ("ssl_ca", "ssl_cert", "ssl_capath")),
    *((POSTGRESQL, name) for name in ("sslrootcert", "sslcert", "sslcrl", "sslcrldir")),
]
SECRET = [
    *((MARIADB, name) for name in ("ssl_key", "read_default_file")),
    *((POSTGRESQL, name) for name in ("sslkey", "passfile")),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.pem"
    path.write_text("any")
    path.chmod(0o600)
    return path


def refusal(url: str, name: str, path: Path) -> str:
    """Return the line for the operator."""
    with pytest.raises(exceptions.ConfigurationError) as refused:
        engine.create_engine(make.conf(f"{url}?{name}={path}"))
    line = str(refused.value)
    assert "\n" not in line
    assert "secret" not in line
    return line


@pytest.mark.parametrize(("url", "name"), PUBLIC + SECRET)
def test_missing_file_is_refused_with_one_line(tmp_path: Path, url: str, name: str) -> None:
    missing = tmp_path / "missing.pem"
    assert f"[database] connection, {name}: {missing}: No such file or directory" in refusal(url, name, missing)


@pytest.mark.parametrize(("url", "name"), PUBLIC + SECRET)
def test_file_that_others_can_write_is_refused(file: Path, url: str, name: str) -> None:
    file.chmod(0o666)
    assert f"{file} can be written by others (mode 0666): chmod" in refusal(url, name, file)


@pytest.mark.parametrize(("url", "name"), SECRET)
def test_key_that_others_can_read_is_refused(file: Path, url: str, name: str) -> None:
    file.chmod(0o644)
    assert f"{file} can be read by others (mode 0644): chmod 06" in refusal(url, name, file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_key_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 23456)  # the user of the conductor
    assert "belongs to user 12345" in refusal(MARIADB, "ssl_key", file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_operator_may_use_the_key_of_the_conductors_user(file: Path) -> None:
    os.chown(file, 12345, 12345)
    engine.create_engine(make.conf(f"{MARIADB}?ssl_key={file}")).dispose()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize(
    ("owner", "name", "is_refused"), [(0, "sslkey", False), (1, "sslkey", True), (0, "passfile", True)]
)
def test_group_may_read_what_libpq_lets_it_read(file: Path, owner: int, name: str, is_refused: bool) -> None:
    file.chmod(0o640)
    os.chown(file, owner, owner)
    if is_refused:
        assert "chmod 0600" in refusal(POSTGRESQL, name, file)
    else:
        engine.create_engine(make.conf(f"{POSTGRESQL}?{name}={file}")).dispose()


@pytest.mark.parametrize(("url", "name"), PUBLIC + SECRET)
def test_good_file_is_accepted(file: Path, url: str, name: str) -> None:
    engine.create_engine(make.conf(f"{url}?{name}={file}")).dispose()


@pytest.mark.parametrize("value", ["system", ""])
def test_authorities_of_the_machine_are_no_file(value: str) -> None:
    engine.create_engine(make.conf(f"{POSTGRESQL}?sslmode=verify-full&sslrootcert={value}")).dispose()
