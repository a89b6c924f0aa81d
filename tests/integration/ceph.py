"""A Ceph of one node for tests, by ``devstack/ceph.sh``."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "devstack" / "ceph.sh"
#: The pool and the user that the script makes.
POOL, USER = "volumes", "cinder"


class Ceph:
    """A Ceph below ``directory``. ``address``: of this machine, at which it listens. ``config``: its file."""

    def __init__(self, directory: Path, address: str = "127.0.0.1") -> None:
        self._etc, self._data = directory / "ceph", directory / "ceph-data"
        self._environment = {**os.environ, "CEPH_ADDRESS": address}
        self.config = self._etc / "ceph.conf"

    def start(self) -> None:
        self._run("start")

    def stop(self) -> None:
        self._run("stop")

    def _run(self, command: str) -> None:
        made = subprocess.run(
            [SCRIPT, command, self._etc, self._data],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert made.returncode == 0, f"ceph.sh {command}: {made.stderr.strip()[-1000:]}"

    @property
    def key(self) -> str:
        """Return the key of the user, as base64."""
        found = re.search(r"key = (\S+)", (self._etc / f"client.{USER}.keyring").read_text())
        assert found is not None
        return found[1]


def secret_xml(secret_id: str, ephemeral: bool) -> str:
    """Return the definition of libvirt's secret for the key."""
    kept = "yes" if ephemeral else "no"
    usage = f"<usage type='ceph'><name>{secret_id}</name></usage>"
    return f"<secret ephemeral='{kept}' private='yes'><uuid>{secret_id}</uuid>{usage}</secret>"
