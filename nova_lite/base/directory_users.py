"""Hosts that use a directory, such as that of images, which several hosts may share.

::

    <directory>/_hosts/<host>    an empty file

A purge of a host leaves a directory that other hosts use. Directories of servers' disks have ``_marks`` for this.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat

LOG = logging.getLogger(__name__)

HOSTS = "_hosts"


def register(directory: str, host: str) -> None:
    """Record that a host uses a directory, if it exists. A host that may not write there can lose nothing there."""
    path = os.path.join(directory, HOSTS)
    try:
        above = os.stat(directory)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            # Daemons of other users record their hosts as well.
            os.chmod(path, stat.S_IMODE(above.st_mode))
            if os.geteuid() == 0:
                os.chown(path, above.st_uid, above.st_gid)
        os.close(os.open(os.path.join(path, host), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640))
    except FileNotFoundError:
        return
    except OSError as error:
        LOG.info("%s does not show that this host uses it: %s", directory, error.strerror)
