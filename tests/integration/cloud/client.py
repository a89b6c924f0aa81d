"""Shell of the command line client: many commands in one process, since each start of the client takes a second.

Standard input has one line per command, its arguments as a JSON list. Standard output has one line per result,
``{"status": 0, "output": "...", "errors": "..."}``. Every command logs in again, as a new process does. ``--wait``
polls each half second instead of each five.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys

from openstackclient import shell
from osc_lib import utils

LOOK_SECONDS = 0.5


def run(arguments: list[str]) -> dict[str, object]:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            status = shell.main(arguments)
        except SystemExit as end:  # arguments that the client does not know
            status = end.code
    return {"status": status, "output": output.getvalue(), "errors": errors.getvalue()}


if __name__ == "__main__":
    utils.wait_for_status = functools.partial(utils.wait_for_status, sleep_time=LOOK_SECONDS)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
