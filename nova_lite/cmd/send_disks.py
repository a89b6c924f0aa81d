"""``nova-lite-send-disks``: the only command that another host's SSH key may run on this one.

sshd runs it with the directory of instances (``command=`` in authorized_keys). It reads the destination's rsync
command, checks the token of its move, and runs ``rrsync -ro`` on the one directory that the token opens.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from nova_lite.virt.libvirt.disks import offers

RRSYNC = "/usr/bin/rrsync"


def main() -> int:
    if len(sys.argv) != 2 or not os.path.isabs(sys.argv[1]):
        print("usage: nova-lite-send-disks INSTANCES_PATH (as command= in authorized_keys)", file=sys.stderr)
        return 2
    try:
        directory, command = allowed(sys.argv[1], dict(os.environ))
    except offers.OfferError as error:
        print(f"nova-lite-send-disks: {error}", file=sys.stderr)
        return 1
    environment = {"PATH": "/usr/bin:/bin", "SSH_ORIGINAL_COMMAND": command}
    return subprocess.run([RRSYNC, "-ro", directory], env=environment, check=False).returncode


def allowed(instances_path: str, environment: dict[str, str]) -> tuple[str, str]:
    """Return the directory that the caller may read, and its rsync command, relative to that. Raises `OfferError`."""
    try:
        words = shlex.split(environment.get("SSH_ORIGINAL_COMMAND", ""))
    except ValueError:
        words = []
    if len(words) < 5 or words[:3] != ["rsync", "--server", "--sender"] or words[-2] != ".":
        raise offers.OfferError("only rsync can fetch disks here")
    directory, name = offers.check(instances_path, environment.get(offers.VARIABLE, ""), words[-1])
    return directory, shlex.join([*words[:-1], name])


if __name__ == "__main__":
    sys.exit(main())
