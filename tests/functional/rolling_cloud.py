"""A cloud whose daemons begin with the code of another version, and get the code of this checkout one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.functional import older_code
from tests.functional.clients import CloudWithSockets
from tests.functional.cloud import IMAGE_BYTES, NETWORK, ROOT

#: Runs several commands of ``nova-lite-manage`` in one process: each start would cost a second.
MANAGE = """
import json, sys
from oslo_config import cfg
from nova_lite.cmd import manage
for arguments in json.load(sys.stdin):
    cfg.CONF.reset()
    assert manage.main(arguments) == 0, arguments
"""


class RollingCloud(CloudWithSockets):
    """Daemons that begin with the code of ``tree``, over a database that this code made."""

    def __init__(self, path: Path, tree: Path, database: str | None) -> None:
        # The defaults: a daemon may be away for so long.
        extra = "[DEFAULT]\nrpc_response_timeout = 20\nservice_down_time = 60\n"
        more = ("conductor-2",) if database else ()
        super().__init__(path, database, more, extra)
        self.tree = tree
        self.prefixes = {name: older_code.prefix(tree) for name in self.names}

    def _fill_database(self) -> None:
        image = self.path / "image.raw"
        image.write_bytes(IMAGE_BYTES)
        options = [f"--{name}={NETWORK[name]}" for name in ("gateway", "bridge", "start", "end")]
        files = self.config_arguments("conductor")
        commands = [
            ["db", "sync"],
            ["flavor", "create", "m1.nano", "--id", "1", "--vcpus", "1", "--ram", "8", "--disk", "1"],
            ["network", "create", "private", NETWORK["cidr"], "--default", *options],
            ["quota", "set", "demo", "--instances", "-1", "--cores", "-1", "--ram", "-1"],
            ["image", "import", str(image), "--name=cirros", "--disk-format=raw", "--id", self.image_id],
        ]
        subprocess.run(
            [*older_code.prefix(self.tree), sys.executable, "-W", "ignore", "-c", MANAGE],
            input=json.dumps([[*files, *command] for command in commands]),
            text=True,
            check=True,
            timeout=120,
        )

    def expand(self) -> None:
        """Expand the schema with the tool of this checkout."""
        command = [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.manage", *self.config_arguments("conductor")]
        done = subprocess.run([*command, "db", "sync"], capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 0, done.stderr

    def replace(self, name: str, tree: Path | None) -> None:
        """Stop a daemon, start it with the code of ``tree`` or of this checkout, and wait until it is ready."""
        assert self.stop(name) == 0
        self.prefixes.pop(name, None)
        if tree is not None:
            self.prefixes[name] = older_code.prefix(tree)
        self.start_and_wait(name)
