"""Removal of directories, with real mounts, links and shared directories."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.base import trees
from tests.support.mounts import NO_MOUNTS, Mounts

TOP = Path(__file__).resolve().parents[3]
SCRIPT = TOP / "devstack/packaging/trees.sh"

#: Removes a path, and returns what it says about paths that stay.
Remover = Callable[[Path], str]


def by_python(path: Path) -> str:
    return "\n".join(map(str, trees.remove(path)))


def by_shell(path: Path) -> str:
    command = ["sh", "-euc", f'. "{SCRIPT}"; remove_tree "$1"', "remove", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(params=[by_python, by_shell])
def remove(request: pytest.FixtureRequest) -> Remover:
    remover: Remover = request.param
    return remover


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Return a directory of another user, with a file at two levels."""
    path = tmp_path / "others"
    (path / "below").mkdir(parents=True)
    (path / "disk").write_text("data")
    (path / "below/disk").write_text("data")
    return path


def is_whole(others: Path) -> bool:
    return (others / "disk").exists() and (others / "below/disk").exists()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a directory with names that shells and the kernel's list of mounts treat in a special way."""
    path = tmp_path / "a tree"
    for name in ("a b/c", "-rf/x", ".hidden/..y", "back\\slash", "tab\there", "star*"):
        (path / name).mkdir(parents=True)
        (path / name / "file").write_text("mine")
    return path


def test_tree_without_mounts_is_removed(tree: Path, remove: Remover) -> None:
    assert remove(tree) == ""
    assert not tree.exists()


def test_path_that_is_missing_is_no_error(tmp_path: Path, remove: Remover) -> None:
    assert remove(tmp_path / "missing/below") == ""


def test_link_is_removed_and_not_followed(tree: Path, others: Path, remove: Remover) -> None:
    (tree / "a b/link").symlink_to(others)
    assert remove(tree) == ""
    tree.symlink_to(others)
    assert remove(tree) == ""
    assert not os.path.lexists(tree) and is_whole(others)


@NO_MOUNTS
@pytest.mark.parametrize("place", ["", "a b/c", "back\\slash", "tab\there", ".hidden/..y", "star*"])
def test_directory_that_is_mounted_stays_and_the_rest_goes(
    tree: Path, others: Path, mounts: Mounts, remove: Remover, place: str
) -> None:
    """A bind mount is of the same file system, so that its device does not tell."""
    mounts.bind(others, tree / place)
    said = remove(tree)
    assert is_whole(others)
    assert str(tree / place) in said
    mounts.end()
    if place:
        above = {str(path) for path in Path(place).parents if path.name}
        assert {str(path.relative_to(tree)) for path in tree.rglob("*")} == {place, f"{place}/file", *above}


@NO_MOUNTS
def test_file_system_that_is_mounted_stays(tree: Path, mounts: Mounts, remove: Remover) -> None:
    mounts.file_system(tree / "a b/c")
    (tree / "a b/c/disk").write_text("data")
    assert str(tree / "a b/c") in remove(tree)
    assert (tree / "a b/c/disk").read_text() == "data"
    assert not (tree / "star*").exists()


@NO_MOUNTS
def test_file_that_is_mounted_stays(tree: Path, others: Path, mounts: Mounts, remove: Remover) -> None:
    mounts.bind(others / "disk", tree / "a b/c/file")
    assert str(tree / "a b/c/file") in remove(tree)
    assert is_whole(others) and not (tree / "star*").exists()


@NO_MOUNTS
def test_mount_behind_a_link_in_the_path_stays(tree: Path, others: Path, mounts: Mounts, remove: Remover) -> None:
    """The kernel lists a mount by its own path, which differs from an operator's."""
    mounts.bind(others, tree / "star*")
    way = tree.parent / "way"
    way.symlink_to(tree.parent)
    assert str(way / "a tree/star*") in remove(way / "a tree")
    assert is_whole(others) and not (tree / "a b").exists()


@NO_MOUNTS
def test_tree_in_a_mount_is_removed(others: Path, mounts: Mounts, tmp_path: Path, remove: Remover) -> None:
    """The sandbox of a unit makes a mount of each directory that it may write."""
    (tmp_path / "state").mkdir()
    mounts.bind(others, tmp_path / "state")
    assert remove(tmp_path / "state/below") == ""
    assert not (others / "below").exists() and (others / "disk").exists()


@NO_MOUNTS
def test_discard_of_a_tree_with_a_mount_raises_an_error_that_names_it(tree: Path, others: Path, mounts: Mounts) -> None:
    mounts.bind(others, tree / "a b/c")
    with pytest.raises(OSError, match="something is mounted there") as raised:
        trees.discard(tree)
    assert raised.value.filename == str(tree / "a b/c") and is_whole(others)


#: Files with other ways: for directories that the same script has just made, and below which no program mounts.
OWN_WAYS = {
    "devstack/packaging/trees.sh",
    "devstack/packaging/install.sh",
    "devstack/container/Containerfile",
    "devstack/guest/build.sh",
    "devstack/guest/cloud-image.sh",
    "devstack/page.sh",
}


def test_everything_that_removes_trees_does_it_in_this_way() -> None:
    files = [
        path
        for top in ("nova_lite", "conformance", "devstack", "benchmarks", "tools")
        for path in (TOP / top).rglob("*")
    ]
    found = set()
    for path in files:
        if path.is_file() and not path.is_symlink() and "node_modules" not in path.parts:
            text = path.read_bytes().decode(errors="replace")
            if re.search(r"\brmtree\b|\brm +(-[\w=-]+ +)*-(\w*[rR]|-recursive)|removedirs", text):
                found.add(str(path.relative_to(TOP)))
    assert found - OWN_WAYS == set()


def test_error_is_returned_with_its_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.rmdir

    def rmdir(path: str, *, dir_fd: int) -> None:
        if path == "c":
            raise PermissionError(1, "Operation not permitted")
        original(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    assert trees.remove(tree) == [trees.Left(f"{tree}/a b/c", "Operation not permitted", is_error=True)]
