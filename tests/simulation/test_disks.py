"""Disks of hosts: a power cut takes no file that was synced, and may take others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import files
from tests.simulation.disks import Disks
from tests.simulation.scheduler import Process, Scheduler

HOST = "host1"
SEEDS = range(40)


def places(tmp_path: Path, seed: int) -> tuple[Path, Path]:
    """Return the directories of the fencing records and the domains of a new host."""
    fences, domains = tmp_path / f"{seed}/fences/{HOST}", tmp_path / f"{seed}/instances/fake-{HOST}/domains"
    fences.mkdir(parents=True)
    domains.mkdir(parents=True)
    return fences, domains


def disks_of(tmp_path: Path, seed: int) -> Disks:
    return Disks(Scheduler(seed), tmp_path / str(seed), [HOST])


def content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def test_file_that_was_synced_outlives_each_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        fences, _ = places(tmp_path, seed)
        disks = disks_of(tmp_path, seed)
        monkeypatch.setattr(os, "fsync", disks.synced)
        files.write_atomically(str(fences / "a.json"), b"old")
        files.write_atomically(str(fences / "a.json"), b"new")
        disks.power_cut(HOST)
        assert content(fences / "a.json") == "new"


def test_file_that_was_not_synced_is_new_old_or_empty_after_power_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for seed in SEEDS:
        fences, _ = places(tmp_path, seed)
        disks = disks_of(tmp_path, seed)
        monkeypatch.setattr(os, "fsync", disks.synced)
        files.write_atomically(str(fences / "a.json"), b"old")
        files.write_atomically(str(fences / "a.json"), b"new", durable=False)
        disks.power_cut(HOST)
        seen.add(content(fences / "a.json"))
    assert seen == {"new", "old", ""}


def test_domain_that_was_removed_may_be_back_and_a_new_one_gone_after_power_cuts(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        _, domains = places(tmp_path, seed)
        (domains / "old.json").write_text("old")
        disks = disks_of(tmp_path, seed)
        (domains / "old.json").unlink()
        (domains / "new.json").write_text("new")
        disks.power_cut(HOST)
        seen.add((content(domains / "old.json"), content(domains / "new.json")))
    assert seen == {(None, None), ("old", None), (None, "new"), ("old", "new")}


def test_file_that_is_older_than_the_kernels_delay_outlives_a_power_cut(tmp_path: Path) -> None:
    for seed in SEEDS:
        _, domains = places(tmp_path, seed)
        sim = Scheduler(seed)
        disks = Disks(sim, tmp_path / str(seed), [HOST])
        (domains / "new.json").write_text("new")

        def work(sim: Scheduler = sim) -> None:
            sim.sleep(31.0)
            sim.finish()

        sim.spawn(Process(HOST), work, "main")
        sim.run(100.0)
        disks.power_cut(HOST)
        assert content(domains / "new.json") == "new"


def test_ring_file_loses_its_first_page_or_its_end_in_power_cuts(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        places(tmp_path, seed)
        ring = tmp_path / f"{seed}/usage/{HOST}"
        ring.parent.mkdir()
        ring.write_bytes(b"x" * 4 * 4096)
        disks_of(tmp_path, seed).power_cut(HOST)
        data = ring.read_bytes()
        seen.add((data[:1] == b"x", len(data) == 4 * 4096))
    assert len(seen - {(False, False)}) == 3
