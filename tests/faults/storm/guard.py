"""Run the guard of a host: ``python -m tests.faults.storm.guard RATE ORIGIN FULL ARGUMENTS…``.

Its clock runs at ``RATE`` since ``ORIGIN``. While there is a file ``FULL``, it can write no list of stopped guests.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from nova_lite.compute import guard


def main(rate: float, origin: float, full: str, arguments: list[str]) -> int:
    boot_time, write = guard.now, guard._write

    def write_unless_full(path: str, content: Any) -> None:
        if path.endswith(guard.STOPPED) and os.path.exists(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    guard.now = lambda: origin + (boot_time() - origin) * rate
    guard._write = write_unless_full
    return guard.main(arguments)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
