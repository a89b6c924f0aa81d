"""Code of other versions: trees of older commits, and wheels of a tree with any version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Commit of the last release. Rolling upgrades begin with its code.
LAST_RELEASE = "139bc022"
#: The last commit before version 1.0.
LAST_BEFORE_1_0 = "63644334"
TOP = Path(__file__).resolve().parents[2]
#: Parts of a checkout from which a package is built.
SOURCES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "nova_lite")
#: Variable for the version of a package that is built outside of a repository.
PRETEND = "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_NOVA_LITE"


def unpack(commit: str, tree: Path) -> None:
    """Write the files of a commit to the directory ``tree``."""
    archive = subprocess.run(["git", "-C", TOP, "archive", commit], capture_output=True, check=False, timeout=60)
    assert archive.returncode == 0, f"this checkout has no commit {commit}: {archive.stderr.decode()}"
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True, timeout=60)


def copy_sources(tree: Path, copy: Path) -> Path:
    """Copy the sources of ``tree`` as a source archive has them: without a repository, and without links."""
    for name in SOURCES:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(tree / name, copy)
    return copy


def build_wheel(sources: Path, where: Path, version: str) -> Path:
    """Build a wheel of copied sources into the directory ``where``."""
    shutil.rmtree(sources / "build", ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run(
        [*pip, str(where), str(sources)],
        env={**os.environ, PRETEND: version},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = where.glob("*.whl")
    return made


def hide_conformance(directory: Path) -> None:
    """Write metadata that hide the entry points of the second distribution from programs with this PYTHONPATH."""
    information = directory / "nova_lite_conformance-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: nova-lite-conformance\nVersion: 0\n")
