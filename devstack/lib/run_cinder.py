"""Run Cinder's scheduler or volume service: run_cinder.py cinder-scheduler|cinder-volume DIRECTORY

DIRECTORY holds its configuration. Runs with the Python that Cinder is installed for. That it has begun it says on
standard output and to systemd; whether it is up, Cinder's API tells.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sys

import serve_wsgi

COMMANDS = {"cinder-scheduler": "cinder.cmd.scheduler", "cinder-volume": "cinder.cmd.volume"}


def main(name: str, directory: pathlib.Path) -> None:
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    sys.argv[1:] = ["--config-dir", str(directory)]
    command = importlib.import_module(COMMANDS[name])
    serve_wsgi.say_ready(name)
    command.main()


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
