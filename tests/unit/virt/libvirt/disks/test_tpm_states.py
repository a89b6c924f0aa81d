"""States of TPMs between libvirt's directory and the disks of a guest that moves."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.disks import transfer
from nova_lite.virt.libvirt.disks.tpm_states import TPMStates

GUEST = str(uuid.uuid4())
STATE = b"encrypted" * 99


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    path = tmp_path / "disks"
    path.mkdir()
    return path


@pytest.fixture
def states(conf: cfg.ConfigOpts, tmp_path: Path) -> TPMStates:
    authority = tmp_path / "authority"
    authority.mkdir()
    return TPMStates(conf, str(tmp_path / "swtpm"), str(authority))


def put(states: TPMStates, name: str = "tpm2/tpm2-00.permall", state: bytes = STATE) -> Path:
    path = Path(states.root, GUEST, name)
    path.parent.mkdir(parents=True)
    path.write_bytes(state)
    return path


@pytest.mark.parametrize(
    ("version", "place", "name"),
    [("2.0", "tpm2/tpm2-00.permall", "tpm-2.0.state"), ("1.2", "tpm1.2/tpm-00.permall", "tpm-1.2.state")],
)
def test_state_is_copied_to_the_disks_and_handed_to_libvirt_there(
    states: TPMStates, disks: Path, version: str, place: str, name: str
) -> None:
    path = put(states, place)
    states.save(GUEST, str(disks))
    assert os.listdir(disks) == [name]
    assert name in transfer.TRAVELLING
    assert (disks / name).read_bytes() == STATE
    assert (disks / name).stat().st_mode & 0o777 == 0o600
    states.remove(GUEST)
    assert not states.has(GUEST)
    for _ in range(2):
        states.restore(GUEST, str(disks), [version])
        assert path.read_bytes() == STATE
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.parent.parent.stat().st_mode & 0o777 == 0o711


def test_state_of_another_version_is_not_used_and_an_older_one_removed(states: TPMStates, disks: Path) -> None:
    put(states)
    states.save(GUEST, str(disks))
    for versions in (["1.2"], []):
        states.restore(GUEST, str(disks), versions)
        assert not states.has(GUEST)


def test_state_that_is_gone_is_not_offered_any_more(states: TPMStates, disks: Path) -> None:
    put(states)
    states.save(GUEST, str(disks))
    states.remove(GUEST)
    states.save(GUEST, str(disks))
    assert os.listdir(disks) == []


def test_state_that_is_no_plain_file_is_refused(states: TPMStates, disks: Path, tmp_path: Path) -> None:
    """swtpm's user could let it lead to a file of root."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"of root")
    path = put(states)
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        states.save(GUEST, str(disks))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(exceptions.VirtDriverError, match="not the state of a TPM"):
        states.save(GUEST, str(disks))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(5 * 1024**2)
    with pytest.raises(exceptions.VirtDriverError, match="not the state of a TPM"):
        states.save(GUEST, str(disks))
    assert os.listdir(disks) == []


def test_state_belongs_to_the_owner_of_the_authority(
    states: TPMStates, disks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(states)
    states.save(GUEST, str(disks))
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, *owner: given.append(owner))
    monkeypatch.setattr(os, "fchown", lambda path, *owner: given.append(owner))
    states.restore(GUEST, str(disks))
    found = (tmp_path / "authority").stat()
    assert given == [(found.st_uid, found.st_gid)] * 2


def test_host_without_an_owner_of_the_authority_does_not_start(
    states: TPMStates, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    (tmp_path / "authority").rmdir()
    states.check()
    conf.set_override("swtpm_enabled", True, "libvirt")
    with pytest.raises(exceptions.ConfigurationError, match="Install swtpm and swtpm-tools"):
        states.check()


def test_state_of_a_snapshot_point_is_beside_that_of_a_move_and_comes_back(states: TPMStates, disks: Path) -> None:
    path = put(states)
    states.save(GUEST, str(disks), "point-1-")
    assert os.listdir(disks) == ["point-1-tpm-2.0.state"]
    path.write_bytes(b"later")
    states.restore(GUEST, str(disks), prefix="point-1-")
    assert path.read_bytes() == STATE
    states.restore(GUEST, str(disks), prefix="point-2-")
    assert not states.has(GUEST), "the guest had no state at this point"
