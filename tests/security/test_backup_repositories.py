"""Backups of another project, with the real restic: no id of a project leads into a repository that is not its own."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.backups import repository
from nova_lite.backups.disk_data import Target
from nova_lite.backups.repository import Repositories, Repository
from nova_lite.base import exceptions
from tests.support.quick_restic import quick_restic  # noqa: F401

pytestmark = [
    pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic"),
    pytest.mark.usefixtures("quick_restic"),
]

VICTIM, PLAIN = "victim/of:keystone", "p1"
#: Ids of projects that an attacker who may name projects could choose.
HOSTILE = (
    hashlib.sha256(VICTIM.encode()).hexdigest(),
    f"../repository/{PLAIN}",
    f"./{PLAIN}",
    f"{PLAIN}/",
    f"{PLAIN}/../{PLAIN}",
    f"{PLAIN}\n",
    f"x/../{PLAIN}",
    "..",
    ".",
    "",
    "/",
    "-" + PLAIN,
    f"--repo={PLAIN}",
)


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    password = tmp_path / "password"
    password.write_text("hidden")
    return Repositories(f"{tmp_path}/repository", str(password), f"{tmp_path}/cache")


def writing(data: bytes) -> Callable[[Target], None]:
    return lambda target: target.write(data)


def read(found: Repository, snapshot: str, digest: str) -> bytes:
    with found.read(snapshot, digest) as source:
        return b"".join(iter(lambda: source.read(65536), b""))


def test_every_id_of_a_project_has_a_place_of_its_own_in_the_location(tmp_path: Path) -> None:
    repositories = Repositories(str(tmp_path), "", "")
    places = {
        project: Path(repositories.of_project(project)._environment["RESTIC_REPOSITORY"])
        for project in (VICTIM, PLAIN, *HOSTILE)
    }
    for (one, first), (other, second) in itertools.combinations(places.items(), 2):
        assert first != second, (one, other)
    for place in places.values():
        assert place.parent == tmp_path and place.resolve() == place


@pytest.mark.parametrize("hostile", HOSTILE[:2])
def test_backup_of_another_project_is_neither_read_nor_removed(
    repositories: Repositories, tmp_path: Path, hostile: str
) -> None:
    """The attacker knows the names of the victim's snapshots, and uses the victim's tags."""
    stored = {}
    for project in (VICTIM, PLAIN):
        own = repositories.of_project(project, may_be_missing=True)
        stored[project] = own.store("one", writing(project.encode() * 1000))
    attacker = repositories.of_project(hostile, may_be_missing=True)
    theirs = attacker.store("one", writing(b"mine"))
    for project, victims in stored.items():
        with pytest.raises(exceptions.BackupRepositoryError):
            read(attacker, victims.snapshot, victims.digest)
        with pytest.raises(exceptions.BackupRepositoryError):
            read(repositories.of_project(project), theirs.snapshot, theirs.digest)
    assert attacker.present(["one"]) == {theirs.snapshot}
    attacker.forget("one")
    attacker.prune()
    for project, victims in stored.items():
        assert read(repositories.of_project(project), victims.snapshot, victims.digest) == project.encode() * 1000
