"""A world whose ended servers are purged."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

from nova_lite.db.core import models
from nova_lite.db.upkeep import purge
from nova_lite.objects import DomainReport, Verdict
from tests.support.server_moves import Live

LATER = datetime.timedelta(days=1)
OF_INSTANCES = (
    models.InstanceAction,
    models.InstanceActionEvent,
    models.Migration,
    models.InstanceTag,
    models.Instance,
    models.InstanceGroupMember,
)


class PurgingWorld(Live):
    """A world with one server that runs at host1."""

    def purge(self, batch_size: int = 100, **options: Any) -> Counter[str]:
        """Purge a day later everything that had ended by then."""
        before = self.db.read(lambda uow: uow.now) + LATER
        return +purge.run(self.db, before, batch_size, **options)

    def counts(self) -> dict[str, int]:
        return {str(table.__tablename__): self.count(table) for table in OF_INSTANCES}

    def delete(self) -> None:
        self.act("delete")
        self.answer()
        assert self.row.deleted

    def listed(self, host: str, generation: int = 1, leftovers: tuple[str, ...] = ()) -> list[tuple[str, Verdict]]:
        report = DomainReport(uuid=self.uuid, generation=generation, power_state=1)
        domains = [] if leftovers else [report]
        verdicts = self.reports.reconcile_domains(self.context(), host, domains, list(leftovers))
        return [(verdict.uuid, verdict.verdict) for verdict in verdicts]
