"""Key files: who else can replace one makes every daemon refuse it, with one line that names the cause."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.api.identity import passwords, users_file
from nova_lite.api.middleware.keystone import KeystoneAuth
from nova_lite.base import key_files
from nova_lite.base.exceptions import ConfigurationError
from nova_lite.conf import glance
from nova_lite.conf.service_client import load_adapter
from nova_lite.daemon.sockets import tls_context
from nova_lite.policies.enforcer import Policy
from nova_lite.rpc import keys
from nova_lite.rpc.transport import Transport
from nova_lite.virt.libvirt.disks import transfer
from tests.support.api_client import make_conf
from tests.support.identity_files import write_files, write_keys

STRANGER = 4242


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "keys"
    directory.mkdir(mode=0o755)
    file = directory / "key"
    file.write_text("secret")
    file.chmod(0o600)
    return file


def refusal(path: Path | str, **options: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        key_files.check(str(path), "[x] y", **options)  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    return caught.value.message


def give_away(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let the paths seem to belong to another user."""
    stat, names = os.stat, {str(path) for path in paths}

    def changed(name: str, *args: object, **kwargs: object) -> os.stat_result:
        found = stat(name, *args, **kwargs)  # type: ignore[arg-type]
        return os.stat_result((*found[:4], STRANGER, *found[5:])) if str(name) in names else found

    monkeypatch.setattr(os, "stat", changed)


def test_key_file_of_the_user_alone_is_accepted(path: Path) -> None:
    for mode in (0o600, 0o640, 0o644, 0o400):
        path.chmod(mode)
        key_files.check(str(path), "[x] y")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_key_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refusal(path) == f"[x] y: {path} can be written by others (mode {mode:04o}): chmod 0644"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_key_file_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert f"{path} can be read by others" in refusal(path, hidden_from=0o077, chmod="0600")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_key_file_in_a_directory_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    """The file's own mode is of no use there: who may write the directory puts another file in its place."""
    path.parent.chmod(mode)
    expected = f"directory {path.parent} can be written by others (mode {mode:04o}): chmod go-w"
    assert expected in refusal(path)
    below = path.parent / "a" / "b"
    below.mkdir(parents=True, mode=0o755)
    (below / "key").write_text("secret")
    assert expected in refusal(below / "key")


def test_key_file_in_a_sticky_directory_is_accepted(path: Path) -> None:
    """Others may add files to ``/tmp``, but not replace those of the user."""
    path.parent.chmod(0o1777)
    key_files.check(str(path), "[x] y")


def test_key_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(monkeypatch, path)
    assert f"{path} belongs to user {STRANGER}" in refusal(path)
    key_files.check(str(path), "[x] y", owners={STRANGER, os.geteuid()})


def test_key_file_in_a_directory_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(monkeypatch, path.parent)
    assert f"directory {path.parent} belongs to user {STRANGER}" in refusal(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the files of a daemon's user")
def test_key_file_that_root_made_in_the_directory_of_the_daemon_is_accepted(path: Path) -> None:
    """A command of the operator writes the first users file, and gives it to the daemon's user afterwards."""
    os.chown(path.parent, STRANGER, STRANGER)
    for owner in (0, STRANGER):
        os.chown(path, owner, owner)
        key_files.check(str(path), "[x] y", owners=key_files.owners_of(str(path)))
    os.chown(path.parent, 0, 0)
    os.chown(path.parent.parent, STRANGER + 1, 0)
    assert str(path.parent.parent) in refusal(path, owners=key_files.owners_of(str(path)))


def test_key_file_behind_a_link_is_judged_by_both_of_its_ways(path: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir(mode=0o755)
    (links / "key").symlink_to(path)
    key_files.check(str(links / "key"), "[x] y")
    links.chmod(0o777)
    assert f"directory {links} can be written" in refusal(links / "key")
    links.chmod(0o755)
    path.parent.chmod(0o777)
    assert f"directory {path.parent} can be written" in refusal(links / "key")


def test_key_file_that_is_missing_is_refused(path: Path) -> None:
    path.unlink()
    assert f"[x] y: {path}: No such file or directory" in refusal(path)


# --- the readers of keys


def _private_key(directory: Path) -> Callable[[], object]:
    path = directory / "api.host.key"
    path.write_bytes(keys.PrivateKey.generate().pem())
    path.chmod(0o600)
    keys.write_trusted(str(directory / keys.TRUSTED), [])
    return lambda: keys.Keyring(str(directory), keys.API, "host", print)


def _trusted_list(directory: Path) -> Callable[[], object]:
    keys.write_trusted(str(directory / keys.TRUSTED), [])
    return lambda: keys._by_id(str(directory / keys.TRUSTED))


def _token_keys(directory: Path) -> Callable[[], object]:
    write_keys(directory)
    return lambda: users_file.read_keys(str(directory))


def _users_file(directory: Path) -> Callable[[], object]:
    write_files(directory, passwords.hashed("secret"))
    return lambda: users_file.read(str(directory / "users.yaml"))


def _tls_key(directory: Path) -> Callable[[], object]:
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x", "-out", str(cert)]
    subprocess.run([*command, "-keyout", str(key)], check=True, capture_output=True)
    return lambda: tls_context(str(cert), str(key), "[api] ssl_cert_file", "[api] ssl_key_file")


def _option(section: str, name: str, read: Callable[[cfg.ConfigOpts], object], more: str = "") -> Any:
    """Make a file of the option ``name``, and a daemon's reader of its section."""

    def make(directory: Path) -> Callable[[], object]:
        path = directory / name
        path.write_text("")
        path.chmod(0o600)
        conf = make_conf(directory, f"{more}\n[{section}]\n{name} = {path}\n")
        return lambda: read(conf)

    return pytest.param(make, id=f"{section}-{name}")


def _keystone(conf: cfg.ConfigOpts) -> object:
    return KeystoneAuth(lambda environ, start_response: [], conf, Policy(conf))


def _glance(conf: cfg.ConfigOpts) -> object:
    glance.register_opts(conf)
    return load_adapter(conf, glance.GROUP, "[image] backend = glance")


def _broker(conf: cfg.ConfigOpts) -> None:
    Transport(conf).cleanup()


_RABBIT = "[DEFAULT]\ntransport_url = rabbit://nobody@127.0.0.1:1/"
_GLANCE = "[glance]\nauth_type = none\nendpoint_override = http://127.0.0.1:1"
TLS_CLIENTS = [
    *(_option("glance", name, _glance, _GLANCE) for name in ("cafile", "keyfile")),
    *(_option("keystone_authtoken", name, _keystone) for name in ("cafile", "keyfile")),
    *(_option("oslo_messaging_rabbit", name, _broker, _RABBIT) for name in ("ssl_ca_file", "ssl_key_file")),
]
MOVES = [_option("libvirt", name, transfer.check_keys) for name in ("migration_ssh_key", "migration_ssh_known_hosts")]
READERS = [_private_key, _trusted_list, _token_keys, _users_file, _tls_key, *TLS_CLIENTS, *MOVES]


@pytest.mark.parametrize("make", READERS)
def test_reader_of_keys_refuses_a_directory_that_others_can_write(
    tmp_path: Path, make: Callable[[Path], Callable[[], object]]
) -> None:
    directory = tmp_path / "of-keys"
    directory.mkdir(mode=0o700)
    read = make(directory)
    read()
    directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match=r"^.*directory \S+ can be written by others \(mode 0777\)[^\n]*$"):
        read()


@pytest.mark.parametrize("make", READERS)
def test_reader_of_keys_refuses_a_file_of_another_user(
    tmp_path: Path, make: Callable[[Path], Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = make(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    give_away(monkeypatch, *files)
    with pytest.raises(ConfigurationError, match=f"belongs to user {STRANGER}"):
        read()


@pytest.mark.parametrize("make", [*TLS_CLIENTS, *MOVES])
def test_key_of_a_client_that_everybody_can_read_is_refused(
    tmp_path: Path, make: Callable[[Path], Callable[[], object]]
) -> None:
    read = make(tmp_path)
    (file,) = [path for path in tmp_path.iterdir() if "file" in path.name or "ssh" in path.name]
    file.chmod(0o644)
    if "key" in file.name:
        with pytest.raises(ConfigurationError, match=f"{file.name}: {file} can be read by others"):
            read()
    else:
        read()


def test_tls_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    read = _tls_key(tmp_path)
    (tmp_path / "key.pem").chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"ssl_key_file: .*key\.pem can be read by others"):
        read()
    (tmp_path / "key.pem").chmod(0o640)
    read()
