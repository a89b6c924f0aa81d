"""Probe that does in a sandbox what its daemon does. It prints what is refused, and ends with status 1 then.

Usage: ``probe.py DAEMON``. It needs no broker and no hypervisor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib
import logging
import os
import pathlib
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

STATE = pathlib.Path("/var/lib/nova-lite")
INSTANCE = "11111111-2222-3333-4444-555555555555"


class Refused(Exception):
    """The sandbox does not let its daemon work, or lets it do more than it needs."""


def run(*command: str, **options: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise Refused(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def writes(path: pathlib.Path) -> None:
    """Write, lock, sync and remove a file."""
    descriptor, name = tempfile.mkstemp(dir=path)
    os.write(descriptor, b"content")
    os.fchmod(descriptor, 0o640)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(name, f"{name}-2")
    os.unlink(f"{name}-2")


def is_refused(what: Callable[[], object]) -> None:
    try:
        what()
    except (OSError, subprocess.SubprocessError):
        return
    raise Refused("it is allowed")


# --- every daemon


def loads_its_code(daemon: str) -> None:
    """Load all that the daemon loads, compiled extensions included."""
    module = importlib.import_module(f"nova_lite.cmd.{daemon}")
    if not callable(module.main):
        raise Refused(f"{module} has no main")


def listens_and_connects() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind((address, 0))
            server.listen()
            client.connect(server.getsockname())


def writes_to_the_journal(daemon: str) -> None:
    """Send an entry with fields, which the test looks for in the journal."""
    from nova_lite.base.structured_logs import JournalHandler

    record = logging.LogRecord("probe", logging.WARNING, "probe.py", 1, "two\nlines", None, None)
    record.instance_uuid = INSTANCE
    handler = JournalHandler(f"nova-lite-{daemon}", "h1")
    handler.handleError = handler._write_to_stderr = _refuse  # type: ignore[assignment, method-assign]
    handler.emit(record)


def _refuse(*why: object) -> None:
    raise Refused(repr(sys.exc_info()[1]))


def opens_many_files() -> None:
    """Hold more files than 1,000 connections need: a consoles' proxy has two for each."""
    files = []
    try:
        while len(files) < 2500:
            files.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in files:
            os.close(descriptor)


def starts_threads() -> None:
    threads = [threading.Thread(target=lambda: None) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def leaves_no_core() -> None:
    if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        raise Refused("a core would be written, with the keys in it")


def reads_the_neighbours() -> None:
    pathlib.Path("/proc/self/net/arp").read_text()


# --- single daemons


def keeps_to_one_cpu() -> None:
    os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})


def has_its_priority() -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) != -10:
        raise Refused(f"nice is {os.getpriority(os.PRIO_PROCESS, 0)}")


def uses_sqlite() -> None:
    with sqlite3.connect(STATE / "conductor/probe.sqlite") as database:
        database.execute("pragma journal_mode=wal")
        database.execute("create table probe (number)")
    os.unlink(STATE / "conductor/probe.sqlite")


def announces_an_address() -> None:
    run("ip", "link", "add", "probe0", "type", "bridge")
    run("ip", "link", "set", "probe0", "up")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as raw:
        raw.bind(("probe0", 0x0806))
        raw.send(b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28))
    run("ip", "link", "del", "probe0")


def makes_networks() -> None:
    run("ip", "link", "add", "probe1", "type", "bridge")
    run("ip", "addr", "add", "192.0.2.1/24", "dev", "probe1")
    pathlib.Path("/proc/sys/net/ipv6/conf/probe1/accept_ra").write_text("0")
    run("ip", "link", "del", "probe1")


def makes_realms() -> None:
    """Make a network namespace, run a program in it, listen there, and remove it."""
    from nova_lite.virt.libvirt.net import namespaces

    namespaces.add("nl-probe")
    namespaces.set_up(["ipv4/ip_forward=1", "ipv4/ip_unprivileged_port_start=80"], "nl-probe")
    namespaces.ip_batch(["link set dev lo up", "address add 192.0.2.1/32 dev lo"], "nl-probe")
    with namespaces.make_socket("nl-probe") as server:
        server.bind(("192.0.2.1", 80))
    namespaces.remove("nl-probe")
    if namespaces.exists("nl-probe"):
        raise Refused("the namespace is still there")


def filters_packets() -> None:
    run("nft", "-f", "-", input="table inet probe { }\ndelete table inet probe\n")


def may_load_modules() -> None:
    """Try the system call without a module, which would be loaded into this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(313, -1, b"", 0)  # finit_module
    if ctypes.get_errno() not in (errno.EBADF, errno.ENOSYS):  # ENOSYS: a kernel without modules
        raise Refused(os.strerror(ctypes.get_errno()))


def makes_disks() -> None:
    """Run qemu-img with limits, and give files to another user, as `nova_lite.virt.images` and the driver do."""
    with tempfile.TemporaryDirectory(dir=STATE / "instances") as directory:
        limits = ["prlimit", f"--as={2**32}", "--cpu=60"]
        run(*limits, "qemu-img", "create", "-f", "qcow2", f"{directory}/disk", "1G")
        run(*limits, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", f"{directory}/disk", f"{directory}/raw")
        run("cp", "--reflink=auto", "--sparse=always", "--", f"{directory}/raw", f"{directory}/copy")
        os.chown(f"{directory}/copy", 12345, 12345)
        os.chmod(f"{directory}/copy", 0)
        pathlib.Path(directory, "copy").open("rb").close()
        os.setxattr(f"{directory}/copy", "user.probe", b"1")


def ends_what_it_started() -> None:
    """Kill a child, as the daemon does with a qemu that hangs."""
    with subprocess.Popen(["sleep", "60"]) as child:
        os.kill(child.pid, signal.SIGKILL)


def runs_an_emulator() -> None:
    """Run a qemu that writes the code that it runs, as the probe of KVM does."""
    command = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "none", "-display", "none", "-nodefaults"]
    run(*command, "-monitor", "stdio", input="quit\n")


def confined(*writable: str) -> dict[str, Callable[[], None]]:
    """Return what no daemon but compute may do."""
    others = [
        STATE / name for name in ("instances", "fences", "images", "identity", "conductor") if name not in writable
    ]
    return {
        "may not open raw sockets": lambda: is_refused(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
        "may not open netlink sockets": lambda: is_refused(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
        **{f"may not write {path}": lambda path=path: is_refused(lambda: writes(path)) for path in others},
        **{f"writes {STATE / name}": lambda name=name: writes(STATE / name) for name in writable},
    }


def everywhere(daemon: str) -> dict[str, Callable[[], None]]:
    return {
        "loads its code": lambda: loads_its_code(daemon),
        "listens and connects": listens_and_connects,
        "opens many files": opens_many_files,
        "writes to the journal": lambda: writes_to_the_journal(daemon),
        "starts threads": starts_threads,
        "leaves no core": leaves_no_core,
        "writes temporary files": lambda: writes(pathlib.Path(tempfile.gettempdir())),
        "may not write the configuration": lambda: is_refused(lambda: writes(pathlib.Path("/etc/nova-lite"))),
        "may not write the code": lambda: is_refused(lambda: writes(pathlib.Path("/opt/nova-lite/venv/bin"))),
        "may not mount": lambda: is_refused(lambda: run_mount()),
    }


def run_mount() -> None:
    if ctypes.CDLL(None, use_errno=True).mount(b"none", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


def own_proc() -> dict[str, Callable[[], None]]:
    """Return what only a daemon that reads the kernel's settings may do."""
    return {
        "may not read the kernel's settings": lambda: is_refused(pathlib.Path("/proc/sys/kernel/osrelease").read_text)
    }


DAEMONS: dict[str, dict[str, Callable[[], None]]] = {
    "api": {"reads the neighbours": reads_the_neighbours, **own_proc(), **confined("images", "identity")},
    "conductor": {
        "keeps to one CPU": keeps_to_one_cpu,
        "has its priority": has_its_priority,
        "uses SQLite": uses_sqlite,
        **confined("images", "conductor"),
    },
    "scheduler": own_proc() | confined(),
    "novncproxy": own_proc() | confined(),
    "serialproxy": own_proc() | confined(),
    "spicehtml5proxy": own_proc() | confined(),
    "compute": {
        "announces an address": announces_an_address,
        "makes networks": makes_networks,
        "makes realms": makes_realms,
        "filters packets": filters_packets,
        "may load modules": may_load_modules,
        "makes disks": makes_disks,
        "ends what it started": ends_what_it_started,
        "runs an emulator": runs_an_emulator,
        "writes leases": lambda: writes(pathlib.Path("/var/lib/libvirt/dnsmasq")),
        **{
            f"writes {name}": lambda name=name: writes(STATE / name)
            for name in ("instances", "volumes", "fences", "images")
        },
    },
}


def main(daemon: str) -> int:
    failed = 0
    for name, work in (everywhere(daemon) | DAEMONS[daemon]).items():
        try:
            work()
        except Exception as error:
            failed = 1
            print(f"REFUSED {name}: {type(error).__name__}: {error}")
        else:
            print(f"ok {name}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
