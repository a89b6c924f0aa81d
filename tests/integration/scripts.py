"""User data scripts of guests in tests. The test guest reads them from its config drive."""

from __future__ import annotations

import base64
import re

#: Script that prints the disk's mark and size, and writes its own mark.
MARKS = """
found=$(dd if=/dev/vda bs=512 skip=1024 count=1 2>/dev/null | tr -d '\\000\\n')
echo "on disk: ${found:-nothing}, sectors $(cat /sys/class/block/vda/size)"
echo marked-by-a-guest | dd of=/dev/vda bs=512 seek=1024 conv=notrunc,sync 2>/dev/null
sync
echo "mark written"
"""

#: Counts, ten times a second and with the guest's own clock; what it writes to its disk has to travel as well.
COUNTS = """
n=0
while :; do
    n=$((n + 1))
    echo "count $n at $(cut -d' ' -f1 /proc/uptime)"
    [ $n -ne 5 ] || { echo marked-by-a-guest | dd of=/dev/vda bs=512 seek=1024 conv=notrunc,sync 2>/dev/null; sync; }
    usleep 100000
done
"""
_COUNT = re.compile(r"^count (\d+) at ([\d.]+)\r?$", re.MULTILINE)


def user_data(script: str) -> str:
    return base64.b64encode(f"#!/bin/sh\n{script}".encode()).decode()


def counts(console: str) -> list[tuple[int, float]]:
    """Return the output of a counting guest: number, and the guest's clock in seconds."""
    return [(int(number), float(clock)) for number, clock in _COUNT.findall(console)]
