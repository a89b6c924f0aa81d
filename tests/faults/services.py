"""Neutron and Cinder in the fault matrix: small ones over HTTP, which the daemons ask by their real clients.

A request to them is refused before it is done, or not answered after it was done, wherever one is sent. What they hold
in the end matches the servers: no port and no attachment twice, none without a server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.functional import cloud
from tests.support.cinder import BRICK, Cinder
from tests.support.neutron import FakeNeutron
from tests.support.waiting import wait_for_none

if TYPE_CHECKING:
    from tests.faults.arena import Arena

NEUTRON, CINDER = "neutron", "cinder"
#: A Cinder whose volumes are files.
FILES = "files"

#: Seconds that a call of several requests to Neutron has, and that a request to either has.
CALL, REQUEST = 6, 2
#: A port or an attachment in doubt is looked at again when the call that was not answered has surely ended.
SETTLE_SECONDS = 60.0
COMPUTE_API_ALONE = "[api]\nenabled_apis = osapi_compute\n"
LATEST = "2.95"


@dataclasses.dataclass(frozen=True)
class Services:
    """None: the built-in backend."""

    neutron: FakeNeutron | None = None
    cinder: Cinder | None = None

    def options(self) -> str:
        found = ""
        if self.neutron is not None:
            found += f"{self.neutron.options(REQUEST)}call_timeout = {CALL}\n"
        if self.cinder is not None:
            found += f"{self.cinder.options(REQUEST)}{COMPUTE_API_ALONE}"
        return found

    def environment(self) -> dict[str, str]:
        """Return what daemons need to connect volumes in files."""
        return {} if self.cinder is None or self.cinder.transport != "nfs" else BRICK

    def serve(self, running: cloud.Cloud) -> None:
        if self.neutron is not None:
            self.neutron.serve(running)

    def check(self, arena: Arena) -> None:
        """Check Neutron and Cinder while no action is open."""
        if self.neutron is not None:
            wait_for_none("Neutron has each server's port", lambda: _wrong_ports(arena), SETTLE_SECONDS)
        if self.cinder is not None:
            wait_for_none("Cinder has each server's volumes", lambda: _wrong_attachments(arena), SETTLE_SECONDS)

    def check_nothing_left(self) -> None:
        neutron, cinder = self.neutron, self.cinder
        if neutron is not None:
            wait_for_none("Neutron has no port", lambda: neutron.ports, SETTLE_SECONDS)
        if cinder is not None:
            wait_for_none("Cinder has no attachment", lambda: cinder.attachments, SETTLE_SECONDS)
            wait_for_none("volumes that were made for servers are gone", self._made, SETTLE_SECONDS)
            cinder.volumes.clear()
            cinder.snapshots.clear()

    def _made(self) -> list[str]:
        """Return the volumes that we created at Cinder."""
        return [] if self.cinder is None else [key for key, item in self.cinder.volumes.items() if item["metadata"]]


@contextlib.contextmanager
def running(names: tuple[str, ...]) -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        neutron = cinder = None
        if NEUTRON in names:
            neutron = FakeNeutron()
            stack.callback(neutron.stop)
            neutron.add("security-groups", name="default", project_id="demo")
            neutron.network("private", "demo", shared=True)
        if CINDER in names or FILES in names:
            cinder = Cinder()
            cinder.transport = "nfs" if FILES in names else "rbd"
            stack.callback(cinder.stop)
        yield Services(neutron, cinder)


# --- ports


def _neutron(arena: Arena) -> FakeNeutron:
    assert arena.services.neutron is not None
    return arena.services.neutron


def _wrong_ports(arena: Arena) -> list[str]:
    """Return ports that are missing, unconnected, or without a guest at Neutron."""
    expected: Counter[tuple[str, str, str, str]] = Counter()
    for server_id, (host, _) in arena.guests().items():
        expected.update((server_id, port_id, host, "ACTIVE") for port_id in arena.interfaces(server_id)[0])
    found = Counter(
        (port["device_id"], port["id"], port["binding:host_id"], port["status"]) for port in _neutron(arena).ports
    )
    return [f"{item}: {found[item]}, not {expected[item]}" for item in expected | found if expected != found]


# --- volumes


def _cinder(arena: Arena) -> Cinder:
    assert arena.services.cinder is not None
    return arena.services.cinder


def _volumes_of(arena: Arena, server_id: str) -> list[str]:
    answer = arena.send("GET", f"/servers/{server_id}/os-volume_attachments", version=LATEST)
    listed = answer.json()["volumeAttachments"] if answer is not None and answer.status_code == 200 else []
    return [item["volumeId"] for item in listed]


def _wrong_attachments(arena: Arena) -> list[str]:
    """Return volumes that are not attached exactly once, where their guest is."""
    cinder = _cinder(arena)
    expected: dict[str, list[tuple[str, str, str | None]]] = {volume_id: [] for volume_id in cinder.volumes}
    for server_id, (host, _) in arena.guests().items():
        for volume_id in _volumes_of(arena, server_id):
            expected[volume_id] = [(server_id, "attached", host)]
    found = {volume_id: cinder.held(volume_id) for volume_id in expected}
    wrong = [f"{item}: {found[item]}, not {expected[item]}" for item in expected if expected[item] != found[item]]
    states = {volume_id: "in-use" if expected[volume_id] else "available" for volume_id in cinder.volumes}
    return wrong + [
        f"{key} is {cinder.volumes[key]['status']}" for key in states if cinder.volumes[key]["status"] != states[key]
    ]


def server_and_volume(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)
    _cinder(arena).volume("demo")


def with_volume(arena: Arena) -> None:
    server_and_volume(arena)
    attach(arena)


def attach(arena: Arena) -> None:
    """Attach a volume. An unanswered try may have been accepted."""
    server_id, (volume_id,) = arena.one(), _cinder(arena).volumes
    body = {"volumeAttachment": {"volumeId": volume_id}}
    arena.insist_until(
        lambda: arena.send("POST", f"/servers/{server_id}/os-volume_attachments", body),
        lambda: _volumes_of(arena, server_id) == [volume_id],
    )
    _has_volumes(arena, [volume_id])


def detach(arena: Arena) -> None:
    server_id, (volume_id,) = arena.one(), _cinder(arena).volumes
    path = f"/servers/{server_id}/os-volume_attachments/{volume_id}"
    arena.insist("DELETE", path, None, (202, 404, 409))
    _has_volumes(arena, [])


def with_new_file(arena: Arena) -> None:
    with_volume(arena)
    make_snapshot(arena)


def make_snapshot(arena: Arena) -> None:
    """Let the guest have a new file. Cinder gets a report of the guest's file."""
    cinder, (volume_id,) = _cinder(arena), _cinder(arena).volumes
    snapshot_id = cinder.begun(volume_id)
    file = f"volume-{volume_id}.{snapshot_id}"
    info = {"snapshot_id": snapshot_id, "type": "qcow2", "new_file": file}
    body = {"snapshot": {"volume_id": volume_id, "create_info": info}}
    arena.insist("POST", "/os-assisted-volume-snapshots", body, (200, 400))
    told = _told(arena, snapshot_id)
    assert (told == "creating") == (_files(arena, volume_id)[0] == file), told


def delete_snapshot(arena: Arena) -> None:
    """Let the guest's files become one. Cinder gets a report whether they have."""
    cinder, (volume_id,) = _cinder(arena), _cinder(arena).volumes
    (snapshot_id,) = cinder.snapshots
    cinder.snapshots[snapshot_id] |= {"status": "deleting", "progress": "0%"}
    info = json.dumps({"volume_id": volume_id, "type": "qcow2", "file_to_merge": None, "merge_target_file": None})
    path = f"/os-assisted-volume-snapshots/{snapshot_id}?delete_info={quote(info)}"
    arena.insist("DELETE", path, None, (204, 400))
    assert (_told(arena, snapshot_id) == "deleting") == (len(_files(arena, volume_id)) == 1)


def _told(arena: Arena, snapshot_id: str) -> str:
    """Return the status that Cinder has got, when nothing is open any more."""
    found = _cinder(arena).snapshots[snapshot_id]
    arena.nothing_open()
    assert found["progress"] == "90%", "Cinder has the report"
    return str(found["status"])


def _files(arena: Arena, volume_id: str) -> list[str]:
    paths = arena.cloud.path.glob("*/instances/fake-*/domains/*.json")
    (names,) = [json.loads(path.read_text())["volume_files"][volume_id] for path in paths]
    return list(names)


def boot_from_volume(arena: Arena) -> None:
    """Boot a server from a volume that Cinder creates."""
    _ask_for_one_of_a_volume(arena)
    arena.settle("ACTIVE", 1)
    (volume_id,) = _cinder(arena).volumes
    _has_volumes(arena, [volume_id])


def boot_from_volume_in_vain(arena: Arena) -> None:
    """Boot from a volume without a chance: only its user's token may create it, so the build fails at its deadline."""
    _ask_for_one_of_a_volume(arena)
    arena.nothing_open()
    (server,) = arena.servers()
    made = list(_cinder(arena).volumes)
    if server["status"] != "ACTIVE":
        assert (server["status"], made) == ("ERROR", []), server
        assert "was not finished within" in server["fault"]["message"]


def _ask_for_one_of_a_volume(arena: Arena) -> None:
    """Request a server on a new volume. An unanswered request may have been accepted."""
    device = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": 0}
    device |= {"delete_on_termination": True}
    server = {"name": "vm", "flavorRef": "1", "networks": "auto", "block_device_mapping_v2": [device]}
    arena.insist_until(
        lambda: arena.send("POST", "/servers", {"server": server}, LATEST), lambda: bool(arena.servers())
    )


def _has_volumes(arena: Arena, expected: list[str]) -> None:
    server_id = arena.one()
    arena.nothing_open()
    arena.settle("ACTIVE", 1)
    guest, listed = arena.guest_volumes(server_id), _volumes_of(arena, server_id)
    assert (guest, listed) == (expected, expected), f"the guest has {guest}, its owner sees {listed}, not {expected}"
    arena.services.check(arena)
