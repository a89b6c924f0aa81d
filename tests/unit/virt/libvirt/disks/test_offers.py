"""Offers of disks by a one-time token, and the command that checks it for another host's rsync."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nova_lite.cmd import send_disks
from nova_lite.virt.libvirt.disks import offers

ONE, TWO = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
#: Command that rsync 3.2 sends through SSH.
RSYNC = "rsync --server --sender -Se.iLsfxCIvu --timeout=60 --partial --inplace . "


class Source:
    """A host with the disks of two servers, an image, and other files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in (f"{ONE}/disk", f"{ONE}/console.log", f"{TWO}/disk", "_base/image-1", "_base/image-2", "secret"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(f"content of {name}")
        self.tokens = {name: self.offer(name) for name in (ONE, TWO)}

    def offer(self, name: str) -> str:
        token, content = offers.make(str(self.path / name), ["disk"], ["image-1"] if name == ONE else [])
        (self.path / name / offers.OFFER).write_bytes(content)
        return token

    def environment(self, path: str, name: str = ONE, token: str | None = None) -> dict[str, str]:
        value = f"{name}:{self.tokens[name] if token is None else token}"
        return {"SSH_ORIGINAL_COMMAND": RSYNC + path, offers.VARIABLE: value}

    def allows(self, path: str, name: str = ONE, token: str | None = None) -> tuple[str, str]:
        return send_disks.allowed(str(self.path), self.environment(path, name, token))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "instances")


def test_token_opens_the_files_of_its_offer(source: Source) -> None:
    assert source.allows(f"{ONE}/disk") == (str(source.path / ONE), RSYNC + "disk")
    assert source.allows("_base/image-1") == (str(source.path / "_base"), RSYNC + "image-1")
    assert source.allows(f"{TWO}/disk", TWO) == (str(source.path / TWO), RSYNC + "disk")


@pytest.mark.parametrize("name", [f"{ONE}@host-1", f"{ONE}@aside", f"{ONE}@host-1@aside"])
def test_token_opens_a_directory_that_is_beside_or_set_aside(source: Source, name: str) -> None:
    (source.path / name).mkdir()
    source.tokens[name] = source.offer(name)
    assert source.allows(f"{name}/disk", name)[0] == str(source.path / name)


@pytest.mark.parametrize(
    "path",
    [
        f"{TWO}/disk",
        f"{ONE}/console.log",
        f"{ONE}/{offers.OFFER}",
        f"{ONE}/",
        ONE,
        f"{ONE}/../{TWO}/disk",
        f"../{ONE}/disk",
        f"/{ONE}/disk",
        "_base/image-2",
        "_base/",
        "secret",
        "/etc/shadow",
        ".",
        "",
    ],
)
def test_token_opens_nothing_else(source: Source, path: str) -> None:
    with pytest.raises(offers.OfferError):
        source.allows(path)


@pytest.mark.parametrize("token", ["", "0" * 64, "x", "../" * 21 + "x"])
def test_other_tokens_open_nothing(source: Source, token: str) -> None:
    with pytest.raises(offers.OfferError):
        source.allows(f"{ONE}/disk", ONE, token)


def test_token_of_one_server_opens_no_other(source: Source) -> None:
    with pytest.raises(offers.OfferError, match="another token"):
        source.allows(f"{TWO}/disk", TWO, source.tokens[ONE])


@pytest.mark.parametrize("name", ["", ".", "..", "_base", "../instances/" + ONE, ONE + "/..", ONE.upper() + "x"])
def test_directory_that_is_no_servers_has_no_offer(source: Source, name: str) -> None:
    with pytest.raises(offers.OfferError):
        offers.check(str(source.path), f"{name}:{source.tokens[ONE]}", f"{ONE}/disk")


def test_offer_ends_with_the_next_one_with_its_time_and_with_its_file(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = source.tokens[ONE], source.offer(ONE)
    with pytest.raises(offers.OfferError, match="another token"):
        source.allows(f"{ONE}/disk", ONE, first)
    source.allows(f"{ONE}/disk", ONE, second)
    now = offers.time.time()
    with monkeypatch.context() as later:
        later.setattr(offers.time, "time", lambda: now + offers.LIFETIME + 60)
        with pytest.raises(offers.OfferError, match="has ended"):
            source.allows(f"{ONE}/disk", ONE, second)
    (source.path / ONE / offers.OFFER).write_text("what")
    with pytest.raises(offers.OfferError, match="cannot be read"):
        source.allows(f"{ONE}/disk", ONE, second)
    (source.path / ONE / offers.OFFER).unlink()
    with pytest.raises(offers.OfferError, match="is not offered"):
        source.allows(f"{ONE}/disk", ONE, second)


def test_file_of_an_offer_does_not_contain_its_token(source: Source) -> None:
    content = (source.path / ONE / offers.OFFER).read_text()
    assert source.tokens[ONE] not in content
    assert json.loads(content)["files"] == [f"{ONE}/disk", "_base/image-1"]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "sh",
        "rsync",
        "cat disk",
        f"rsync --server -e.iLsf . {ONE}/disk",
        f"rsync --server --sender -e.iLsf / {ONE}/disk",
        f"rsync --server --sender -e.iLsf . {TWO}/disk {ONE}/disk",
        f"rsync --server --sender '-e.iLsf . {ONE}/disk",
    ],
)
def test_other_commands_are_refused(source: Source, command: str) -> None:
    environment = source.environment(f"{ONE}/disk") | {"SSH_ORIGINAL_COMMAND": command}
    with pytest.raises(offers.OfferError, match="only rsync can fetch disks here"):
        send_disks.allowed(str(source.path), environment)


@pytest.fixture
def shell(source: Source, tmp_path: Path) -> Path:
    """Make a stand-in for SSH: it runs the forced command with the destination's command."""
    if shutil.which("rsync") is None or not os.path.exists(send_disks.RRSYNC):
        pytest.skip("needs rsync and rrsync")
    root = Path(__file__).parents[5]
    path = tmp_path / "shell"
    path.write_text(
        f'#!/bin/sh\nshift\nexport SSH_ORIGINAL_COMMAND="$*"\n'
        f"PYTHONPATH={root} exec {sys.executable} -m nova_lite.cmd.send_disks {source.path}\n"
    )
    path.chmod(0o755)
    return path


def rsync(shell: Path, source: Source, remote: str, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    value = {offers.VARIABLE: f"{ONE}:{source.tokens[ONE]}"}
    command = ["rsync", *options, "--partial", "--inplace", "--rsh", str(shell), "--", f"host:{remote}", str(target)]
    return subprocess.run(command, env=os.environ | value, capture_output=True, text=True, check=False)


def test_real_rsync_fetches_what_is_offered(source: Source, shell: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for remote in (f"{ONE}/disk", "_base/image-1"):
        done = rsync(shell, source, remote, target, "--sparse", "--timeout=60")
        assert (done.returncode, target.read_text()) == (0, f"content of {remote}"), done.stderr


@pytest.mark.parametrize("remote", [f"{TWO}/disk", f"{ONE}/../{TWO}/disk", f"{ONE}/console.log", "secret"])
def test_real_rsync_fetches_nothing_else(source: Source, shell: Path, tmp_path: Path, remote: str) -> None:
    done = rsync(shell, source, remote, tmp_path / "target")
    assert done.returncode != 0 and "is not offered with" in done.stderr
    assert not (tmp_path / "target").exists()
