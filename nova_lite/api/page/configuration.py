"""``/configuration``: what a check of this API daemon's configuration files finds, without the value of any option.

Listing all options loads libraries that would double the daemon's memory, so a child process reads the files.
"""

from __future__ import annotations

import datetime
import glob
import json
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any

import webob
from oslo_config import cfg

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions
from nova_lite.policies import services as policies

LOG = logging.getLogger(__name__)

#: Seconds for which the result of a check is kept, good or bad. So requests start few processes.
KEPT = 30.0
#: Seconds after which a check is given up.
_LONGEST = 20


class ConfigurationApp:
    """WSGI application, behind authentication. Its policy is that of changes to services: findings help attackers."""

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._result: tuple[float, dict[str, Any]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            self._services.policy.authorize(environ[wsgi.CONTEXT], policies.UPDATE)
            content = self._check()
        except exceptions.NovaLiteException as error:
            return wsgi.fault(error.code, error.message)(environ, start_response)
        body = json.dumps(content).encode()
        return webob.Response(body=body, content_type="application/json", charset="utf-8")(environ, start_response)

    def _check(self) -> dict[str, Any]:
        """Return the last result if it is new enough, else that of a new check. One check runs at a time."""
        with self._lock:
            if self._result is None or time.monotonic() - self._result[0] >= KEPT:
                content = _examine(files_of(self._services.conf))
                self._result = (time.monotonic(), content)
            return self._result[1]


def files_of(conf: cfg.ConfigOpts) -> list[str]:
    """Return the files that this process has read, in their order."""
    found = list(conf.config_file or ())
    for directory in conf.config_dir or ():
        found += sorted(glob.glob(os.path.join(glob.escape(os.path.expanduser(directory)), "*.conf")))
    return [os.path.abspath(path) for path in found]


def _examine(paths: list[str]) -> dict[str, Any]:
    """Examine files in a child process. ``problems`` is None if that failed; the log then says why."""
    command = [sys.executable, "-W", "ignore", "-m", "nova_lite.conf.config_files", *paths]
    problems: list[str] | None = None
    try:
        # Other output of the child could have values of options in it.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            timeout=_LONGEST,
        )
        problems = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        LOG.error("The configuration was not checked: %s. Run nova-lite-manage config check.", error)
    return {"files": paths, "problems": problems, "at": datetime.datetime.now(datetime.UTC).isoformat()}
