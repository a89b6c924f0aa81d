"""The tests themselves run with native threads; daemons that they start choose for themselves."""

from __future__ import annotations

from nova_lite import concurrency

concurrency.setup(concurrency.THREADING)
