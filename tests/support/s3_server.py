"""An S3 server: rclone serves directories below a path as buckets, and checks signatures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.ports import free_port, is_open
from tests.support.waiting import wait_for

PROGRAM = "rclone"
KEY, SECRET = "AKIATEST", "not-in-any-argument-of-restic"


class S3Server:
    """The running server. ``url``: for restic. ``credentials``: a file with the key that it accepts."""

    def __init__(self, served: Path, files: Path) -> None:
        served.mkdir(exist_ok=True)
        port = free_port()
        self.url = f"s3:http://127.0.0.1:{port}"
        self.credentials = files / "credentials"
        self.write_credentials(SECRET)
        program = shutil.which(PROGRAM)
        assert program, f"no {PROGRAM}"
        command = [program, "serve", "s3", "--config", "", "--auth-key", f"{KEY},{SECRET}"]
        self._process = subprocess.Popen(
            [*command, "--addr", f"127.0.0.1:{port}", str(served)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for("the S3 server listens", lambda: is_open(port))

    def write_credentials(self, secret: str) -> None:
        self.credentials.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {secret}\n")
        self.credentials.chmod(0o640)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
