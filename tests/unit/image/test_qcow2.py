"""Headers of files that this cloud has made, as qemu-img writes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nova_lite.image import qcow2


@pytest.mark.parametrize("compat", ["0.10", "1.1"])
@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_header_names_the_file_below_and_its_format(tmp_path: Path, compat: str, kind: str) -> None:
    base, path = tmp_path / "base", tmp_path / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", kind, str(base), "1M"], check=True)
    made = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"compat={compat}", "-b", str(base), "-F", kind, str(path)]
    subprocess.run(made, check=True)
    assert qcow2.read(str(path)) == qcow2.Header(1024**2, str(base), kind)


def test_header_of_a_whole_disk_names_nothing(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(path), "1M"], check=True)
    assert qcow2.read(str(path)) == qcow2.Header(1024**2, "", "")
