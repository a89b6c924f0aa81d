"""Scripts that purge the Debian packages, as the build puts them together."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[2] / "devstack/packaging"
#: Line of a script that the build replaces by what all scripts share.
SHARED = "#PURGE#\n"


def shared() -> str:
    return "".join((PACKAGING / name).read_text() for name in ("trees.sh", "purge.sh"))


def script(package: str, root: Path) -> str:
    """Return the script of a package, with the machine's directories below ``root``."""
    return below((PACKAGING / f"debian/{package}.postrm").read_text().replace(SHARED, shared()), root)


def below(text: str, root: Path) -> str:
    return re.sub("/(etc|var|run|sys)/", lambda found: f"{root}{found[0]}", text)
