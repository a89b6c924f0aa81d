"""The guard of a compute host: ends protected guests when the host's lease ends, also if the daemon hangs.

It is a process of its own (``python -m nova_lite.compute.guard``) that the daemon starts, and that outlives the daemon.
The daemon tells it over a socket which guests it protects, and when to end them. The guard then kills the daemon first,
so that no command that has begun starts a guest late. It kills the guests' processes, and whatever appears later, until
a daemon has a newer lease.

It imports nothing else of nova_lite, uses no hypervisor's daemon, and reads the clock that also counts while the
machine sleeps.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import glob
import json
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

LOG = logging.getLogger(__name__)

SOCKET = "guard.sock"
STOPPED = "stopped.json"

#: Seconds between two looks at the clock and, once the lease has ended, at the guests.
TICK = 0.25

#: Seconds after which a machine is reset whose guard stands still, and for which guests may resist their end.
WATCHDOG_SECONDS = 8
GRACE = 1.0

#: Seconds for which a guard waits until its list of stopped guests is on the disk.
WRITE_SECONDS = 1.0

#: ``WDIOC_SETTIMEOUT`` of linux/watchdog.h.
_SET_TIMEOUT = 0xC0045706

#: Largest message of the daemon: 10,000 guests are 400 KB.
_LONGEST = 4 * 1024 * 1024


def now() -> float:
    """Return the seconds since the machine started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Guests(Protocol):
    """Guests of a hypervisor, without its daemon."""

    def running(self, uuids: Iterable[str]) -> list[str]:
        """Return the guests of ``uuids`` that have a process."""
        ...

    def kill(self, uuids: Iterable[str]) -> None:
        """Kill the processes of these guests."""
        ...


class QemuGuests:
    """Guests of libvirt: processes that have ``-uuid UUID`` among their arguments."""

    def __init__(self, processes: str = "/proc") -> None:
        self._processes = processes

    def _found(self, uuids: Iterable[str]) -> dict[str, int]:
        wanted = set(uuids)
        found = {}
        for path in glob.glob(os.path.join(self._processes, "[0-9]*", "cmdline")):
            uuid = _uuid_of(path)
            if uuid in wanted:
                found[uuid] = int(path.split(os.sep)[-2])
        return found

    def running(self, uuids: Iterable[str]) -> list[str]:
        return sorted(self._found(uuids))

    def kill(self, uuids: Iterable[str]) -> None:
        for uuid, pid in self._found(uuids).items():
            # The process is looked at again once it cannot be replaced by another one of the same number.
            with contextlib.suppress(ProcessLookupError), _process(pid) as descriptor:
                if _uuid_of(os.path.join(self._processes, str(pid), "cmdline")) == uuid:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)


class FakeGuests:
    """Guests of the fake hypervisor: files of domains, in ``directory``."""

    RUNNING, OFF = (1, 3), 4

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def running(self, uuids: Iterable[str]) -> list[str]:
        return sorted(uuid for uuid in uuids if self._read(uuid).get("power_state") in self.RUNNING)

    def kill(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            domain = self._read(uuid)
            if domain.get("power_state") in self.RUNNING:
                _write(self._path(uuid), domain | {"power_state": self.OFF}, durable=False)

    def _path(self, uuid: str) -> str:
        return os.path.join(self._directory, "domains", f"{os.path.basename(uuid)}.json")

    def _read(self, uuid: str) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError), open(self._path(uuid), "rb") as file:
            domain: dict[str, Any] = json.load(file)
            return domain
        return {}


def guests_of(arguments: list[str]) -> Guests:
    """Return the guests of a driver, by its arguments for the guard."""
    return FakeGuests(arguments[1]) if arguments else QemuGuests()


class Watchdog:
    """The machine's watchdog device. A machine whose device is not fed for `WATCHDOG_SECONDS` is reset."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # A device of a fixed time has none to set.
            fcntl.ioctl(self._descriptor, _SET_TIMEOUT, struct.pack("i", WATCHDOG_SECONDS))

    def feed(self) -> None:
        os.write(self._descriptor, b"\0")

    def close(self) -> None:
        """Stop the device: the kernel takes this letter for a request to do that."""
        os.write(self._descriptor, b"V")
        os.close(self._descriptor)


class Guard:
    """State of a guard.

    ``directory``: of its socket, and of the list of guests that it has stopped. The list is written before a guest is
    killed, so that the daemon knows later which guests to start again. A disk that is full or does not answer delays no
    kill: the list is written when that is possible.
    """

    def __init__(
        self,
        directory: str,
        guests: Guests,
        watchdog: Watchdog | None = None,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._directory = directory
        self._write_seconds = write_seconds
        self._guests = guests
        self._watchdog = watchdog
        self._ends_at: float | None = None
        self._protected: list[str] = []
        self._daemon: list[int] = [0, 0]
        self._stopped = set(read_stopped(directory))
        self._writer: threading.Thread | None = None
        #: The list on the disk is behind.
        self._is_unwritten = False
        #: The daemon has stopped its guests for the lease that has ended, and has no command in progress.
        self._handled = False
        self.done = False

    # --- messages of the daemon

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out a message, and return the reply: what the guard protects, and until when.

        - ``hold``: protect these ``guests``, and end them at ``ends_at``. ``daemon``: its process and when that began.
          ``handled``: the daemon has no command in progress that could start one of them.
        - ``stop``: end the guests now, and spare the daemon, which has no command in progress
        - ``forget``: these guests of the list of stopped ones run again, or are gone
        - ``leave``: protect nothing any more
        """
        verb = message.get("verb")
        if verb == "hold":
            self._ends_at, self._protected = float(message["ends_at"]), sorted(message["guests"])
            self._daemon, self._handled = list(message["daemon"]), bool(message["handled"])
        elif verb == "stop":
            self._handled = True
            self._end_guests()
        elif verb == "forget":
            self._write_stopped(set(self.stopped()) - set(message["guests"]))
        elif verb == "leave":
            self._ends_at, self._protected, self.done = None, [], True
            if self._watchdog is not None:
                self._watchdog.close()
        running = self._guests.running(self._protected) if verb == "stop" else []
        return {"guests": self._protected, "ends_at": self._ends_at, "stopped": self.stopped(), "running": running}

    # --- time

    def tick(self) -> None:
        """End the guests if the lease has ended. Feed the watchdog unless they resist."""
        resists = False
        if self._is_unwritten:
            self._write_stopped(self._stopped)
        if self._ends_at is not None and now() >= self._ends_at:
            self.fire()
            resists = now() >= self._ends_at + GRACE and bool(self._guests.running(self._protected))
        if self._watchdog is not None and not self.done and not resists:
            self._watchdog.feed()

    def fire(self) -> None:
        """Kill the daemon, unless it has stopped its guests and has no command in progress. Then kill the guests.

        Without protected guests, no conductor counts on this host: the daemon is spared, too.
        """
        if not self._protected:
            return
        if not self._handled or self._guests.running(self._protected):
            self._kill_daemon()
        self._end_guests()

    def _end_guests(self) -> None:
        running = self._guests.running(self._protected)
        if running:
            self._write_stopped({*self.stopped(), *running})
            self._guests.kill(running)

    def _kill_daemon(self) -> None:
        pid, began = self._daemon
        if not pid:
            return
        self._daemon = [0, 0]
        with contextlib.suppress(ProcessLookupError), _process(pid) as descriptor:
            if start_of(pid) == began:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    # --- the list of stopped guests

    def stopped(self) -> list[str]:
        return sorted(self._stopped)

    def _write_stopped(self, uuids: set[str]) -> None:
        """Write the list, or wait for that as long as the guard may. If that fails, a later `tick` repeats it."""
        self._stopped, self._is_unwritten = set(uuids), True
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._write_list, args=(sorted(uuids),), daemon=True)
            self._writer.start()
        self._writer.join(self._write_seconds)

    def _write_list(self, uuids: list[str]) -> None:
        with contextlib.suppress(OSError):
            _write(os.path.join(self._directory, STOPPED), uuids)
            self._is_unwritten = set(uuids) != self._stopped


def read_stopped(directory: str) -> list[str]:
    """Return the guests that a guard has stopped and that no daemon has started again.

    A damaged list counts as none, with one warning: neither guard nor daemon may end by it.
    """
    path = os.path.join(directory, STOPPED)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
        if not isinstance(found, list) or not all(isinstance(uuid, str) for uuid in found):
            raise ValueError("it is no list of names")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        if path not in _damaged:
            _damaged.add(path)
            LOG.warning("%s is damaged, so guests that were stopped here may stay off: %s", path, error)
        return []
    _damaged.discard(path)
    return found


#: Lists of stopped guests whose damage is in the log.
_damaged: set[str] = set()


def start_of(pid: int) -> int:
    """Return when a process began, in ticks since the machine started; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def address(directory: str) -> tuple[str, int]:
    """Return the address of the guard's socket, and the descriptor of its directory, which the caller closes.

    A path may be longer than an address of a socket, so it leads through the descriptor.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{descriptor}/{SOCKET}", descriptor


@contextlib.contextmanager
def _process(pid: int) -> Any:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _uuid_of(cmdline: str) -> str:
    """Return the uuid in the arguments of a guest's process, or ""."""
    try:
        with open(cmdline, "rb") as file:
            words = file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return words[words.index(b"-uuid") + 1].decode("ascii", "replace") if b"-uuid" in words[:-1] else ""


def _write(path: str, content: Any, durable: bool = True) -> None:
    """Replace a file. ``durable``: a power cut leaves the old or the new content. The watchdog may cut it soon."""
    temporary = f"{path}.new-guard"
    with open(temporary, "w", encoding="ascii") as file:
        json.dump(content, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def receive(connection: socket.socket) -> Any:
    """Return a message, which ends with the sender's half of the connection."""
    data = bytearray()
    while len(data) < _LONGEST:
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return json.loads(data)


def serve(directory: str, guard: Guard) -> None:
    """Answer the daemon and watch the clock until the daemon lets the guard go."""
    path, descriptor = address(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.close(descriptor)
    os.chmod(os.path.join(directory, SOCKET), 0o600)
    listener.listen()
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while not guard.done:
        for _ in selector.select(TICK):
            # The next lease, or the end of this one, sets right what a daemon that was killed has not sent.
            with contextlib.suppress(OSError, ValueError, KeyError), listener.accept()[0] as connection:
                connection.settimeout(TICK)
                reply = guard.handle(receive(connection))
                connection.sendall(json.dumps(reply).encode())
        guard.tick()
    os.unlink(os.path.join(directory, SOCKET))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nova-lite-guard", description="Ends protected guests when a lease ends.")
    parser.add_argument("directory")
    parser.add_argument("--fake", metavar="DIRECTORY", help="guests are those of the fake hypervisor")
    parser.add_argument("--watchdog", metavar="DEVICE")
    args = parser.parse_args(arguments)
    lock = os.open(os.path.join(args.directory, "guard.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # Another guard of this host lives.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # A guard that ends early would protect nothing.
    guests = guests_of(["--fake", args.fake] if args.fake else [])
    serve(args.directory, Guard(args.directory, guests, Watchdog(args.watchdog) if args.watchdog else None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
