"""Hosts with real guests are lost, and the guests run again elsewhere with their disks: ``failover.sh --guests real``.

Each host has a libvirtd with qemu, a compute daemon and a guard, in namespaces of its own for mounts, host name and
processes. All hosts see one directory of disks, by bind mounts at different paths, or the volumes of a Ceph
(`tests.faults.real_disks`). Each guest counts once a second, on its disk and on its console. It also looks whether
another program has changed its disk.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

from nova_lite.compute import guard
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import leases
from tests.faults import matrix, real_disks
from tests.faults.failover_report import HEAD, Outcome, Report
from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.integration import guest_image
from tests.support.waiting import wait_for, wait_for_none
from tests.support.watch import Watch

CONFIG = """
[DEFAULT]
compute_driver = libvirt
report_interval = 10
service_down_time = 30
[conductor]
lease_seconds = 30
[compute]
self_fencing = true
[libvirt]
virt_type = qemu
[vnc]
enabled = false
[network]
backend = none
"""

PROTECTED = {"ha:restart": "always"}

CUT_POWER, PAUSE, CUT = "power cut (host and guests killed)", "daemon stopped (SIGSTOP)", "cut off the broker"
HANG, FULL = "kernel hangs, and its watchdog resets it", "disk full, then cut off the broker"
WAYS = (PAUSE, CUT_POWER, CUT, HANG, FULL)

#: Size of a host's own disk, which has its state.
OWN_DISK = 64 << 20

LIMIT, LOOK = 300.0, 0.05

#: Seconds between two looks at servers, and bytes of a command with the guest's id.
POLL, MOST_OF_A_COMMAND = 0.5, 16384

#: Clouds that a worker cannot start until it gives up.
CLOUD_ATTEMPTS = 3

#: Block of the counter, near the end of the disk.
BLOCK = 2000000

#: ``fsync`` makes qemu flush: what the console shows is on the disk.
COUNT = f"""#!/bin/sh
look() {{
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/vda bs=512 skip={BLOCK} count=1 2>/dev/null | tr -d '\\000\\n'
}}
last=$(look)
n=${{last:-0}}
echo "begins at $n"
while :; do
    found=$(look)
    [ "$found" = "$last" ] || echo "other writer: '$found', not '$last'"
    n=$((n + 1))
    echo $n | dd of=/dev/vda bs=512 seek={BLOCK} conv=notrunc,sync,fsync 2>/dev/null
    last=$n
    echo "tick $n"
    sleep 1
done
"""

#: First process of a host. Its end is the end of all processes there, as a power cut is. `Machine.steps` come first.
BOOT = """
for pair in run:/run/libvirt etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt; do
    mkdir -p "${pair#*:}"
    mount --bind "$BASE/${pair%%:*}" "${pair#*:}"
done
mount -o loop "$BASE/disk.img" "$STATE"
mkdir -p "$DISKS"
mount --bind "$SHARED" "$DISKS"
hostname "$NAME"
[ ! -e "$BASE/stat" ] || mount --bind "$BASE/stat" /proc/stat
libvirtd --pid-file "$BASE/libvirtd.pid" >>"$BASE/log/libvirtd.log" 2>&1 &
touch "$BASE/booted"
while :; do sleep 1; done
"""

LINE = re.compile(r"^(tick|begins at) (\d+)\r?$", re.MULTILINE)


def are_confirmed(database: Database, ids: list[str]) -> bool:
    """Check whether the hosts have confirmed all these guests, by their names."""
    return set(ids) <= {guest for state in database.read(leases.all_hosts) for guest in state.guests}


class Machine:
    """A host of its own on this machine. ``spaces``: kinds of its namespaces. ``steps``: first commands of a boot."""

    spaces: tuple[str, ...] = ("--mount", "--uts", "--pid")
    steps = """
set -e
mount --make-rprivate /
"""

    def __init__(self, running: cloud.Cloud, name: str, shared: Path) -> None:
        self.name = name
        self.base = running.path / f"{name}-machine"
        self._state = running.path / name
        self._environment = {"BASE": self.base, "SHARED": shared, "NAME": name, "STATE": self._state}
        self._environment["DISKS"] = self._state / "instances"
        self._process: subprocess.Popen[bytes] | None = None
        for part in ("run", "lib/dnsmasq", "lib/images", "lib/boot", "cache", "log/qemu"):
            (self.base / part).mkdir(parents=True)
        shutil.copytree("/etc/libvirt", self.base / "etc", symlinks=True)
        for path in (
            *(self.base / "etc/qemu").glob("*.xml"),
            self.base / "etc/qemu/networks",
            self.base / "etc/nwfilter",
        ):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.base / "lib/qemu").mkdir()
        shutil.chown(self.base / "lib/qemu", "libvirt-qemu", "libvirt-qemu")
        self._state.mkdir(exist_ok=True)
        with (self.base / "disk.img").open("wb") as file:
            file.truncate(OWN_DISK)
        subprocess.run(
            ["mkfs.ext4", "-q", "-m", "0", "-d", str(self._state), str(self.base / "disk.img")], check=True, timeout=60
        )
        with (self.base / "etc/libvirtd.conf").open("a") as file:
            file.write(f'host_uuid = "{uuid.uuid4()}"\n')
        with (self.base / "etc/qemu.conf").open("a") as file:
            file.write('stdio_handler = "file"\ncgroup_controllers = []\n')

    def boot(self) -> None:
        (self.base / "booted").unlink(missing_ok=True)
        for path in (self.base / "run").glob("*"):  # /run is empty after a boot.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        command = ["unshare", *self.spaces, "--fork", "--kill-child=KILL", "--mount-proc", "bash", "-c"]
        environment = os.environ | {name: str(value) for name, value in self._environment.items()}
        with (self.base / "log/boot.log").open("ab") as log:
            script = self.steps + BOOT
            self._process = subprocess.Popen([*command, script], env=environment, stdout=log, stderr=log)
        wait_for(f"{self.name} boots", (self.base / "booted").exists, 30)
        virsh = [*self.enter, "virsh", "--quiet", "--connect", "qemu:///system", "version"]

        def answers() -> bool:
            return subprocess.run(virsh, capture_output=True, check=False, timeout=60).returncode == 0

        wait_for(f"libvirtd of {self.name} answers", answers, 90, 0.5)

    @property
    def first(self) -> int:
        """Process id of the first process."""
        assert self._process is not None
        return child_of(self._process.pid)

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.first), *self.spaces, "--"]

    def cut_power(self, keeper: subprocess.Popen[bytes] | None = None) -> None:
        """End all processes. ``keeper``: parent of one of them, which may have stopped with it."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            if keeper is not None:
                keeper.send_signal(signal.SIGCONT)
            self._process.wait(60)
        self._process = None

    def hang(self, daemon: subprocess.Popen[bytes]) -> None:
        """Let all processes stand still, and reset the machine as its watchdog would."""
        subprocess.run([*self.enter, "sh", "-c", "kill -STOP -1"], check=True, timeout=60)
        time.sleep(guard.WATCHDOG_SECONDS)
        self.cut_power(daemon)

    def fill_disk(self) -> None:
        """Write to the host's own disk until it is full."""
        with self._filling.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 9, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"0" * size):
                        pass
        assert os.statvfs(self._filling).f_bavail == 0, "the disk is not full"

    def empty_disk(self) -> None:
        self._filling.unlink(missing_ok=True)

    @property
    def _filling(self) -> Path:
        return Path(f"/proc/{self.first}/root", *self._state.parts[1:], "filling")

    @property
    def is_on(self) -> bool:
        return self._process is not None


def child_of(pid: int) -> int:
    """Return the only child of a process."""

    def found() -> list[str]:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    return int(wait_for(f"process {pid} has a child", found, 20)[0])


class Observer(Watch):
    """Looks for processes of guests, of all hosts and clouds. Records guests that have two. ``seen``: the last look."""

    seen: dict[str, set[int]] = {}

    def look(self) -> set[str]:
        first, again = self.guests(), self.guests()
        self.seen = again
        return {guest for guest, pids in again.items() if len(pids & first.get(guest, set())) > 1}

    @staticmethod
    def guests() -> dict[str, set[int]]:
        """Return the processes of each guest."""
        found: dict[str, set[int]] = {}
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
                line = file.read(MOST_OF_A_COMMAND)
                if b"qemu" in line.partition(b"\0")[0] and b"\0-uuid\0" in line:
                    guest = line.partition(b"\0-uuid\0")[2].partition(b"\0")[0].decode()
                    found.setdefault(guest, set()).add(int(pid))
        return found


class RealCloud:
    """A cloud whose hosts are machines of their own, with a link to the broker each.

    ``host_config``: further configuration of each host, in which ``{number}`` is its number. ``disks``: where guests
    have theirs. ``address``: of this machine, where hosts reach the broker.
    """

    def __init__(
        self,
        path: Path,
        computes: int,
        config: str = CONFIG,
        host_config: str = "",
        machine: Callable[[cloud.Cloud, str, Path], Machine] = Machine,
        disks: type[real_disks.Directory] | type[real_disks.Pool] = real_disks.Directory,
        address: str = "127.0.0.1",
    ) -> None:
        self.disks: real_disks.Disks = disks(path)
        config += self.disks.config
        self.cloud = cloud.Cloud(path, computes=computes, quota=-1, patient=True, extra_config=config)
        self._host_config, self._machine = host_config, machine
        self.cloud.memory_mb_of_flavor = 96
        self.links = {host: Proxy(self.cloud.broker_port, address) for host in self.cloud.computes}
        self.machines: dict[str, Machine] = {}
        self._db: Database | None = None

    def start(self, guest: Path) -> None:
        self.disks.start()
        self.cloud.make()
        self.disks.add_image(self.cloud, self.db, guest)
        for number, (host, link) in enumerate(self.links.items(), 1):
            link.restore()
            config = self.cloud.path / f"{host}.conf"
            text, own = config.read_text(), f"@127.0.0.1:{self.cloud.broker_port}/"
            assert own in text
            text = text.replace(own, f"@{link.address}:{link.port}/")
            config.write_text(text + self._host_config.format(number=number))
            self.machines[host] = self._machine(self.cloud, host, self.disks.directory(host))
            self.disks.prepare(self.machines[host].base / "etc")
            self.machines[host].boot()
            self.cloud.prefixes[host] = self.machines[host].enter
        self.cloud.start_all()
        wait_for("guests may move", lambda: self.disks.is_ready(self.cloud, self.db), LIMIT, 1.0)

    def stop(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.disks.stop)
            if self._db is not None:
                stack.callback(self._db.close)
            stack.callback(self.cloud.destroy)
            for link in self.links.values():
                stack.callback(link.cut)
            for machine in self.machines.values():
                stack.callback(machine.cut_power)
            for host in self.cloud.computes:
                if host in self.cloud.processes:  # A stopped parent would keep a dead process, and its host with it.
                    self.cloud.signal(host, signal.SIGCONT)

    @property
    def db(self) -> Database:
        if self._db is None:
            self._db = Database(self.cloud.conductor_conf())
        return self._db

    def confirmed(self, ids: list[str]) -> bool:
        return are_confirmed(self.db, ids)

    def lose(self, host: str, how: str) -> None:
        if how == CUT_POWER:
            self.machines[host].cut_power()
        elif how == PAUSE:
            os.kill(child_of(self.cloud.processes[host].pid), signal.SIGSTOP)
        elif how == HANG:
            self.machines[host].hang(self.cloud.processes[host])
        else:
            if how == FULL:
                self.machines[host].fill_disk()
            self.links[host].cut()

    def bring_back(self, host: str) -> None:
        """Let the host return: reboot it, unless its daemon continues."""
        self.links[host].restore()
        machine, process = self.machines[host], self.cloud.processes[host]
        if not machine.is_on:
            process.wait(60)
            machine.boot()
            self.cloud.prefixes[host] = machine.enter
            self.cloud.start(host)
        else:
            machine.empty_disk()
        if process.poll() is None:
            os.kill(child_of(process.pid), signal.SIGCONT)
            self.cloud.signal(host, signal.SIGCONT)  # nsenter stops with its command.

        def is_up() -> bool:
            if self.cloud.processes[host].poll() is not None:  # The guard has ended its daemon; systemd starts another.
                self.cloud.start(host)
            services = self.cloud.request("GET", "/os-services?binary=nova-compute").json()["services"]
            return {item["host"]: item["state"] for item in services}[host] == "up"

        wait_for(f"{host} is back", is_up, LIMIT, 0.5)

    def console(self, guest: str) -> str:
        """Return the console of a guest, from its first boot."""
        return self.disks.console(guest)

    def ticks(self, guest: str) -> list[int]:
        return [int(number) for word, number in LINE.findall(self.console(guest)) if word == "tick"]

    def is_wrong(self, guest: str) -> bool:
        """Check whether a guest's counter does not continue by ones, or whether another program has written to its
        disk."""
        text = self.console(guest)
        expected = 0
        for word, number in LINE.findall(text):
            if word == "begins at":  # The last number may be on the disk and not on the console.
                if int(number) not in (expected, expected + 1):
                    return True
                expected = int(number)
            elif int(number) != expected + 1:
                return True
            else:
                expected += 1
        return "other writer" in text or not expected


def run(real: RealCloud, observer: Observer, count: int, outcome: Outcome, host: str) -> None:
    """Lose a host that has a guest, and record the outcome."""
    running = real.cloud
    data = base64.b64encode(COUNT.encode()).decode()
    request = {"metadata": PROTECTED, "user_data": data, "config_drive": True, **real.disks.request}
    ids = running.create(availability_zone=f"nova:{host}", **request)
    if count > 1:
        ids += running.create(count=count - 1, **request)
    running.wait_active(ids, LIMIT, POLL)
    wait_for("guests count", lambda: all(len(real.ticks(guest)) >= 5 for guest in ids), LIMIT, POLL)
    wait_for("guests are confirmed", lambda: real.confirmed(ids), LIMIT, POLL)
    lost = {item["id"] for item in running.servers() if item["OS-EXT-SRV-ATTR:host"] == host}
    before = {guest: pids for guest, pids in observer.guests().items() if guest in lost}
    outcome.guests = len(lost)
    began = time.monotonic()
    real.lose(host, outcome.how)

    def back() -> set[str]:
        return {guest for guest, pids in observer.seen.items() if guest in lost and pids - before[guest]}

    def counting() -> bool:
        return all(
            real.console(guest).count("begins at") > 1
            and real.console(guest).rstrip()[-1:].isdigit()
            and "tick" in real.console(guest).rpartition("begins at")[2]
            for guest in lost
        )

    with contextlib.suppress(AssertionError):
        wait_for("guests run elsewhere", lambda: back() == lost, LIMIT, 0.1)
        outcome.running = time.monotonic() - began
        wait_for("guests count elsewhere", counting, LIMIT, 0.2)
    outcome.counting = time.monotonic() - began
    outcome.back = len(back())
    try:
        running.wait_active(ids, LIMIT, POLL)
        real.bring_back(host)
        goals = {guest: real.ticks(guest)[-1] + 3 for guest in ids}
        wait_for(
            "guests continue counting", lambda: all(real.ticks(guest)[-1] >= goals[guest] for guest in ids), LIMIT, POLL
        )
    finally:
        outcome.twice = len(observer.twice & set(ids))
        outcome.wrong = sum(map(real.is_wrong, ids))
    running.delete_all(LIMIT)
    wait_for_none("no disks are left", lambda: real.disks.left(ids), LIMIT, POLL)


class Runs:
    """Runs that remain, on several clouds at a time. A cloud whose run was not good is replaced, and its logs are kept.

    ``seconds``: no run begins later than that.
    """

    def __init__(
        self,
        directory: Path,
        waiting: list[str],
        report: Report,
        guests: int,
        computes: int,
        seconds: float,
        disks: str,
    ) -> None:
        self._directory = directory
        self._waiting = collections.deque(waiting)
        self._report = report
        self._guests, self._computes, self._disks = guests, computes, real_disks.KINDS[disks]
        self._end = time.monotonic() + seconds
        self._logs = Path(tempfile.gettempdir(), "nova-lite-failover-logs")
        #: Clouds start one after another: each needs both cores for a while.
        self._starting = threading.Lock()

    def work(self, parallel: int) -> None:
        guest = guest_image.build(self._directory)
        observer = Observer(LOOK)
        try:
            with futures.ThreadPoolExecutor(parallel) as pool:
                try:
                    for done in [pool.submit(self._serve, guest, observer) for _ in range(parallel)]:
                        done.result()
                finally:
                    self._waiting.clear()  # An interrupt lets runs that have begun end.
        finally:
            observer.close()

    def _serve(self, guest: Path, observer: Observer) -> None:
        failures = 0
        while self._waiting and time.monotonic() < self._end:
            try:
                with self._cloud(guest) as real:
                    self._serve_on(real, observer)
            except Exception as error:  # A run that fails is reported. This is a cloud without one.
                failures += 1
                print(f"A cloud could not be started or ended: {type(error).__name__}: {error}", flush=True)
                if failures == CLOUD_ATTEMPTS:
                    raise

    def _serve_on(self, real: RealCloud, observer: Observer) -> None:
        """Lose hosts of a cloud by turns, while all is well."""
        for number in range(len(self._waiting)):
            how = self._take()
            if how is None:
                break
            outcome = Outcome(how)
            try:
                run(real, observer, self._guests, outcome, real.cloud.computes[number % self._computes])
            except Exception as error:
                kept = matrix.keep_logs(real.cloud.path, self._logs)
                (kept / "failure").write_text(f"{type(error).__name__}: {error}")
                outcome.failure = f"{type(error).__name__}: {str(error).splitlines()[0]} ({kept})"
            self._report.add(outcome)
            if not outcome.is_good:
                break

    def _take(self) -> str | None:
        with contextlib.suppress(IndexError):
            return self._waiting.popleft() if time.monotonic() < self._end else None
        return None

    @contextlib.contextmanager
    def _cloud(self, guest: Path) -> Iterator[RealCloud]:
        with tempfile.TemporaryDirectory(prefix="cloud-", dir=self._directory) as directory:
            path = Path(directory)
            path.chmod(0o755)
            real = RealCloud(path, self._computes, disks=self._disks)
            try:
                with self._starting:
                    real.start(guest)
                yield real
            finally:
                real.stop()


def main(
    runs: int,
    guests: int,
    computes: int,
    how: str,
    parallel: int,
    minutes: float,
    results: Path | None,
    disks: str,
) -> int:
    ways = [way for way in WAYS if how in way]
    if not ways:
        print(f"No loss has {how!r} in its name: {'; '.join(WAYS)}", flush=True)
        return 2
    where = {"directory": "their disks in one directory", "rbd": "root volumes in a Ceph"}[disks]
    print(f"Real daemons, broker and database; real qemu guests with {where}.", flush=True)
    report = Report(results)
    waiting = report.missing(ways, runs)
    print(f"{len(waiting)} of {runs} runs remain, {parallel} at a time.\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory(prefix="failover-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        Runs(Path(directory), waiting, report, guests, computes, 60 * minutes, disks).work(parallel)
    print(report.summary(), flush=True)
    return 0 if report.is_good else 1
