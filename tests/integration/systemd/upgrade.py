"""Upgrade of a cloud with three controllers under load, one machine after the other (docs/howto/upgrade.md).

``devstack/ha.sh --upgrade`` runs it. Each machine has a wheel of an older commit, and gets one of this checkout by the
commands of the page. It prints the requests of each step as a table, and fails if one failed or anything was lost.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.integration.systemd import failover
from tests.integration.systemd.bare_machine import SET_UP_SECONDS, VENV, BareMachine, read_until
from tests.integration.systemd.controllers import ADDRESSES, MANAGE, PYTHON, SETUP, Cloud
from tests.integration.systemd.machine import SOURCE
from tests.support.code_versions import LAST_RELEASE, TOP, build_wheel, copy_sources, unpack

#: Versions of the wheels.
OLDER, NEWER = "1.0.0", "1.0.1"
#: Seconds that a client waits for a response, as the command line client does.
PATIENCE = 60.0
STATUS = f"{VENV}/bin/nova-lite-status"
#: Failed requests of one kind that are printed.
SHOWN = 5
#: Prints the state of each unit of ours that a boot would start.
UNITS = "systemctl list-unit-files --state=enabled --no-legend 'nova-lite-*' | while read -r unit _; do "
UNITS += 'echo "$unit $(systemctl is-active "$unit")"; done'
#: Prints a sum of our settings of units.
SETTINGS = "cat /etc/systemd/system/nova-lite-* /etc/systemd/system/*.d/nova-lite.conf | sha256sum"


class Wheels(NamedTuple):
    older: pathlib.Path
    newer: pathlib.Path


def build(directory: pathlib.Path, commit: str) -> Wheels:
    """Build wheels of a commit and of this checkout."""
    tree = directory / "tree"
    tree.mkdir()
    unpack(commit, tree)
    made = []
    for sources, version in ((tree, OLDER), (TOP, NEWER)):
        copy, where = directory / f"sources-{version}", directory / f"wheel-{version}"
        copy.mkdir()
        made.append(build_wheel(copy_sources(sources, copy), where, version))
    return Wheels(*made)


def install_older(wheels: Wheels, machine: BareMachine) -> None:
    """Replace the checkout's code by the older wheel. The libraries stay those of the tests."""
    (site,) = (machine.tree / VENV.lstrip("/") / "lib").glob("python3*/site-packages")
    paths = (site / "here.pth").read_text().splitlines()
    (site / "here.pth").write_text("".join(f"{path}\n" for path in paths if path != SOURCE))
    for wheel in wheels:
        shutil.copy(wheel, machine.tree / "root")
    machine.run(PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", f"/root/{wheels.older.name}")
    assert machine.run(SETUP, "--version").split()[-1] == OLDER


# --- the upgrade


class Phase(NamedTuple):
    """Part of the upgrade, and its time."""

    title: str
    began: float
    ended: float


class Upgrade:
    """Upgrade of all machines of a cloud to ``wheel``. ``phases``: what was done, in order."""

    def __init__(self, cloud: Cloud, wheel: pathlib.Path) -> None:
        self.cloud, self._wheel = cloud, wheel
        self.phases: list[Phase] = []
        self._machines = {
            machine.name: machine for machine in (*cloud.controllers.values(), cloud.client, *cloud.others)
        }

    def run(self) -> None:
        """Do what the page says: the first controller, all others by ``upgrade run``, and each controller again.

        Then install the version once more on each controller, whose daemons restart from this version.
        """
        first = self.cloud.controllers["ha1"]
        self._upgrade("ha1")
        process = first.start(MANAGE, "upgrade", "run")
        try:
            while found := re.search(r"\] (\w+): upgrade it now", said := read_until(process, "waiting (")):
                self._upgrade(found[1])
            assert process.wait(SET_UP_SECONDS) == 0 and f"{len(self._machines)} host(s) have {NEWER}." in said, said
        finally:
            process.kill()
        for name in ADDRESSES:
            with self._phase(f"{name} again"):
                said = self._setup(name, "--no-backup")
            assert said.count("runs the installed version already") == said.count("Restarting"), said
        for name in ADDRESSES:
            self._upgrade(name, ", from this version", "--no-backup")

    def _upgrade(self, name: str, title: str = "", *arguments: str) -> None:
        with self._phase(name + title):
            print(self._setup(name, "--package", f"/root/{self._wheel.name}", *arguments), flush=True)

    def _setup(self, name: str, *arguments: str) -> str:
        return self._machines[name].run(SETUP, "upgrade", *arguments, seconds=SET_UP_SECONDS)

    @contextlib.contextmanager
    def _phase(self, title: str) -> Iterator[None]:
        began = time.time()
        yield
        self.phases.append(Phase(title, began, time.time()))

    def check(self) -> str:
        """Check versions, units and the checks of each machine. Returns a sentence."""
        first = self.cloud.controllers["ha1"]
        listed = json.loads(first.run(MANAGE, "service", "list", "--format", "json"))
        wrong = [row for row in listed if (row["version"], row["state"]) != (NEWER, "up")]
        assert not wrong and len(listed) == 2 * len(ADDRESSES) + len(failover.HOSTS), listed
        warnings = set()
        for name, machine in self._machines.items():
            assert machine.run(SETUP, "--version").split()[-1] == NEWER
            states = machine.run("sh", "-c", UNITS).splitlines()
            assert states and all(line.endswith(" active") for line in states), (name, states)
            assert not (failed := failover.failed_units(machine)), (name, failed)
            checks = json.loads(machine.run(STATUS, "upgrade", "check", "--json", check=False))["checks"]
            assert all(check["result"] < 2 for check in checks), (name, checks)
            warnings |= {f"{check['check']}: {check['details']}" for check in checks if check["result"]}
        for name, controller in self.cloud.controllers.items():
            before = controller.run("sh", "-c", SETTINGS)
            controller.run(SETUP, "units")
            assert controller.run("sh", "-c", SETTINGS) == before, f"{name} has settings of units of an older version"
        schema = first.run(MANAGE, "db", "version").strip()
        return (
            f"{len(listed)} daemons have {NEWER} and are up. Schema: {schema}. Warnings: {sorted(warnings) or 'none'}."
        )


# --- the figures

HEADER = (
    "| Upgraded | Seconds | GET: failed | longest | create, delete: failed | longest |",
    "|---|---|---|---|---|---|",
)


def table(phases: Sequence[Phase], entries: list[list[Any]]) -> list[str]:
    """Return lines with the requests that began in each phase. The last one has all."""
    everything = Phase("all", entries[0][1], max(entry[2] for entry in entries))
    return [*HEADER, *(_row(phase, entries) for phase in (*phases, everything))]


def _row(phase: Phase, entries: list[list[Any]]) -> str:
    cells = [phase.title, f"{phase.ended - phase.began:.0f}"]
    for kind in ("get", "change"):
        mine = [entry for entry in entries if entry[0] == kind and phase.began <= entry[1] <= phase.ended]
        longest = max((entry[2] - entry[1] for entry in mine), default=0.0)
        cells += [f"{sum(bool(entry[3]) for entry in mine)} of {len(mine)}", f"{longest:.1f} s"]
    return f"| {' | '.join(cells)} |"


def failures(phases: Sequence[Phase], entries: list[list[Any]]) -> list[str]:
    """Return lines with the failed requests by kind and failure: their number, and when the first ones began."""
    found = collections.defaultdict(list)
    for kind, began, ended, failure in entries:
        if failure:
            found[kind, failure[:160]].append((began, ended - began))
    return [
        f"{len(times)} {kind} failed: {failure}; "
        + ", ".join(f"{_place(phases, began)}, took {took:.1f} s" for began, took in times[:SHOWN])
        for (kind, failure), times in found.items()
    ]


def _place(phases: Sequence[Phase], at: float) -> str:
    phase = next((phase for phase in reversed(phases) if phase.began <= at), None)
    return f"{at - phase.began:.1f} s after the begin of {phase.title}" if phase else "before"


#: Prints the longest time from the acceptance of a create to its end.
_BUILDS = (
    "SELECT COUNT(*), MAX(TIMESTAMPDIFF(MICROSECOND, start_time, finish_time)) / 1e6, SUM(finish_time IS NULL) "
    "FROM nova_lite.instance_actions WHERE action = 'create'"
)


def builds(cloud: Cloud) -> str:
    found = cloud.controllers["ha1"].run("mariadb", "--batch", "--skip-column-names", "--execute", _BUILDS).split()
    return f"{found[0]} creates, of which {found[2]} are in progress; the longest took {float(found[1]):.1f} s."


def measure(cloud: Cloud, wheels: Wheels) -> bool:
    """Upgrade the cloud under load, and print the figures. Returns whether no request failed."""
    flavor, image = failover.set_up_hosts(cloud)
    accepted = failover.nothing_accepted()
    with contextlib.closing(failover.Guests(cloud)) as guests:
        load = failover.RunningLoad(cloud, "upgrade", flavor, image, PATIENCE)
        upgrade = Upgrade(cloud, wheels.newer)
        try:
            upgrade.run()
        finally:
            entries = load.finish(accepted)
            print("\n".join([*table(upgrade.phases, entries), "", *failures(upgrade.phases, entries)]), flush=True)
        failover.wait_until_whole(cloud)
        print(upgrade.check(), flush=True)
        print(failover.check(cloud, accepted, guests), flush=True)
        print(builds(cloud), flush=True)
    return not any(entry[3] for entry in entries)


def main() -> int:
    parser = argparse.ArgumentParser(prog="devstack/ha.sh --upgrade", description=__doc__)
    parser.add_argument("--stay", action="store_true", help="after a failure, keep the machines until Ctrl-C")
    parser.add_argument(
        "--from", dest="commit", default=LAST_RELEASE, help="commit of the older version; default: %(default)s"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nova-lite-wheels.") as directory:
        wheels = build(pathlib.Path(directory), args.commit)
        with failover.cloud_of_three(args.stay, functools.partial(install_older, wheels)) as cloud:
            has_passed = measure(cloud, wheels)
    print("No request failed." if has_passed else "Requests failed.")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
