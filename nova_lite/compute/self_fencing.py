"""Self-fencing of a compute host: it stops its protected guests unless the conductor renews its lease.

Then the conductor may build them elsewhere, and none runs twice. See docs/adr/0028. A guard (`nova_lite.compute.guard`)
keeps the promise if this daemon hangs or is killed. A lease is requested by several connections while a reply is
overdue (`nova_lite.compute.lease_ways`). All times are seconds of the clock that counts while the machine
sleeps, and begin when a request was sent, not when its reply arrived.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import TIMING, ComputeTiming
from nova_lite.compute import guard
from nova_lite.compute.jobs import Jobs
from nova_lite.compute.registration import Registration
from nova_lite.objects import Lease, LeaseRequest
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Seconds before the end of a lease at which this daemon stops its guests, and at which the guard does.
STOP_MARGIN, GUARD_MARGIN = 10.0, 5.0

#: Part of a lease that is left when a renewal is overdue.
LATE = 0.8
#: Requests without a reply that are remembered one by one.
MAX_OPEN = 100


def directory_of(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory of the host's guard."""
    return os.path.join(conf.state_path, "guard", host)


class GuardClient:
    """The guard of this host, which `require` starts if it does not run. ``arguments``: the driver's, for the guard."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, arguments: list[str], timing: ComputeTiming) -> None:
        self.directory = directory_of(conf, host)
        self._conf = conf
        self._host = host
        self._timing = timing
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._daemon = [os.getpid(), guard.start_of(os.getpid())]

    def hold(self, ends_at: float, guests: Iterable[str], handled: bool = False) -> None:
        """Let the guard end these guests at that time. Returns when the guard has confirmed it.

        ``handled``: this daemon has no command in progress that could start one of them.
        """
        self.call(verb="hold", ends_at=ends_at, guests=sorted(guests), daemon=self._daemon, handled=handled)

    def stop(self, guests: Iterable[str]) -> bool:
        """End these guests now, or return False. If the guard does not reply, this process ends them itself."""
        try:
            reply = self.call(verb="stop")
        except exceptions.ServiceUnavailable:
            own = guard.Guard(self.directory, guard.guests_of(self._arguments))
            hold = {"verb": "hold", "ends_at": guard.now(), "guests": list(guests), "daemon": [0, 0], "handled": True}
            own.handle(hold)
            reply = own.handle({"verb": "stop"})
        return not reply["running"]

    def call(self, **message: Any) -> dict[str, Any]:
        """Send a message to the guard. Raises `ServiceUnavailable` if it does not reply."""
        try:
            path, descriptor = guard.address(self.directory)
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(self._timing.guard_reply_timeout)
                    connection.connect(path)
                    connection.sendall(json.dumps(message).encode())
                    connection.shutdown(socket.SHUT_WR)
                    reply: dict[str, Any] = guard.receive(connection)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise exceptions.ServiceUnavailable(f"The guard of host {self._host} does not reply: {error}") from error
        return reply

    def leave(self) -> bool:
        """End the guard, and return whether there was one. Raises `ServiceUnavailable` if it does not reply."""
        try:
            self.call(verb="leave")
        except exceptions.ServiceUnavailable as error:
            if isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError)):
                return False
            raise
        return True

    def require(self) -> dict[str, Any]:
        """Return what the guard protects. Start it first if it does not run. Raises `ServiceUnavailable`."""
        with contextlib.suppress(exceptions.ServiceUnavailable):
            return self.call(verb="look")
        files.private_directory(self.directory)
        deadline = time.monotonic() + self._timing.guard_start_wait
        next_start = 0.0
        while time.monotonic() < deadline:
            if time.monotonic() >= next_start:  # Again, because a guard that leaves may still hold the lock.
                self._start()
                next_start = time.monotonic() + self._timing.guard_start_again
            with contextlib.suppress(exceptions.ServiceUnavailable):
                return self.call(verb="look")
            time.sleep(self._timing.guard_start_poll)
        raise exceptions.ServiceUnavailable(f"The guard of host {self._host} does not start.")

    def _start(self) -> None:
        """Start the guard outside of this daemon's unit and process group, so that it outlives the daemon.

        Raises `ServiceUnavailable` if systemd does not start it: a guard in the daemon's own unit would end with it.
        """
        command = [sys.executable, "-m", "nova_lite.compute.guard", self.directory, *self._arguments]
        if device := self._conf.compute.self_fencing_watchdog:
            command += ["--watchdog", device]
        if "INVOCATION_ID" in os.environ and os.path.isdir("/run/systemd/system"):
            properties = ("TimeoutStopSec=2", "OOMScoreAdjust=-1000", "Slice=system.slice")
            options = [f"--property={item}" for item in properties]
            whole = ["systemd-run", "--quiet", "--collect", *options, *command]
            try:
                subprocess.run(whole, capture_output=True, text=True, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                cause = str(getattr(error, "stderr", "") or error).strip()
                raise exceptions.ServiceUnavailable(f"systemd does not start the guard: {cause}") from error
            return
        self._process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)


class SelfFencing:
    """The promise of this host.

    ``on_renewed`` is called after a lease was renewed that had ended, so that stopped guests are reported. Without
    ``[compute] self_fencing`` nothing is promised, and no message is sent. `let_go` then ends the guard of an earlier
    daemon, which fenced itself.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        driver: ComputeDriver,
        registration: Registration,
        jobs: Jobs,
        on_renewed: Callable[[], None] = lambda: None,
        timing: ComputeTiming = TIMING.compute,
    ) -> None:
        self.enabled: bool = conf.compute.self_fencing
        self._seconds = float(conf.compute.self_fencing_lease)
        self._registration = registration
        self._jobs = jobs
        self._on_renewed = on_renewed
        self._filters = driver.filters
        self._guard = GuardClient(conf, host, driver.guard_arguments() if self.enabled else [], timing)
        self._timing = timing
        self._lock = threading.Lock()
        self._guests: frozenset[str] = frozenset()
        self._ends_at = float("-inf")
        self._has_stopped = False
        #: True when this daemon stops, and promises nothing any more.
        self._has_left = False
        #: Number of the newest request with a reply, and the guests that later ones name, by number.
        self._granted = 0
        self._named: dict[int, frozenset[str]] = {}
        #: Stopped guests may start again.
        self._may_start = not self.enabled
        #: The conductor may count on a promise of this daemon.
        self._is_promised = False
        #: A conductor has granted a lease to it.
        self._has_lease = False
        self._is_taken_over = False
        #: Number of times that comparisons were forgotten. The conductor has decided on `_compared` since the last one.
        self.stops = 0
        self._compared: frozenset[str] = frozenset()
        self._must_compare = self.enabled
        #: The list of guests that an earlier daemon or its guard has stopped, if this daemon does not fence itself.
        self._left: guard.Guard | None = None

    # --- the lease

    def renew(self, conductor: ConductorRPC | None = None) -> None:
        """Request a lease, and protect the guests that the conductor names. Call it often.

        The request names only guests that the guard has confirmed. If the guard does not run, the promise is taken
        back, and holds until the conductor has confirmed that. ``conductor``: another way there. Requests may overtake
        each other: the conductor takes none after a later one, and this host no reply.
        """
        if not self.enabled:
            return
        with self._lock:
            if self._has_left:
                return
            try:
                self._take_over()
            except exceptions.ServiceUnavailable as error:
                LOG.warning("This host does not fence itself: %s", error.message)
                self._release()
                self._may_start = True
                return
            # A request may be recorded although its reply is lost.
            self._is_promised = True
            sent_at = guard.now()
            request = self._registration.lease_request(self._seconds, sorted(self._guests))
            self._remember(request)
        try:
            lease = self._registration.send_lease_request(request, self._seconds / 4, conductor)
        except exceptions.HeartbeatIsOld:
            if request.number == max(self._named, default=0):
                raise
            return
        with self._lock:
            before = self._guests
            had_stopped = self._grant(request.number, lease, sent_at)
            guests, ends_at = self._guests, self._ends_at
        self._keep_addresses(before - guests)
        self._keep_addresses(guests, ends_at - GUARD_MARGIN)
        if had_stopped:
            LOG.warning("The lease is renewed: guests that were stopped start again")
            self._on_renewed()

    def _remember(self, request: LeaseRequest) -> None:
        """Remember what a request names. Old ones without a reply are put together."""
        self._named[request.number] = frozenset(request.guests)
        while len(self._named) > MAX_OPEN:
            first, second, *_ = self._named
            self._named[second] |= self._named.pop(first)

    def _grant(self, number: int, lease: Lease, sent_at: float) -> bool:
        """Take a reply, unless that of a later request was taken, and return whether guests had been stopped.

        The guard keeps guests that later requests name, because the conductor may count on these.
        """
        if not self._is_promised or number <= self._granted:
            return False
        self._granted = number
        self._named = {later: guests for later, guests in self._named.items() if later > number}
        self._has_lease = True
        guests = frozenset(lease.guests).union(*self._named.values())
        ends_at = sent_at + lease.seconds
        self._guard.hold(ends_at - GUARD_MARGIN, guests)
        had_stopped = self._has_stopped
        self._guests, self._ends_at, self._has_stopped = guests, ends_at, False
        self._may_start = True
        return had_stopped

    def is_late(self) -> bool:
        """Check whether a renewal is overdue, so that other ways to a conductor have to be tried."""
        return self.enabled and self._ends_at - guard.now() < self._seconds * LATE

    def _take_over(self) -> None:
        """Let the guard protect at least as much as this daemon promises. Continue what an earlier daemon left."""
        state = self._guard.require()
        if not self._is_taken_over:
            self._guests = frozenset(state["guests"])
            if state["stopped"]:
                self._has_stopped = True
                self._withdraw_addresses()
            self._is_taken_over = True
        ends_at = self._ends_at - GUARD_MARGIN if self._is_promised else guard.now() + self._seconds - GUARD_MARGIN
        if state["ends_at"] is not None:
            ends_at = min(ends_at, state["ends_at"])
        if not self._is_promised:
            self._ends_at = ends_at + GUARD_MARGIN
        if sorted(self._guests) != state["guests"] or ends_at != state["ends_at"] or not self._is_promised:
            self._guard.hold(ends_at, self._guests, handled=self._has_stopped or not self._is_promised)

    def release(self) -> None:
        """Take the promise back, because this daemon stops: its guests continue."""
        if self.enabled:
            with self._lock:
                self._has_left = True
                self._release(leaves=True)

    def _release(self, leaves: bool = False) -> None:
        if not self._is_promised:
            return
        request = self._registration.lease_request(0.0, [], leaves)
        self._registration.send_lease_request(request, self._timing.release_timeout)
        self._granted = request.number
        self._named = {}
        self._let_guard_go()

    def _let_guard_go(self) -> None:
        self._keep_addresses(self._guests)
        self._is_promised, self._has_lease = False, False
        self._guests, self._ends_at = frozenset(), float("-inf")
        with contextlib.suppress(exceptions.ServiceUnavailable):  # A guard that is gone protects nothing.
            self._guard.call(verb="leave")

    def let_go(self) -> None:
        """End the guard of an earlier daemon if this one does not fence itself. Call it after a registration.

        The registration has made the earlier promise void, and no other process talks to that guard: it would kill its
        guests again and again. The stopped guests are reported until they run. Raises `ServiceUnavailable` for a guard
        that does not reply.
        """
        if self.enabled:
            return
        if self._guard.leave():
            LOG.warning("This host does not fence itself any more: the guard of an earlier daemon ends")
        if self._left is None and guard.read_stopped(self._guard.directory):
            self._left = guard.Guard(self._guard.directory, guard.QemuGuests())

    @property
    def remaining(self) -> float:
        """Seconds until this daemon stops its protected guests."""
        return self._ends_at - STOP_MARGIN - guard.now()

    # --- the end of the lease

    def tick(self) -> None:
        """Stop the protected guests if the lease is about to end. Call it about every second.

        Nothing is stopped here while a command for one of them is in progress, since it may start the guest later. The
        guard then ends the daemon first.
        """
        if not (self.enabled and self._is_promised and self._guests) or self.remaining > 0 or self._has_stopped:
            return
        if any(self._jobs.is_busy(uuid) for uuid in self._guests):
            return
        LOG.warning("The lease ends without a reply of the conductor: %d protected guests stop", len(self._guests))
        self._may_start = False
        self.forget_comparisons()
        self._has_stopped = self._guard.stop(self._guests)
        self._withdraw_addresses()

    def _withdraw_addresses(self) -> None:
        """Answer for no floating address of stopped guests, which may run elsewhere. A failure is logged."""
        if self._filters:
            try:
                self._filters.withdraw_addresses(self._guests)
            except exceptions.VirtDriverError as error:
                LOG.error("This host keeps floating addresses of stopped guests: %s", error.message)

    def _keep_addresses(self, instance_uuids: frozenset[str], until: float | None = None) -> None:
        """Keep floating addresses until the guard ends their guests, also if this daemon hangs. A failure is logged.

        None: keep them permanently.
        """
        if self._filters and instance_uuids:
            try:
                self._filters.keep_addresses(instance_uuids, None if until is None else int(until - guard.now()))
            except exceptions.VirtDriverError as error:
                LOG.warning("Floating addresses are kept as long as before: %s", error.message)

    def require_lease(self, instance_uuid: str) -> None:
        """Raise `ServiceUnavailable` if a command could start a guest that may run elsewhere.

        The lease is about to end, or this host has stopped the guest, and no comparison has decided on it since. The
        command may have waited in the broker while this host was lost.
        """
        if instance_uuid in self._guests and self.remaining <= 0:
            raise exceptions.ServiceUnavailable("The lease of this host has not been renewed.")
        if self._must_compare and instance_uuid in self.stopped() - self._compared:
            raise exceptions.ServiceUnavailable("This host has stopped the guest, and does not know who runs it now.")

    # --- guests that were stopped

    def stopped(self) -> frozenset[str]:
        """Return the guests that were stopped here and are to run again. The guard knows more than a full disk."""
        if not self.enabled:
            return frozenset() if self._left is None else frozenset(self._left.stopped())
        try:
            found: list[str] = self._guard.call(verb="look")["stopped"]
        except exceptions.ServiceUnavailable:
            found = guard.read_stopped(self._guard.directory)
        return frozenset(found)

    def forget_comparisons(self) -> None:
        """Note that guests may belong elsewhere from now on: they were stopped, or the host has registered again."""
        self.stops, self._compared = self.stops + 1, frozenset()
        self._must_compare = self.enabled or self._left is not None

    def compared(self, stops: int, stopped: frozenset[str], decided: Iterable[str]) -> None:
        """Note that a comparison has ended. ``stops`` and ``stopped``: as it began.

        ``decided``: stopped guests that the conductor left here, and stopped guests that are gone.
        """
        if stops == self.stops:
            self._compared |= stopped.intersection(decided)
            self._must_compare = not stopped <= self._compared

    @property
    def has_stopped_guests(self) -> bool:
        """True if guests that were stopped do not run yet."""
        return bool(self.stopped())

    @property
    def may_start(self) -> bool:
        """True if stopped guests may start again. Until the lease is renewed, the conductor must not know that they are
        off: it may have to start them elsewhere."""
        return self._may_start

    def forget(self, instance_uuids: frozenset[str]) -> None:
        """Forget stopped guests that run again, or are gone. Until then, each comparison reports them."""
        if not instance_uuids:
            return
        if self._left is not None:
            self._left.handle({"verb": "forget", "guests": sorted(instance_uuids)})
            return
        with contextlib.suppress(exceptions.ServiceUnavailable):  # The next comparison reports these guests again.
            self._guard.call(verb="forget", guests=sorted(instance_uuids))
