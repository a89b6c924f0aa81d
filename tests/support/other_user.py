"""Commands of a user who is neither root nor one of the daemons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


def as_nobody(directory: Path, command: Sequence[str]) -> list[str]:
    """Return a command that root runs as a user without rights.

    A checkout in root's home is closed to others. So a mount of the command's own shows it below ``directory``, which
    that user can enter. Arguments that begin with the checkout's path then begin with that of the mount.
    """
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if all(path.stat().st_mode & 0o001 for path in (ROOT, *ROOT.parents)):
        return [*user, *command]
    seen = directory / "checkout"
    seen.mkdir(exist_ok=True)
    seen.chmod(0o755)
    moved = [str(seen) + word.removeprefix(str(ROOT)) if word.startswith(str(ROOT)) else word for word in command]
    script = 'mount --bind "$0" "$1" && PYTHONPATH=${PYTHONPATH//"$0"/"$1"} exec "${@:2}"'
    return ["unshare", "--mount", "bash", "-c", script, str(ROOT), str(seen), *user, *moved]
