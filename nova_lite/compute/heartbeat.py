"""Heartbeats: reports of the host's inventory and work in progress."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.base import cpu_sets, exceptions, version
from nova_lite.compute.claims import Resources
from nova_lite.compute.jobs import Jobs
from nova_lite.objects import HostReport, Inventory, ReportNumber
from nova_lite.virt.driver import ComputeDriver


class Heartbeat:
    """Makes `HostReport`s.

    The inventory is cached by `refresh`, so that a hanging hypervisor does not stop heartbeats. Without heartbeats,
    builds in progress would lose their leases. ``on_answer`` is called with the seconds that each inventory took.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        driver: ComputeDriver,
        jobs: Jobs,
        on_answer: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._conf = conf
        self.host = host
        self._driver = driver
        self._jobs = jobs
        self._on_answer = on_answer
        self.boot_id = str(uuid.uuid4())
        self._numbers = itertools.count(1)
        self._inventory: Inventory | None = None
        self._answered = time.monotonic()

    def refresh(self) -> None:
        """Read the inventory from the hypervisor. May raise or hang, as the driver does."""
        started = time.monotonic()
        self._inventory = self._driver.machine.inventory()
        self._answered = time.monotonic()
        self._on_answer(self._answered - started)

    def is_hypervisor_up(self) -> bool:
        """Check whether the hypervisor has responded recently.

        `refresh` runs every ``report_interval`` in a separate thread that no other thread waits for.
        """
        limit: float = self._conf.compute.hypervisor_timeout + self._conf.report_interval
        return time.monotonic() - self._answered < limit

    def report(self) -> HostReport:
        conf = self._conf
        return HostReport(
            host=self.host,
            boot_id=self.boot_id,
            number=next(self._numbers),
            inventories=[self._known()],
            building=self._jobs.building(),
            acting=self._jobs.acting(),
            version=version.VERSION,
            hypervisor_up=self.is_hypervisor_up(),
            cpu_allocation_ratio=conf.cpu_allocation_ratio,
            ram_allocation_ratio=conf.ram_allocation_ratio,
            disk_allocation_ratio=conf.disk_allocation_ratio,
            reserved_cpus=conf.reserved_host_cpus,
            reserved_memory_mb=conf.reserved_host_memory_mb,
            reserved_disk_gb=self._reserved_disk_gb(),
        )

    def next_number(self) -> ReportNumber:
        """Return the number of a report that is sent now. It is above those of all earlier heartbeats."""
        return ReportNumber(boot_id=self.boot_id, number=next(self._numbers))

    def capacity(self) -> Resources:
        """Return the capacity for instances: (total - reserved) * allocation ratio, as the conductor calculates it."""
        conf, known = self._conf, self._known()
        return Resources(
            vcpus=int((known.vcpus - conf.reserved_host_cpus) * conf.cpu_allocation_ratio),
            memory_mb=int((known.memory_mb - conf.reserved_host_memory_mb) * conf.ram_allocation_ratio),
            disk_gb=int((known.disk_gb - self._reserved_disk_gb()) * conf.disk_allocation_ratio),
            cpus=tuple(cpu for cell in known.numa for cpu in cpu_sets.parse(cell.dedicated_cpus)),
            pci=tuple(device.address for device in known.pci),
        )

    def _reserved_disk_gb(self) -> int:
        """Convert the option from MB to GB, rounded up."""
        return -(-int(self._conf.reserved_host_disk_mb) // 1024)

    def _known(self) -> Inventory:
        if self._inventory is None:
            raise exceptions.HypervisorUnavailable(host=self.host, reason="its inventory has not been read yet")
        return self._inventory
