"""``nova-lite dev``: a throw-away cloud in one process, for tests of programs that use OpenStack's APIs.

- `cloud`: a whole cloud in one process: all daemons, an in-memory transport, SQLite, and the fake driver
- `clouds_file`: a ``clouds.yaml`` with the accounts of a cloud, for OpenStack's clients
- `configuration`: configuration of a cloud in one process
- `consoles`: consoles of the fake guests: the console proxies
- `seed`: content of a new cloud, from a YAML file
"""

from __future__ import annotations

import os

from nova_lite.base import concurrency
from nova_lite.base.stop_event import StopEvent

# stevedore would write its cache of entry points into the user's home directory.
os.environ["XDG_CACHE_HOME"] = os.devnull
concurrency.setup(concurrency.THREADING)

# isort: split
import argparse  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import secrets  # noqa: E402
import shlex  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import urllib.parse  # noqa: E402
from collections.abc import Sequence  # noqa: E402

from nova_lite.base import exceptions, version  # noqa: E402
from nova_lite.cmd.dev import clouds_file  # noqa: E402
from nova_lite.cmd.dev.cloud import DevCloud, Options  # noqa: E402
from nova_lite.cmd.dev.configuration import PATHS  # noqa: E402

PROG = "nova-lite dev"
MAX_HOSTS = 100
#: Largest id of a process on Linux.
MAX_PROCESS = 2**22
#: Seconds between two checks whether the parent process still runs.
_PARENT_CHECK = 1.0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nova-lite", description="Run nova_lite without installing a cloud.")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    text = (
        "Run a throw-away cloud in this process, with fake guests. It needs no root, broker, database or hypervisor, "
        "and leaves nothing behind when Ctrl-C ends it."
    )
    dev = commands.add_parser("dev", help=text, description=text)
    dev.add_argument("--port", type=_port, default=8774, help="port of all APIs; 0: a free one; default: 8774")
    dev.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1")
    dev.add_argument("--url", type=_url, help="URL by which clients reach it, for the catalog; default: from the above")
    dev.add_argument("--hosts", type=_hosts, default=1, metavar="N", help="number of compute hosts; default: 1")
    dev.add_argument("--password", help="password of its users; default: a new one")
    dev.add_argument("--seed", action="append", default=[], metavar="FILE", help="file of content; may be repeated")
    dev.add_argument("--faults", action="store_true", help="let servers' metadata and flavors slow down or fail guests")
    dev.add_argument("--clouds-file", metavar="FILE", help="also write clouds.yaml to this file; removed at the end")
    dev.add_argument(
        "--config-file", action="append", default=[], metavar="FILE", help="more options of nova_lite; may be repeated"
    )
    dev.add_argument("--json", action="store_true", help="print one line of JSON when it is ready, for programs")
    dev.add_argument("--parent", type=_process, metavar="PID", help="end when this process, the parent, has ended")
    dev.add_argument("--verbose", action="store_true", help="log what the daemons do")
    dev.add_argument("--version", action="version", version=version.VERSION)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.clouds_file:
        try:
            clouds_file.check(args.clouds_file)
        except exceptions.ConfigurationError as error:
            print(f"{PROG}: {error.message}", file=sys.stderr)
            return 1
    stopping = StopEvent()
    cloud = DevCloud(
        Options(
            args.listen,
            args.port,
            args.url,
            args.hosts,
            args.password or secrets.token_urlsafe(12),
            args.faults,
            args.seed,
            args.config_file,
            args.verbose,
        )
    )

    def on_signal(number: int, frame: object) -> None:
        stopping.set()
        cloud.begin_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        cloud.start()
        _announce(cloud, args, _seconds_of_process())
    except exceptions.NovaLiteException as error:
        if not stopping.is_set():  # an error of an interrupted start is none
            print(f"{PROG}: {error.message}", file=sys.stderr)
            return 1
    else:
        while not stopping.wait(_PARENT_CHECK):
            if args.parent is not None and os.getppid() != args.parent:
                break
    finally:
        cloud.stop()
        if args.clouds_file:
            clouds_file.remove(args.clouds_file)
    return 0


def _announce(cloud: DevCloud, args: argparse.Namespace, seconds: float) -> None:
    """Write clouds.yaml, and print how to use the cloud."""
    file = os.path.join(cloud.directory, "clouds.yaml")
    clouds_file.write(file, cloud.url, cloud.accounts)
    if args.clouds_file:
        clouds_file.write(args.clouds_file, cloud.url, cloud.accounts)
    if args.json:
        clouds = clouds_file.settings(cloud.url, cloud.accounts)
        print(json.dumps({"url": cloud.url, "clouds_file": file, "clouds": clouds, "seconds": round(seconds, 3)}))
    else:
        print(_instructions(cloud, args.clouds_file or file, args.hosts, seconds))
    sys.stdout.flush()


def _instructions(cloud: DevCloud, file: str, hosts: int, seconds: float) -> str:
    rows = [("User", "Project", "Password"), *cloud.accounts]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    names = list(clouds_file.settings(cloud.url, cloud.accounts))
    return "\n".join(
        (
            f"A cloud of {hosts} host{'s' * (hosts > 1)} is ready at {cloud.url} after {seconds:.1f} s.",
            "Ctrl-C ends it and removes everything.",
            "",
            *("    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            "",
            f"The web page is at {cloud.url}{PATHS['page']}/.",
            "",
            f"    export OS_CLIENT_CONFIG_FILE={shlex.quote(os.path.abspath(file))} OS_CLOUD={names[0]}",
            "    openstack server create --image nova-lite-guest --flavor m1.nano --wait first",
            "    openstack console log show first",
            "",
            f"Clouds of the other users: {', '.join(names[1:])}.",
        )
    )


def _seconds_of_process() -> float:
    """Return the age of this process. Loading its modules takes most of it."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _port(text: str) -> int:
    return _number(text, 0, 65535)


def _hosts(text: str) -> int:
    return _number(text, 1, MAX_HOSTS)


def _process(text: str) -> int:
    return _number(text, 1, MAX_PROCESS)


def _number(text: str, first: int, last: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not first <= int(text) <= last:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a number from {first} to {last}")
    return int(text)


def _url(text: str) -> str:
    try:
        parts = urllib.parse.urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        wrong = not known or bool(parts.query or parts.fragment)
    except ValueError:
        wrong = True
    if wrong:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a URL such as http://cloud:8774")
    return text.rstrip("/")
