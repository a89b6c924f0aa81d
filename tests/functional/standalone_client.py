"""Requests to the standalone services of a running cloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.functional.cloud import PASSWORDS, Cloud


class Client:
    """The ``openstack`` command as one of the users."""

    def __init__(self, cloud: Cloud, user: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        self._environment = clean | {
            "OS_AUTH_URL": cloud.identity_url,
            "OS_USERNAME": user,
            "OS_PASSWORD": PASSWORDS[user],
            "OS_PROJECT_NAME": user,
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }

    def __call__(self, command: str, status: int = 0) -> str:
        program = Path(sys.executable).with_name("openstack")
        result = subprocess.run(
            [str(program), *command.split()], env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert result.returncode == status, f"openstack {command}: {result.stdout}{result.stderr}"
        return result.stdout if status == 0 else result.stderr

    def rows(self, command: str, *columns: str) -> list[dict[str, Any]]:
        """Return the rows of a list command, and check its columns."""
        found: list[dict[str, Any]] = json.loads(self(f"{command} -f json"))
        for row in found:
            assert list(row) == list(columns), command
        return found

    def one(self, command: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(f"{command} -f json"))
        return found
