"""Headers of LUKS volumes: qemu opens what they describe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.image import luks
from nova_lite.virt.images import QemuImg, run
from tests.support import make

MIB = 1024**2


def write(path: Path, passphrase: str, key_size: int = 256, size: int = MIB) -> None:
    header = luks.new_header(passphrase.encode(), key_size)
    path.write_bytes(header)
    os.truncate(path, len(header) + size)


@pytest.mark.parametrize(("key_size", "cipher"), [(128, "aes-128"), (256, "aes-256"), (512, "aes-256")])
def test_header_is_read_by_qemu_with_its_cipher_and_size(tmp_path: Path, key_size: int, cipher: str) -> None:
    path = tmp_path / "volume"
    write(path, "secret", key_size)
    shown = run("qemu-img", "info", "-f", "luks", str(path)).decode()
    assert f"cipher alg: {cipher}" in shown
    assert "cipher mode: xts" in shown
    assert f"({MIB} bytes)" in shown
    assert luks.data_offset(str(path)) == path.stat().st_size - MIB


def test_data_are_written_and_read_with_the_passphrase_of_the_header_alone(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "volume"
    plain.write_bytes(b"a guest's data. " * 4096)
    write(path, "secret")
    qemu_img = QemuImg(make.conf("sqlite://", tmp_path))
    with pytest.raises(exceptions.VirtDriverError, match="Invalid password"):
        qemu_img.encrypt(str(plain), "raw", str(path), "another", lambda: None)
    qemu_img.encrypt(str(plain), "raw", str(path), "secret", lambda: None)
    assert b"a guest's data" not in path.read_bytes()
    secret = tmp_path / "passphrase"
    secret.write_text("secret")
    opened = f"driver=luks,key-secret=k,file.filename={path}"
    run("qemu-img", "dd", "--object", f"secret,id=k,file={secret}", "--image-opts", f"if={opened}", f"of={plain}.out")
    assert Path(f"{plain}.out").read_bytes()[: plain.stat().st_size] == plain.read_bytes()


def test_two_headers_of_a_passphrase_have_nothing_in_common() -> None:
    first, second = (luks.new_header(b"secret") for _ in range(2))
    assert first[4096:8192] != second[4096:8192]
    assert len(first) == len(second)


@pytest.mark.parametrize("content", [b"", b"LUKS\xba\xbe", b"x" * 1000, b"LUKS\xba\xbe\x00\x02" + bytes(1000)])
def test_offset_of_other_data_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "volume"
    path.write_bytes(content)
    with pytest.raises(luks.NotLuks):
        luks.data_offset(str(path))
