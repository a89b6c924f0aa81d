"""Probe whether KVM really works on this machine.

On some machines (nested, or partly emulated) /dev/kvm opens and even creates virtual CPUs, and libvirt offers the type.
Then guests hang at their first instructions, or the host's kernel emulates each of their instructions. A boot sector
survives that, but a guest's kernel does not.

So ``virt_type = auto`` boots the smallest possible guest, with a deadline and the CPU model of real guests. It is a
boot sector that counts for some hundredths of a second of processor time. Then it prints one word on the serial port,
and leaves through qemu's isa-debug-exit device. The result is stored on disk until the machine boots again, or the
kernel, qemu or the probe changes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import pwd
import re
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable

import msgspec

from nova_lite.base import files, metrics

LOG = logging.getLogger(__name__)

KVM = "kvm"
QEMU = "qemu"
DEVICE = "/dev/kvm"
#: Seconds for defining and starting a domain above which the reason is logged. The normal time is half a second.
SLOW_START_SECONDS = 5.0
EMULATOR = "qemu-system-x86_64"

#: Number of queries of libvirt to qemu that count as repeated if they are seen within so many seconds. A restart of
#: libvirtd causes one or two for each emulator.
REPEATED_PROBES = 4
PROBE_WINDOW = 120.0
#: Part of an argument of such a process: its own directory.
_PROBE = re.compile(r"/(qmp-[^/,]+)/qmp\.monitor")

#: qemu's name of the largest CPU model that guests can have (libvirt's host-passthrough and maximum).
CPU_MODELS = {KVM: "host", QEMU: "max"}

GREETING = b"nova-lite-probe"
#: Iterations of the probe guest: about 0.05 s of a processor, or 0.3 s of qemu's emulation. Where the kernel emulates
#: each instruction, at 10 to 500 ns, they take seconds.
ROUNDS = 1 << 27
_SERIAL_PORT = 0x3F8
_EXIT_PORT = 0xF4
_EXIT_VALUE = 0x2A
#: isa-debug-exit ends qemu with (value << 1) | 1.
EXIT_STATUS = (_EXIT_VALUE << 1) | 1


def boot_sector(rounds: int = ROUNDS) -> bytes:
    """Return 512 bytes of 16-bit code for the probe guest.

    It counts ``rounds`` (1 to 2^32 - 1) down, sends each byte of `GREETING` to the first serial port, and leaves with
    the exit status.
    """
    load_address = 0x7C00
    code_length = 35
    message = (load_address + code_length).to_bytes(2, "little")
    code = b"".join(
        (
            b"\xfa\x31\xc0\x8e\xd8",  # cli; xor ax, ax; mov ds, ax
            b"\x66\xb9" + rounds.to_bytes(4, "little"),  # mov ecx, rounds
            b"\x66\x49\x75\xfc",  # round: dec ecx; jnz round
            b"\xfc\xbe" + message,  # cld; mov si, message
            b"\xba" + _SERIAL_PORT.to_bytes(2, "little"),  # mov dx, the serial port
            b"\xac\x84\xc0\x74\x03\xee\xeb\xf8",  # next: lodsb; test al, al; jz done; out dx, al; jmp next
            b"\xb0" + bytes([_EXIT_VALUE]) + b"\xe6" + bytes([_EXIT_PORT]),  # done: mov al, value; out exit port, al
            b"\xf4",  # hlt
        )
    )
    if len(code) != code_length:
        raise AssertionError(f"the boot sector's code has {len(code)} bytes")
    return (code + GREETING + b"\0").ljust(510, b"\0") + b"\x55\xaa"


def runs_guests(accelerator: str, timeout: float) -> bool:
    """Check whether the probe guest prints and leaves within ``timeout`` seconds under ``accelerator`` (kvm or tcg)."""
    model = CPU_MODELS[KVM if accelerator == "kvm" else QEMU]
    # A kill of the daemon leaves no file: this one is in memory.
    with open(os.memfd_create("nova-lite-probe"), "wb", buffering=0) as disk:
        disk.write(boot_sector())
        path = f"/proc/self/fd/{disk.fileno()}"
        command = [EMULATOR, "-nodefaults", "-no-user-config", "-display", "none", "-m", "16"]
        command += ["-machine", f"pc,accel={accelerator}", "-cpu", model, "-serial", "stdio"]
        command += [
            "-drive",
            f"file={path},format=raw,if=floppy,readonly=on",
            "-boot",
            "order=a",
        ]
        command += ["-device", f"isa-debug-exit,iobase={_EXIT_PORT:#x},iosize=1"]
        started = time.monotonic()
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
                pass_fds=[disk.fileno()],
            )
        except subprocess.TimeoutExpired:
            LOG.info("Under %s the probe guest did not run within %.1f s", accelerator, timeout)
            return False
        except OSError as error:
            LOG.info("Under %s the probe guest could not be started: %s", accelerator, error)
            return False
    ran = result.returncode == EXIT_STATUS and GREETING in result.stdout
    LOG.info("Under %s the probe guest %s (%.2f s)", accelerator, _verdict(ran, result), time.monotonic() - started)
    return ran


def _verdict(ran: bool, result: subprocess.CompletedProcess[bytes]) -> str:
    if ran:
        return "ran"
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return f"failed: status {result.returncode}, {lines[-1] if lines else 'no message'}"


class ProbeResult(msgspec.Struct, frozen=True):
    """Result of the probe, and the machine state for which it is valid."""

    key: list[str]
    virt_type: str


def choose_virt_type(cache_path: str, timeout: float, device: str = DEVICE, host: str = "") -> str:
    """Return ``kvm`` if it runs guests here, else ``qemu``. The result is stored in the file ``cache_path``.

    ``host``: name of this host, as daemons of several ones may have the same file.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        LOG.info("%s cannot be used, so guests are emulated", device)
        return QEMU
    key = _machine_state(timeout)
    known = _read(cache_path)
    if known is not None and known.key == key:
        return known.virt_type
    answer = ProbeResult(key=key, virt_type=KVM if runs_guests("kvm", timeout) else QEMU)
    os.makedirs(os.path.dirname(cache_path), exist_ok=True)
    files.remove_unfinished(os.path.dirname(cache_path), host)
    files.write_atomically(cache_path, msgspec.json.encode(answer), durable=False, writer=host)
    return answer.virt_type


def _machine_state(timeout: float) -> list[str]:
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    version = subprocess.run([EMULATOR, "--version"], capture_output=True, text=True, check=False).stdout
    return [boot_id, platform.release(), version.partition("\n")[0], CPU_MODELS[KVM], str(ROUNDS), str(timeout)]


def _read(path: str) -> ProbeResult | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=ProbeResult)
    except (OSError, ValueError) as error:
        LOG.debug("No usable probe result in %s: %s", path, error)
        return None


# --- repeated queries of libvirt


class ProbeWatch:
    """Notices that libvirt queries qemu for its capabilities again and again.

    libvirt starts a qemu for each query. `look` finds these processes; call it with each inventory. ``user``: uid and
    gid of guests, see `qemu_user`.
    """

    def __init__(
        self,
        user: tuple[int, int] | None,
        device: str = DEVICE,
        processes: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._user = user
        self._device = device
        self._processes = processes
        self._clock = clock
        #: Times at which the processes were seen first, by the directory that libvirt makes for each.
        self._seen: dict[str, float] = {}
        self._is_reported = False

    def look(self) -> None:
        """Count new processes. Log repeated ones once, until there are none for `PROBE_WINDOW`."""
        now = self._clock()
        for name in probes(self._processes):
            if name not in self._seen:
                metrics.HYPERVISOR_PROBES.inc()
                self._seen[name] = now
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen < PROBE_WINDOW}
        if not self._seen:
            self._is_reported = False
        if len(self._seen) >= REPEATED_PROBES and not self._is_reported:
            self._is_reported = True
            LOG.warning(
                "libvirt queries qemu for its capabilities again and again (%d times in %.0f s), so guests start "
                "slowly: %s",
                len(self._seen),
                now - min(self._seen.values()),
                self._reason(),
            )

    def _reason(self) -> str:
        if self._user is not None and is_closed_to(*self._user, self._device):
            return (
                f"qemu's user (uid {self._user[0]}) cannot open {self._device}. "
                f"Right would be: chgrp kvm {self._device}; chmod 660 {self._device}"
            )
        return "see libvirtd's log, and whether it can write /var/cache/libvirt/qemu/capabilities"


def probes(processes: str = "/proc") -> set[str]:
    """Return the directories of the qemu processes that libvirt queries just now, one for each process."""
    found = set()
    for pid in filter(str.isdigit, os.listdir(processes)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(os.path.join(processes, pid, "cmdline"), "rb") as file:
                arguments = file.read().decode(errors="replace").split("\0")
            if any(argument.startswith("none,") for argument in arguments):
                found |= {match[1] for argument in arguments if (match := _PROBE.search(argument))}
    return found


# --- permissions of the device


def explain_slow_start(instance_uuid: str, seconds: float, capabilities: str, device: str = DEVICE) -> None:
    """Log why a domain started slowly, if an operator can remove the reason.

    libvirt checks KVM with the permissions of qemu's user, and queries qemu, which may find KVM nevertheless. Then
    libvirt regards qemu's reply as outdated, and repeats the query more than ten times per guest.
    """
    user = qemu_user(capabilities) if seconds >= SLOW_START_SECONDS else None
    if user is not None and is_closed_to(*user, device):
        LOG.warning(
            f"Instance %s took libvirt %.1f s to start: qemu's user (uid %d) cannot open {device}, so libvirt queries "
            f"qemu for its capabilities again and again. Right would be: chgrp kvm {device}; chmod 660 {device}",
            instance_uuid,
            seconds,
            user[0],
        )


def qemu_user(capabilities: str) -> tuple[int, int] | None:
    """Return uid and gid of guests from libvirt's capabilities. None if guests have no separate user."""
    label = ET.fromstring(capabilities).findtext("./host/secmodel[model='dac']/baselabel")  # noqa: S314 libvirt's own
    if label is None:
        return None
    uid, _, gid = label.partition(":")
    return int(uid), int(gid)


def is_closed_to(uid: int, gid: int, device: str = DEVICE) -> bool:
    """Check whether the device exists and this user, with all its groups, may not read and write it."""
    try:
        found = os.stat(device)
        user = pwd.getpwuid(uid)
        groups = {gid, *os.getgrouplist(user.pw_name, user.pw_gid)}
    except (FileNotFoundError, KeyError):
        return False
    if uid == 0:
        return False
    needed = 0o600 if found.st_uid == uid else 0o060 if found.st_gid in groups else 0o006
    return found.st_mode & needed != needed
