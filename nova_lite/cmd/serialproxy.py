"""``nova-lite-serialproxy``: the serial ports of guests, over WebSockets."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import sys  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite.console import daemon  # noqa: E402
from nova_lite.daemon import service  # noqa: E402


def main() -> int:
    conf = configuration.load(prog=daemon.SERIAL.binary)
    service.setup_logging(conf, daemon.SERIAL.binary)
    return daemon.ConsoleProxy(conf, daemon.SERIAL).run()


if __name__ == "__main__":
    sys.exit(main())
