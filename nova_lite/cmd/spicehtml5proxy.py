"""``nova-lite-spicehtml5proxy``: the pages of spice-html5, and the screens of guests by SPICE, over WebSockets."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import sys  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite.console import daemon  # noqa: E402
from nova_lite.daemon import service  # noqa: E402


def main() -> int:
    conf = configuration.load(prog=daemon.SPICE.binary)
    service.setup_logging(conf, daemon.SPICE.binary)
    return daemon.ConsoleProxy(conf, daemon.SPICE).run()


if __name__ == "__main__":
    sys.exit(main())
