"""Modules that a daemon loads make up most of its startup time and memory. Unused libraries stay out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NOBODY = {"eventlet", "dns", "alembic", "mako", "jinja2", "keystoneauth1", "keystonemiddleware", "pygments"}
NO_DATABASE = NOBODY | {"sqlalchemy"}
NO_WEB = {"webob", "routes", "jsonschema", "requests"}

UNUSED = {
    "conductor": NOBODY | NO_WEB | {"libvirt", "oslo_policy"},
    "api": NO_DATABASE | {"libvirt"},
    "scheduler": NO_DATABASE | NO_WEB | {"libvirt", "oslo_policy"},
    "compute": NO_DATABASE | NO_WEB | {"oslo_policy"},
    "dev": NOBODY | {"libvirt", "pytest"},
}

SCRIPT = """
import sys
from nova_lite.base import concurrency
concurrency.setup()
import nova_lite.cmd.{0}
print(*(name for name, module in sys.modules.items() if module is not None and "." not in name))
"""


@pytest.mark.parametrize("daemon", sorted(UNUSED))
def test_a_daemon_does_not_load_what_it_does_not_use(daemon: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NOVA_LITE_CONCURRENCY"}
    loaded = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.format(daemon)],
        capture_output=True, text=True, check=True, env=environment,
    ).stdout.split()  # fmt: skip
    assert "oslo_messaging" in loaded
    assert UNUSED[daemon].isdisjoint(loaded), UNUSED[daemon] & set(loaded)
