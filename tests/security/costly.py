"""Run the API with requests that compute without end: ``python -m tests.security.costly nova_lite.cmd.api …``.

``/compute`` computes in Python. ``/search`` is a search with an expression that backtracks, in C code that keeps the
GIL. The limits are shorter than those of `nova_lite.base.timing`, and silence alone ends no worker.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

from nova_lite.base import concurrency

CPU = 3.0


def costly(app: Callable[..., Any]) -> Callable[..., Any]:
    def respond(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/compute":
            while True:
                pass
        if environ["PATH_INFO"] == "/search":
            re.fullmatch("(a+)+b", "a" * 60)
        return app(environ, start_response)

    return respond


def main() -> int:
    concurrency.setup(concurrency.THREADING)
    from nova_lite.base import timing  # after eventlet has replaced the locks

    timing.TIMING = dataclasses.replace(
        timing.TIMING,
        api=dataclasses.replace(timing.TIMING.api, request_cpu=CPU, worker_cpu=CPU),
        health=dataclasses.replace(timing.TIMING.health, max_loop_pause=3600.0),
    )
    daemon = importlib.import_module(sys.argv.pop(1))
    load = daemon.deploy.load_app
    daemon.deploy.load_app = lambda *args: costly(load(*args))
    status: int = daemon.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
