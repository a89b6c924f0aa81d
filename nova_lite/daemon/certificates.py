"""The certificates of a host or proxy, as its daemon watches them: a metric, and a warning in time."""

from __future__ import annotations

import datetime
import logging

from nova_lite.base import exceptions, host_certificates, metrics
from nova_lite.daemon.service import Daemon

LOG = logging.getLogger(__name__)

#: Seconds between two looks.
INTERVAL = 86400.0
#: A certificate that ends within this time is reported.
NOTICE = datetime.timedelta(days=30)


class CertificateWatch:
    """Watches the certificates in ``directory``, which may not exist."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def begin(self, daemon: Daemon) -> None:
        """Add the metric and the periodic task to a daemon."""
        metrics.add_gauges(self._directory, self.samples)
        daemon.add_periodic("Certificates", INTERVAL, self.check, at_once=True)

    def samples(self) -> list[tuple[str, metrics.Sample]]:
        found = host_certificates.find(self._directory)
        return [metrics.sample(metrics.CERTIFICATE_END, item.end.timestamp(), item.path) for item in found]

    def check(self) -> None:
        """Log a line for each certificate that has ended, or soon does, and for a file that is none."""
        now = datetime.datetime.now(datetime.UTC)
        try:
            found = host_certificates.find(self._directory)
        except exceptions.ConfigurationError as error:
            LOG.error("%s", error.message)
            return
        for item in found:
            if item.end <= now:
                LOG.error("Certificate %s ended at %s: renew it", item.path, item.end)
            elif item.end - now < NOTICE:
                LOG.warning("Certificate %s ends at %s: renew it", item.path, item.end)
