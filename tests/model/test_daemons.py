"""Traces of daemons that write files and a table are judged as those of one process are."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import files
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.rpc import InProcess
from tests.model import daemons, forbidden_runs
from tests.model.daemons import DaemonTraces
from tests.model.unguarded import GUARDS
from tests.model.unreliable_cloud import UnreliableCloud

SERVER = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"


class RecordedCloud(UnreliableCloud):
    """An unreliable cloud whose daemons record as processes do."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.traces = DaemonTraces(directory / "traces", self.conductor.db)

    def _make_bus(self) -> InProcess:
        self.database = self.conf.database.connection
        daemons.prepare(self)
        return super()._make_bus()


@contextlib.contextmanager
def recorded_cloud(directory: Path) -> Iterator[RecordedCloud]:
    """Run a cloud in whose process a conductor and a host record."""
    folder = directory / "traces"
    folder.mkdir()
    with daemons.recording("conductor", folder), daemons.recording("compute-1", folder):
        cloud = RecordedCloud(directory)
        yield cloud
        cloud.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedCloud]:
    with recorded_cloud(tmp_path_factory.mktemp("cloud")) as made:
        yield made


def test_traces_of_an_unreliable_cloud_are_paths(cloud: RecordedCloud) -> None:
    for seed in range(2):
        cloud.run(seed)
    judgement = cloud.traces.judge()
    assert (judgement.paths, judgement.unjudged, judgement.refused) == (2, 0, {})
    assert cloud.traces.judge() == daemons.Judgement(), "a trace is judged once"


@pytest.mark.parametrize("rule", ["fence before report", "one driver"])
def test_trace_without_a_protection_is_refused(cloud: RecordedCloud, rule: str) -> None:
    """A host's write is missing in the first trace. A transaction of a conductor is too many in the second."""
    forbidden_runs.run(cloud, rule, GUARDS[rule]())
    (refused,) = cloud.traces.judge().refused.values()
    assert "no step of the model makes the rows" in refused


def test_trace_with_too_long_a_search_is_not_judged(cloud: RecordedCloud) -> None:
    cloud.run(0)
    assert cloud.traces.judge(states=10) == daemons.Judgement(unjudged=1)


def test_trace_ends_where_the_model_has_no_operation(cloud: RecordedCloud) -> None:
    cloud.begin()
    server = cloud.send_create()
    assert cloud.settle(server)
    cloud.request("POST", f"/servers/{server}/action", {"pause": None})
    assert cloud.settle(server)
    cloud.request("DELETE", f"/servers/{server}")
    assert cloud.settle(server)
    assert cloud.traces.judge().paths == 1
    assert {row.kind for row in cloud.traces.judged_rows} == {"create", None, "pausing"}


def write_record(directory: Path, is_written: bool) -> None:
    """Write a record in a daemon that is killed right after the write, or right before it."""

    def write(path: str, data: bytes) -> None:
        if is_written:
            files.write_atomically(path, data)
        os.kill(os.getpid(), signal.SIGKILL)

    with daemons.recording("compute-1", directory / "traces"):
        FencingTokenStore(str(directory / "host1"), write).revoke(SERVER, 3)


@pytest.mark.parametrize("is_written", [True, False])
def test_write_of_a_killed_daemon_counts_if_the_next_one_finds_it(tmp_path: Path, is_written: bool) -> None:
    (tmp_path / "traces").mkdir()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            write_record(tmp_path, is_written)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    read = DaemonTraces(tmp_path / "traces", None)  # type: ignore[arg-type]  # it reads no rows here
    read.read_files()
    assert read.has_unknown_write(SERVER)
    with daemons.recording("compute-1", tmp_path / "traces"):
        FencingTokenStore(str(tmp_path / "host1"))
    read.read_files()
    assert not read.has_unknown_write(SERVER)
    tokens = [note.value for note in read.writes_of(SERVER) if note.stream == "tokens"]
    assert tokens == ([(3, 0)] if is_written else [])
