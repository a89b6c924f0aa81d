"""The certificates that a daemon uses, as it watches them: a metric, and a warning in time."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence

from nova_lite.base import exceptions, host_certificates, metrics
from nova_lite.daemon.service import Daemon

LOG = logging.getLogger(__name__)

#: Seconds between two looks.
INTERVAL = 86400.0
#: A certificate that ends within this time is reported.
NOTICE = datetime.timedelta(days=30)


class CertificateWatch:
    """Watches the certificates in ``directory``, which may not exist, and in ``files``."""

    def __init__(self, directory: str | None = None, files: Sequence[str] = ()) -> None:
        self._directory = directory
        self._files = tuple(files)

    def begin(self, daemon: Daemon) -> None:
        """Add the metric and the periodic task to a daemon."""
        metrics.add_gauges((self._directory, self._files), self.samples)
        daemon.add_periodic("Certificates", INTERVAL, self.check, at_once=True)

    def samples(self) -> list[tuple[str, metrics.Sample]]:
        found = self._find()
        return [metrics.sample(metrics.CERTIFICATE_END, item.end.timestamp(), item.path) for item in found]

    def _find(self) -> list[host_certificates.Found]:
        """Return the certificates. Raises `ConfigurationError` for a file that is none."""
        found = [] if self._directory is None else host_certificates.find(self._directory)
        return found + [host_certificates.read(path) for path in self._files]

    def check(self) -> None:
        """Log a line for each certificate that has ended, or soon does, and for a file that is none."""
        now = datetime.datetime.now(datetime.UTC)
        try:
            found = self._find()
        except exceptions.ConfigurationError as error:
            LOG.error("%s", error.message)
            return
        for item in found:
            if item.end <= now:
                LOG.error("Certificate %s ended at %s: renew it", item.path, item.end)
            elif item.end - now < NOTICE:
                LOG.warning("Certificate %s ends at %s: renew it", item.path, item.end)
