"""Guests with an emulated TPM: what their kernels see of it, and that its state stays with them.

The guests boot by UEFI, which measures into the TPM. They read the log of these events, and write a mark into the TPM's
own memory.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VolumeKey
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeDriver, MakeHost, guest_spec
from tests.integration.libvirt.moves import arriving, lines, migrate
from tests.support.waiting import wait_for

#: Sends commands to the TPM, in hexadecimal. The index 01500020 of its memory has no password.
SCRIPT = """
exec 3<>/dev/tpm0
tpm() {
    printf "$(echo "$1" | sed 's/../\\\\x&/g')" >&3
    dd bs=4096 count=1 <&3 2>/dev/null | od -An -v -tx1 | tr -d ' \\n'
}
session=00000009400000090000000000
memory=0150002001500020
version=$(cat /sys/class/tpm/tpm0/tpm_version_major)
mount -t securityfs securityfs /sys/kernel/security
log=/sys/kernel/security/tpm0/binary_bios_measurements
echo "tpm version $version, pcr 0: $(cat /sys/class/tpm/tpm0/pcr-sha256/0)"
echo "event log: $(wc -c <$log) bytes"
while :; do
    mark=$(tpm "8002000000230000014e${memory}${session}00080000" | cut -c33-48)
    echo "tpm has: ${mark:-nothing}, log $(sha256sum $log | cut -d' ' -f1)"
    if [ -z "$mark" ]; then
        tpm "80020000002d0000012a40000001${session}0000000e01500020000b0006000600000008" >/dev/null
        tpm "80020000002b00000137${memory}${session}0008MARK0000" >/dev/null
    fi
    sleep 1
done
"""

WINDOWS = {"hw_firmware_type": "uefi", "hw_machine_type": "q35", "hw_tpm_version": "2.0"}

pytestmark = pytest.mark.skipif(shutil.which("swtpm_setup") is None, reason="swtpm and swtpm-tools are not installed")


class Keys:
    """Keys by server, as a conductor has them."""

    def __init__(self) -> None:
        self.known: dict[str, VolumeKey] = {}
        self.sent: list[str] = []

    def get(self, instance_uuid: str) -> VolumeKey:
        self.sent.append(instance_uuid)
        if instance_uuid not in self.known:
            raise exceptions.TPMKeyUnavailable(instance_uuid=instance_uuid, reason="it was destroyed")
        return self.known[instance_uuid]


@pytest.fixture
def keys() -> Keys:
    return Keys()


Marked = tuple[SpawnSpec, str]


@pytest.fixture
def marking(images: Images, keys: Keys) -> Callable[..., Marked]:
    """Make guests that write a mark into their TPM, unless it has one."""

    def make(**properties: str) -> Marked:
        mark = uuid.uuid4().hex[:16]
        image = msgspec.structs.replace(images.ami, properties=images.ami.properties | WINDOWS | properties)
        user_data = scripts.user_data(SCRIPT.replace("MARK", mark))
        spec = guest_spec(images, [], image, config_drive=True, user_data=user_data, memory_mb=256)
        keys.known[spec.instance.uuid] = VolumeKey(passphrase=uuid.uuid4().hex)
        return spec, mark

    return make


def boots(driver: LibvirtDriver, spec: SpawnSpec) -> list[str]:
    return lines(driver, spec, "event log: ")


def wait_for_boot(driver: LibvirtDriver, spec: SpawnSpec, number: int = 1) -> str:
    """Return what the guest prints about its event log at its start of this number."""
    found: list[str] = wait_for(
        f"start {number}", lambda: log if len(log := boots(driver, spec)) >= number else [], PATIENCE
    )
    return found[number - 1]


def marks(driver: LibvirtDriver, spec: SpawnSpec, boot: int = 1) -> list[str]:
    """Return what the guest has read from its TPM since its start of this number."""
    text = driver.consoles.output(spec.instance.uuid, None).split("event log: ")
    return re.findall(r"tpm has: (\w+), log", text[boot]) if len(text) > boot else []


def wait_for_mark(driver: LibvirtDriver, spec: SpawnSpec, mark: str, boot: int = 1) -> list[str]:
    found: list[str] = wait_for(
        f"mark {mark}", lambda: seen if mark in (seen := marks(driver, spec, boot)) else [], PATIENCE
    )
    return found


def logs(driver: LibvirtDriver, spec: SpawnSpec) -> set[str]:
    """Return the checksums of the event log that the guest has read."""
    return set(re.findall(r"log (\w{64})\r?\n", driver.consoles.output(spec.instance.uuid, None)))


def state_file(driver: LibvirtDriver, spec: SpawnSpec) -> Path:
    return Path(driver.tpms.root, spec.instance.uuid, "tpm2", "tpm2-00.permall")


def emulators(instance_uuid: str) -> list[str]:
    """Return the command lines of the swtpm processes of a guest."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if command.startswith(("swtpm ", "/usr/bin/swtpm ")) and instance_uuid in command:
            found.append(command)
    return found


def secrets(connection: Any) -> set[str]:
    return {secret.UUIDString() for secret in connection.listAllSecrets()}


def test_guest_reads_its_event_log_and_finds_its_mark_after_each_start(
    connection: Any, make_driver: MakeDriver, keys: Keys, marking: Callable[..., Marked]
) -> None:
    driver = make_driver("tpm", libvirt__swtpm_enabled=True)
    driver.tpm_key = keys.get
    spec, mark = marking(hw_tpm_model="tpm-crb")
    instance_uuid = spec.instance.uuid
    driver.guests.spawn(spec)
    first = wait_for_boot(driver, spec)
    assert int(first.split()[2]) > 1000, first
    (measured,) = lines(driver, spec, "tpm version ")
    assert re.fullmatch(r"tpm version 2, pcr 0: [0-9A-F]{64}", measured)
    assert "0" * 64 not in measured
    assert wait_for_mark(driver, spec, mark)[0] == "nothing"

    assert instance_uuid not in secrets(connection)
    (command,) = emulators(instance_uuid)
    assert re.search(r"--key pwd(file-)?fd=\d+,mode=aes-256-cbc", command)
    assert keys.known[instance_uuid].passphrase not in command
    state = state_file(driver, spec)
    assert state.stat().st_mode & 0o077 == 0
    assert bytes.fromhex(mark) not in state.read_bytes(), "the state is not encrypted"

    driver.power.reboot(instance_uuid, "HARD", 0)
    assert wait_for_boot(driver, spec, 2) == first
    assert wait_for_mark(driver, spec, mark, 2)[0] == mark
    assert lines(driver, spec, "tpm version ") == [measured, measured], "another firmware was measured"

    driver.standby.suspend(instance_uuid)
    assert emulators(instance_uuid) == []
    driver.standby.resume(instance_uuid)
    seen = len(marks(driver, spec, 2))
    wait_for("the guest goes on", lambda: len(marks(driver, spec, 2)) > seen, PATIENCE)
    assert set(marks(driver, spec, 2)) == {mark}

    driver.power.off(instance_uuid, 0)
    domain = connection.lookupByUUIDString(instance_uuid)
    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)
    driver.definitions.recreate(spec)
    kept = keys.known.pop(instance_uuid)
    with pytest.raises(exceptions.TPMKeyUnavailable, match="it was destroyed"):
        driver.power.on(instance_uuid)
    keys.known[instance_uuid] = VolumeKey(passphrase="another")
    with pytest.raises(exceptions.InstancePowerOnFailure):
        driver.power.on(instance_uuid)
    assert instance_uuid not in secrets(connection)
    keys.known[instance_uuid] = kept
    driver.power.on(instance_uuid)
    wait_for_boot(driver, spec, 3)
    assert wait_for_mark(driver, spec, mark, 3)[0] == mark

    driver.guests.destroy(instance_uuid)
    assert not os.path.lexists(state.parent.parent)
    assert emulators(instance_uuid) == []


@pytest.fixture
def two_hosts(make_host: MakeHost, keys: Keys) -> tuple[LibvirtDriver, LibvirtDriver]:
    options = {"live_migration_uri": hosts.URI, "swtpm_enabled": True}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    here.tpm_key = there.tpm_key = keys.get
    there.tpms.root = f"/run/nova-lite-hosts/.{hosts.NUMBER}/lib/swtpm"
    return here, there


def test_state_moves_with_the_guest_cold_and_live(
    two_hosts: tuple[LibvirtDriver, LibvirtDriver], marking: Callable[..., Marked], connection: Any
) -> None:
    here, there = two_hosts
    spec, mark = marking()
    instance_uuid = spec.instance.uuid
    here.guests.spawn(spec)
    wait_for_boot(here, spec)
    wait_for_mark(here, spec, mark)

    source = here.moves.offer_disks(instance_uuid, 0)
    assert "tpm-2.0.state" in [file.name for file in source.files]
    moved = arriving(spec)
    there.moves.finish(moved, source, power_on=True)
    measured = wait_for_boot(there, moved)
    assert wait_for_mark(there, moved, mark)[0] == mark
    assert state_file(here, spec).exists(), "the guest may return"
    here.guests.destroy(instance_uuid)
    assert not here.tpms.has(instance_uuid)
    assert state_file(there, spec).exists()

    (log,) = logs(there, spec)
    back = arriving(spec, 3)
    migrate(there, here, back)
    here.live_moves.finish(instance_uuid)
    there.guests.destroy(instance_uuid)
    assert not there.tpms.has(instance_uuid)
    assert instance_uuid not in secrets(connection)
    wait_for("the guest reads its log after the migration", lambda: logs(here, spec) == {log}, PATIENCE)
    assert f"tpm has: {mark}, log {log}" in here.consoles.output(instance_uuid, None)
    here.power.reboot(instance_uuid, "HARD", 0)
    assert wait_for_boot(here, back) == measured
    assert wait_for_mark(here, back, mark)[0] == mark


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=LONG)], ids=["with a TPM", "without a TPM"])
def test_guest_that_is_resized_on_its_host_and_returns_has_its_old_state(
    two_hosts: tuple[LibvirtDriver, LibvirtDriver], marking: Callable[..., Marked], keeps: bool
) -> None:
    here, _ = two_hosts
    spec, mark = marking()
    instance_uuid = spec.instance.uuid
    here.guests.spawn(spec)
    wait_for_boot(here, spec)
    wait_for_mark(here, spec, mark)
    before = state_file(here, spec).read_bytes()

    source = here.moves.set_aside(instance_uuid, 0)
    stopped = state_file(here, spec).read_bytes()
    other = arriving(spec, root_gb=2)
    if not keeps:
        assert other.image is not None
        properties = {key: value for key, value in other.image.properties.items() if key != "hw_tpm_version"}
        other = msgspec.structs.replace(other, image=msgspec.structs.replace(other.image, properties=properties))
    here.moves.finish(other, source, power_on=keeps)
    assert here.tpms.has(instance_uuid) == keeps
    if keeps:
        wait_for_boot(here, other)
        assert wait_for_mark(here, other, mark)[0] == mark
    here.guests.destroy(instance_uuid)
    for _ in range(2):
        here.moves.restore(instance_uuid)
        assert state_file(here, spec).read_bytes() == stopped
    assert len(before) == len(stopped)
    here.power.on(instance_uuid)
    wait_for_boot(here, spec, 2)
    assert wait_for_mark(here, spec, mark, 2)[0] == mark
