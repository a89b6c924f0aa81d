"""Scripts, output, and security groups of guests of the real libvirtd."""

from __future__ import annotations

import base64
from collections.abc import Callable

from nova_lite.objects import (
    VIF,
    SecurityGroup,
    SecurityGroupRule,
)
from nova_lite.objects.security_group import default_group
from nova_lite.virt.driver import ComputeDriver
from tests.integration.libvirt.conftest import (
    PATIENCE,
    whole_lines,
)
from tests.support.waiting import wait_for

NewVif = Callable[[], VIF]


def user_data(script: str) -> str:
    return base64.b64encode(f"#!/bin/sh\n{script}\n".encode()).decode()


def console_line(driver: ComputeDriver, instance_uuid: str, start: str) -> str:
    def find() -> str:
        lines = whole_lines(driver, instance_uuid).splitlines()
        return next((line for line in lines if line.startswith(start)), "")

    line: str = wait_for(f"console line {start}", find, PATIENCE)
    return line


DEFAULT = default_group("p")


TRIES = """
n=0
while :; do
    n=$((n + 1))
    if nc -w 1 {server} 80 </dev/null >/dev/null 2>&1; then echo "try $n: yes"; else echo "try $n: no"; fi
    usleep 200000
done
"""


HTTP = SecurityGroupRule(id="r", security_group_id="web", protocol="tcp", port_range_min=80, port_range_max=80)


def group(name: str, *rules: SecurityGroupRule) -> SecurityGroup:
    return SecurityGroup(id=name, name=name, rules=[*DEFAULT.rules[:2], *rules])


#: Waits for a disk with the serial number.
FINDS = """
while [ -z "$device" ]; do
    for disk in /sys/class/block/vd[a-z]; do
        case "$(cat $disk/serial 2>/dev/null)" in
        SERIAL*) device=/dev/${disk##*/} ;;
        esac
    done
    usleep 200000
done
"""

#: Writes numbered lines to a volume, each to a sector of its own, and prints each when it is on the disk.
LINES = (
    FINDS
    + """
echo "volume has: $(dd if=$device bs=512 skip=2049 count=1 2>/dev/null | tr -d '\\000\\n')"
n=0
while :; do
    n=$((n + 1))
    echo "line-$n" | dd of=$device bs=512 seek=$((2048 + n)) conv=notrunc,sync 2>/dev/null
    sync
    echo "line $n is written"
    usleep 200000
done
"""
)

#: The guest waits for a disk with the serial number, prints its content and size, writes a mark, and prints its
#: removal.
WATCHES = """
while :; do
    for disk in /sys/class/block/vd[a-z]; do
        case "$(cat $disk/serial 2>/dev/null)" in
        SERIAL*)
            [ "$seen" != "$disk" ] || continue
            seen=$disk
            device=/dev/${disk##*/}
            found=$(dd if=$device bs=512 skip=1024 count=1 2>/dev/null | tr -d '\\000\\n')
            echo "volume: ${found:-nothing}, sectors $(cat $disk/size)"
            echo marked-by-NAME | dd of=$device bs=512 seek=1024 conv=notrunc,sync 2>/dev/null
            sync
            echo "volume marked"
            ;;
        esac
    done
    if [ -n "$seen" ] && [ ! -e "$seen" ]; then echo "volume released"; seen=; fi
    if [ -n "$seen" ]; then
        size=$(cat $seen/size)
        [ "$size" = "$told" ] || { echo "volume has $size sectors"; told=$size; }
    fi
    usleep 200000
done
"""
