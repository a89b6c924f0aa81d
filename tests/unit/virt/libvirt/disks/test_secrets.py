"""Secrets of encrypted volumes in libvirt: they are there while a guest opens the volume, and not longer."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VolumeKey, disk_key_id
from nova_lite.virt.libvirt.disks.secrets import OwnKeys, VolumeSecrets

ONE, TWO = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
GUEST = str(uuid.UUID(int=9))


class Secret:
    def __init__(self, libvirtd: Libvirtd, xml: str) -> None:
        self.libvirtd, self.xml = libvirtd, xml
        self.id = str(ET.fromstring(xml).findtext("uuid"))

    def setValue(self, value: bytes, flags: int) -> None:
        self.libvirtd.values[self.id] = value

    def undefine(self) -> None:
        if self.libvirtd.is_broken:
            raise exceptions.HypervisorUnavailable(host="here", reason="it does not answer")
        del self.libvirtd.secrets[self.id]
        self.libvirtd.values.pop(self.id, None)

    def XMLDesc(self, flags: int) -> str:
        return self.xml

    def UUIDString(self) -> str:
        return self.id


class Libvirtd:
    """A `Connection` to a libvirtd that keeps secrets."""

    def __init__(self) -> None:
        self.secrets: dict[str, Secret] = {}
        self.values: dict[str, bytes] = {}
        self.is_broken = False

    def get(self) -> Libvirtd:
        return self

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        return method(*args)

    def call_unless(self, codes: tuple[int, ...], method: Callable[..., Any], *args: Any) -> Any:
        return method(*args)

    def connect_call(self, name: str, *args: Any) -> Any:
        return getattr(self, name)(*args)

    def secretDefineXML(self, xml: str, flags: int) -> Secret:
        made = Secret(self, xml)
        self.secrets[made.id] = made
        return made

    def secretLookupByUUIDString(self, secret_id: str) -> Secret | None:
        return self.secrets.get(secret_id)

    def listAllSecrets(self, flags: int) -> list[Secret]:
        return list(self.secrets.values())


@pytest.fixture
def libvirtd() -> Libvirtd:
    return Libvirtd()


def secrets_of(libvirtd: Libvirtd, host: str = "here") -> VolumeSecrets:
    def key(volume_id: str) -> VolumeKey:
        if volume_id == TWO:
            raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="it was destroyed")
        return VolumeKey(passphrase=f"passphrase of {volume_id}")

    def tpm_key(instance_uuid: str) -> VolumeKey:
        return VolumeKey(passphrase=f"key of the TPM of {instance_uuid}")

    def disk_key(instance_uuid: str, role: str) -> VolumeKey:
        return VolumeKey(passphrase=f"key of {role} of {instance_uuid}")

    return VolumeSecrets(libvirtd, host, key, tpm_key, disk_key)  # type: ignore[arg-type]


def test_secret_is_ephemeral_private_and_gone_afterwards(libvirtd: Libvirtd) -> None:
    with secrets_of(libvirtd).loaded([ONE, ONE]):
        assert libvirtd.values == {ONE: f"passphrase of {ONE}".encode()}
        secret = ET.fromstring(libvirtd.secrets[ONE].xml)
        assert (secret.get("ephemeral"), secret.get("private")) == ("yes", "yes")
        assert "passphrase" not in libvirtd.secrets[ONE].xml
    assert (libvirtd.secrets, libvirtd.values) == ({}, {})


def test_secret_of_a_tpm_is_one_that_swtpm_gets_and_gone_afterwards(libvirtd: Libvirtd) -> None:
    with secrets_of(libvirtd).loaded([ONE], OwnKeys(GUEST, tpm=True)):
        assert libvirtd.values[GUEST] == f"key of the TPM of {GUEST}".encode()
        secret = ET.fromstring(libvirtd.secrets[GUEST].xml)
        assert (secret.get("ephemeral"), secret.get("private")) == ("yes", "yes")
        usage = secret.find("usage")
        assert usage is not None
        assert (usage.get("type"), usage.findtext("name")) == ("vtpm", f"nova_lite {GUEST}")
        assert ET.fromstring(libvirtd.secrets[ONE].xml).find("usage") is None
    assert (libvirtd.secrets, libvirtd.values) == ({}, {})


def test_secret_of_each_encrypted_disk_has_an_id_of_its_own_and_is_gone_afterwards(libvirtd: Libvirtd) -> None:
    with secrets_of(libvirtd).loaded([], OwnKeys(GUEST, disks=["root", "swap"])):
        assert libvirtd.values == {
            disk_key_id(GUEST, role): f"key of {role} of {GUEST}".encode() for role in ("root", "swap")
        }
        assert all(ET.fromstring(secret.xml).find("usage") is None for secret in libvirtd.secrets.values())
    assert (libvirtd.secrets, libvirtd.values) == ({}, {})


def test_secret_is_gone_after_a_failure(libvirtd: Libvirtd) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="qemu is gone"), secrets_of(libvirtd).loaded([ONE]):
        raise exceptions.VirtDriverError(reason="qemu is gone")
    with pytest.raises(exceptions.VolumeKeyUnavailable), secrets_of(libvirtd).loaded([ONE, TWO]):
        pytest.fail("the guest started without a key")
    assert libvirtd.secrets == {}


def test_key_that_does_not_fit_is_named_by_its_volume(libvirtd: Libvirtd) -> None:
    error = exceptions.VirtDriverError(reason="blockdev-add: Invalid password, cannot unlock any keyslot")
    with pytest.raises(exceptions.VirtDriverError, match=f"{ONE} does not fit"), secrets_of(libvirtd).loaded([ONE]):
        raise error
    with pytest.raises(exceptions.VirtDriverError, match="Invalid password"), secrets_of(libvirtd).loaded([]):
        raise error


def test_secret_of_an_incoming_guest_stays_until_it_has_arrived(libvirtd: Libvirtd) -> None:
    secrets = secrets_of(libvirtd)
    secrets.load_for_incoming([ONE], OwnKeys("guest"))
    secrets.forget_incoming("another")
    assert list(libvirtd.secrets) == [ONE]
    for _ in range(2):
        secrets.forget_incoming("guest")
        assert libvirtd.secrets == {}
    secrets.load_for_incoming([ONE], OwnKeys(GUEST, True, ["root"]))
    assert set(libvirtd.secrets) == {ONE, GUEST, disk_key_id(GUEST, "root")}
    secrets.forget_incoming(GUEST)
    assert libvirtd.secrets == {}


def test_secret_that_libvirtd_does_not_remove_is_reported(libvirtd: Libvirtd, caplog: pytest.LogCaptureFixture) -> None:
    with secrets_of(libvirtd).loaded([ONE]):
        libvirtd.is_broken = True
    assert f"libvirt keeps the secret {ONE}" in caplog.text


def test_secrets_of_a_killed_daemon_are_removed_at_its_start(libvirtd: Libvirtd) -> None:
    libvirtd.secretDefineXML(f"<secret><uuid>{TWO}</uuid><description>of an operator</description></secret>", 0)
    secrets_of(libvirtd, "elsewhere").load_for_incoming([str(uuid.UUID(int=3))], OwnKeys("guest"))
    secrets_of(libvirtd).load_for_incoming([ONE], OwnKeys("guest"))
    secrets_of(libvirtd).remove_old()
    assert sorted(libvirtd.secrets) == [TWO, str(uuid.UUID(int=3))]
