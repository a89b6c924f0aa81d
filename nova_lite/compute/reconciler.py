"""Domain reconciliation: this hypervisor's domains are compared with the database, at start and periodically."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.consistency_check import ConsistencyCheck
from nova_lite.compute.host import LocalHost
from nova_lite.compute.host_boot import HostBoot
from nova_lite.objects import DomainReport, DomainVerdict, Verdict, digest_of_domains
from nova_lite.operations.states import PowerState
from nova_lite.virt.driver import DomainInfo

LOG = logging.getLogger(__name__)

#: Seconds to wait for an instance's lock: whoever holds it longer changes what we saw.
LOCK_WAIT = 0.1

#: Of the time between two comparisons, how much an answer is waited for that comes with a heartbeat.
PATIENCE = 0.8

#: Verdicts that are carried out at the same time.
WORKERS = 4


class DomainReconciler:
    """One call with all our domains and leftovers; the conductor says per uuid what to do, and only that is done.

    The report also tells the power states. Instances with a job are left out: theirs are changing, and a domain that is
    still being built must not be taken for a finished one. ``interval``: seconds between two runs of `tick`;
    ``boot``: of this machine; ``ask``: has the next heartbeat ask a question.
    """

    def __init__(
        self, host: LocalHost, interval: float, boot: HostBoot, ask: Callable[[ConsistencyCheck], None]
    ) -> None:
        self._host = host
        self._ask = ask
        self._question: ConsistencyCheck | None = None
        #: Until when an answer is waited for.
        self._patience = float("-inf")
        self._boot = boot
        self._interval = interval
        self._next = time.monotonic() + interval
        self._power_changed = False

    # --- when

    def power_event(self, instance_uuid: str) -> None:
        """A domain's power state changed. Unless that is our own doing, `tick` looks sooner. Called from any thread,
        a native one in eventlet mode included, so it takes no lock and wakes nobody."""
        if not self._host.jobs.is_busy(instance_uuid):
            self._power_changed = True

    def tick(self) -> None:
        """`run` if a power state changed, or if it is time and not all is as the conductor has it; meant to be called
        about every second."""
        if self._power_changed or self._has_to_compare():
            self.run()

    def _has_to_compare(self) -> bool:
        """It is asked first, along with a heartbeat, whether all agrees, as it mostly does so."""
        now, question = time.monotonic(), self._question
        if question is None:
            if now < self._next:
                return False
            self._next, self._patience = now + self._interval, now + PATIENCE * self._interval
            return not self._asks()
        if question.is_open and now < self._patience:
            return False
        self._take_back()
        if question.answer is None and now < self._patience:  # what was asked is not true any more
            return not self._asks()
        return not question.answer

    # --- what

    def _asks(self) -> bool:
        """False: there is something to compare, so that it need not be asked."""
        host = self._host
        if self._boot.is_new():
            return False
        with contextlib.ExitStack() as watch:
            touched = watch.enter_context(host.jobs.watch())
            domains = host.driver.list_domains()
            if touched or host.driver.leftovers() - {info.uuid for info in domains}:
                return False
            if any(host.fences.get(info.uuid).forbids(info.generation) for info in domains):
                return False
            found = digest_of_domains((info.uuid, info.generation, int(info.power_state)) for info in domains)
            self._question = ConsistencyCheck(found, touched, watch.pop_all())
        self._ask(self._question)
        return True

    def _take_back(self) -> None:
        if self._question is not None:
            self._question.close()
            self._question = None

    def run(self) -> set[str]:
        """Destroy what was given up, ask about the rest, and act on the answer.

        Returns the instances whose domain was to be destroyed, and was not (yet). Raises `ServiceUnavailable` or
        `VirtDriverError` if all of that cannot be done now.
        """
        self._power_changed = False
        self._take_back()
        self._next = time.monotonic() + self._interval
        host = self._host
        booted = self._boot.is_new()
        with host.jobs.watch() as touched:
            domains = {info.uuid: info for info in host.driver.list_domains()}
            listed = set(domains)
            leftovers = host.driver.leftovers() - set(domains)
            given_up = [info for info in domains.values() if host.fences.get(info.uuid).forbids(info.generation)]
            kept = {info.uuid for info in given_up}
            for info in given_up:
                del domains[info.uuid]
                self._destroy_given_up(info, touched, kept)
            verdicts = host.conductor.reconcile_domains(
                get_admin_context(),
                host.name,
                [self._report(info, booted) for uuid, info in domains.items() if uuid not in touched],
                sorted(leftovers - touched),
            )
            self._boot.settle()
            to_destroy = [each for each in verdicts if each.verdict == Verdict.DESTROY]
            kept |= {each.uuid for each in to_destroy if each.uuid in domains}
            with concurrent.futures.ThreadPoolExecutor(WORKERS, thread_name_prefix="verdict") as pool:
                list(pool.map(lambda each: self._destroy(each, domains, leftovers, touched, kept), to_destroy))
            self._report_lost(listed, touched)
        return kept

    def _destroy_given_up(self, info: DomainInfo, touched: set[str], kept: set[str]) -> None:
        """A domain of a build that was given up on, left by an earlier life of this daemon. This host has promised to
        destroy it, whatever became of the report; were it named to the conductor, that might take it for a success."""
        LOG.warning("Instance %s: destroying what is left of generation %d", info.uuid, info.generation)
        with self._attempt(info.uuid), self._untouched(info.uuid, touched) as free:
            if free:
                self._host.remove(info.uuid)
                kept.discard(info.uuid)

    def _report_lost(self, listed: set[str], touched: set[str]) -> None:
        """Look for what ought to be here and was not ``listed``. That is nobody's danger: what cannot be asked or told
        now is left for the next run."""
        trouble = ""
        try:
            expected = self._host.conductor.domains_expected(get_admin_context(), self._host.name)
        except exceptions.ServiceUnavailable as error:
            expected, trouble = [], error.message
        if trouble:
            LOG.info("What ought to be on this host is not known now: %s", trouble)
        for each in expected:
            if each.uuid in listed:
                continue
            with self._attempt(each.uuid), self._untouched(each.uuid, touched) as free:
                if free and self._host.domain(each.uuid) is None:
                    LOG.warning("Instance %s: its domain of generation %d is not here", each.uuid, each.generation)
                    self._host.conductor.domain_lost(get_admin_context(), self._host.name, each)

    @contextlib.contextmanager
    def _attempt(self, instance_uuid: str) -> Iterator[None]:
        """What fails for one instance is logged and left for the next run; the others have their turn."""
        try:
            yield
        except Exception as error:
            expected = isinstance(error, exceptions.NovaLiteException)
            LOG.warning("Instance %s: to be looked at again: %s", instance_uuid, error, exc_info=not expected)

    @contextlib.contextmanager
    def _untouched(self, instance_uuid: str, touched: set[str]) -> Iterator[bool]:
        """With the instance's lock held: whether no job had to do with it since we looked. Does not wait for one."""
        if instance_uuid in touched:
            yield False
            return
        with self._host.jobs.locks.hold(instance_uuid, LOCK_WAIT):
            yield instance_uuid not in touched

    def _destroy(
        self,
        verdict: DomainVerdict,
        domains: dict[str, DomainInfo],
        leftovers: set[str],
        touched: set[str],
        kept: set[str],
    ) -> None:
        """Carry out one verdict, if what it is about is still so."""
        host, uuid = self._host, verdict.uuid
        with self._attempt(uuid), self._untouched(uuid, touched) as free:
            if not free:
                return
            found = host.domain(uuid)
            if found is None and uuid in leftovers:
                LOG.info("Instance %s: removing what is left without a domain", uuid)
                host.remove_all(uuid)
            elif found is not None and uuid in domains and found.generation == verdict.generation:
                LOG.warning("Instance %s: generation %d is not meant to be here, destroying it", uuid, found.generation)
                host.fences.forbid(uuid, found.generation)
                host.remove(uuid)
            kept.discard(uuid)

    def _report(self, info: DomainInfo, booted: bool) -> DomainReport:
        resumes = booted and self._host.conf.resume_guests_state_on_host_boot
        record = self._host.fences.get(info.uuid)
        return DomainReport(
            uuid=info.uuid,
            generation=info.generation,
            power_state=int(info.power_state),
            last_action_id=record.last_action_id,
            last_position=record.last_position,
            lost_power=resumes and info.power_state == PowerState.SHUTDOWN,
        )
