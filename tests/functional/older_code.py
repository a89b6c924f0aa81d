"""Code of older commits, to run its daemons beside those of this checkout."""

from __future__ import annotations

import configparser
import importlib.metadata
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.code_versions import hide_conformance, unpack


def extract(commit: str, tree: Path) -> Path:
    """Write the code of a commit to ``tree``, with the metadata by which its plugins are found, and return ``tree``.

    The second distribution of this checkout is hidden: it fits the code of this checkout alone.
    """
    unpack(commit, tree)
    hide_conformance(tree)
    command = "import setuptools; setuptools.setup()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", command, "-q", "egg_info"], cwd=tree, check=True, timeout=120)
    missing = [name for name in _libraries_of(tree) if not _is_installed(name)]
    assert not missing, f'setup.cfg\'s extra "test" lacks what {commit} needs: {", ".join(missing)}'
    return tree


def prefix(tree: Path) -> list[str]:
    """Return what the command of a daemon begins with, to run the code of ``tree``."""
    return ["env", "-C", str(tree), f"PYTHONPATH={tree}"]


def _libraries_of(tree: Path) -> list[str]:
    """Return the names of the distributions that the tree's setup.cfg asks for."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(tree / "setup.cfg")
    return [Requirement(line).name for line in parser["options"]["install_requires"].split("\n") if line]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
