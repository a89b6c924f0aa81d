"""Gains of the patches of the messaging libraries (`nova_lite.rpc.patches`, ADR 11).

Needs RabbitMQ on this machine, and rabbitmqctl::

    python benchmarks/rpc.py --rounds 5 --calls 300 --json result.json

Each round measures all patches, then all without one of them, for every optional patch, in random order. A measurement
is a client and a server in processes of their own, over a virtual host of its own, with signed messages. A line per
patch shows the cost without it, relative to the cost with all patches in the same round (median of the rounds):

- ``cpu``: CPU time of both processes for a call
- ``switches``: voluntary context switches of both processes for a call, each of which may wait for the interpreter's
  lock

The calls: ``boot`` (4 KB of arguments), ``list`` (a reply with 50 servers), ``burst`` (boot, 16 at a time), ``lists``
(list, 8 at a time), ``report`` (a call of a compute host, 8 at a time).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import objects, rpc
from nova_lite.base.context import RequestContext
from nova_lite.rpc import keys, patches
from nova_lite.rpc.keys import PrivateKey

CONTEXT = RequestContext(user_id="u", project_id="p", request_id="req-1")
VHOST = f"benchmark-rpc-{os.getpid()}"
COSTS = ("cpu", "switches")
NONE, ALL = "none", "all"


@rpc.service("scheduler", version="2.0")
class EchoRPC(Protocol):
    @rpc.read(rpc.API)
    def boot(self, context: RequestContext, text: str) -> str: ...

    @rpc.read(rpc.API)
    def servers(self, context: RequestContext) -> list[objects.Instance]: ...

    @rpc.report(rpc.COMPUTE)
    def report(self, context: RequestContext, text: str) -> str: ...

    @rpc.read(rpc.API)
    def usage(self, context: RequestContext) -> list[float]: ...


class Echo:
    def __init__(self) -> None:
        flavor = objects.Flavor(flavorid="1", name="m1.small", vcpus=1, memory_mb=2048, root_gb=20)
        self.instances = [
            objects.Instance(
                uuid=f"{number:08}-0000-4000-8000-000000000000",
                project_id="p" * 32,
                user_id="u" * 32,
                display_name=f"server-{number}",
                hostname=f"server-{number}",
                vm_state="active",
                flavor=flavor,
                metadata={f"key-{index}": "value" * 4 for index in range(5)},
            )
            for number in range(50)
        ]

    def boot(self, context: RequestContext, text: str) -> str:
        return text[:500]

    def servers(self, context: RequestContext) -> list[objects.Instance]:
        return self.instances

    def report(self, context: RequestContext, text: str) -> str:
        return text[:100]

    def usage(self, context: RequestContext) -> list[float]:
        return usage()


def usage() -> list[float]:
    """Return CPU milliseconds and voluntary context switches of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [1000 * (used.ru_utime + used.ru_stime), float(used.ru_nvcsw)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--call", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.call:
        print(json.dumps(call(options.call, options.calls)))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    names = [patch.name for patch in patches.PATCHES if not patch.essential]
    variants = {ALL: "", **{name: name for name in names}, NONE: ",".join(names)}
    rounds: list[dict[str, Any]] = []
    subprocess.run(["rabbitmqctl", "-q", "add_vhost", VHOST], check=True)
    try:
        subprocess.run(["rabbitmqctl", "-q", "set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*"], check=True)
        with tempfile.TemporaryDirectory() as directory:
            write_config(Path(directory))
            for _ in range(options.rounds):
                order = random.sample(list(variants), len(variants))
                rounds.append({name: measure(Path(directory), variants[name], options.calls) for name in order})
    finally:
        subprocess.run(["rabbitmqctl", "-q", "delete_vhost", VHOST], check=True)
    ratios = {
        name: {
            kind: [
                round(statistics.median(item[name][kind][cost] / item[ALL][kind][cost] for item in rounds), 3)
                for cost in range(len(COSTS))
            ]
            for kind in rounds[0][ALL]
        }
        for name in variants
        if name != ALL
    }
    with_all = {
        kind: [round(statistics.median(item[ALL][kind][cost] for item in rounds), 2) for cost in range(len(COSTS))]
        for kind in rounds[0][ALL]
    }
    print("with all patches, for a call:", with_all)
    for name, by_kind in ratios.items():
        print(f"without {name}: ", by_kind)
    if options.json:
        options.json.write_text(json.dumps({"all": with_all, "ratios": ratios, "rounds": rounds}, indent=1) + "\n")


def measure(directory: Path, disabled: str, calls: int) -> dict[str, list[float]]:
    environment = os.environ | {patches.DISABLE: disabled}
    command = [sys.executable, "-W", "ignore", __file__, "--calls", str(calls)]
    server = subprocess.Popen([*command, "--serve", str(directory)], env=environment, stdin=subprocess.PIPE)
    try:
        done = subprocess.run(
            [*command, "--call", str(directory)], env=environment, stdout=subprocess.PIPE, check=True, timeout=600
        )
    finally:
        server.communicate(timeout=60)
    result: dict[str, list[float]] = json.loads(done.stdout)
    return result


def write_config(directory: Path) -> None:
    trusted = []
    for role in (rpc.API, rpc.SCHEDULER, rpc.COMPUTE):
        key = PrivateKey.generate()
        path = Path(keys.private_path(str(directory), role, "host"))
        path.write_bytes(key.pem())
        path.chmod(0o600)
        trusted.append(key.trusted(role, "host", keys.now()))
    keys.write_trusted(str(directory / keys.TRUSTED), trusted)
    (directory / "rpc.conf").write_text(
        f"[DEFAULT]\nhost = host\ntransport_url = rabbit://guest:guest@127.0.0.1:5672/{VHOST}\n"
        f"[rpc]\nkeys_directory = {directory}\n"
    )


def transport(directory: Path, role: str) -> rpc.Transport:
    conf = cfg.CONF
    configuration.register_opts(conf)
    conf(["--config-file", str(directory / "rpc.conf")], project="nova-lite", default_config_files=[])
    return rpc.Transport(conf, role)


def serve(directory: Path) -> None:
    patches.SETTLED_SECONDS = 0.0  # as in a daemon that has run for a minute
    server = rpc.RpcServer(transport(directory, rpc.SCHEDULER), "host", rpc.Endpoint(EchoRPC, Echo()))
    server.start()
    sys.stdin.read()
    server.stop()
    server.wait()


def call(directory: Path, calls: int) -> dict[str, list[float]]:
    """Return the costs of a call, by its kind."""
    made = transport(directory, rpc.API)
    api = rpc.proxy(EchoRPC, made)
    host = rpc.proxy(EchoRPC, made.share(rpc.COMPUTE, "host"))
    wait_for_server(api)
    text = "x" * 4000
    kinds: dict[str, tuple[Any, int, int]] = {
        "boot": (lambda: api.boot(CONTEXT, text), 1, calls),
        "list": (lambda: api.servers(CONTEXT), 1, calls // 2),
        "burst": (lambda: api.boot(CONTEXT, text), 16, calls),
        "lists": (lambda: api.servers(CONTEXT), 8, calls // 2),
        "report": (lambda: host.report(CONTEXT, text), 8, calls),
    }
    costs = {}
    for kind, (send, at_once, count) in kinds.items():
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda _, send=send: send(), range(2 * at_once)))
            before = [usage(), api.usage(CONTEXT)]
            list(pool.map(lambda _, send=send: send(), range(count)))
            after = [usage(), api.usage(CONTEXT)]
        costs[kind] = [
            sum(late[cost] - early[cost] for early, late in zip(before, after, strict=True)) / count
            for cost in range(len(COSTS))
        ]
    made.cleanup()
    return costs


def wait_for_server(api: EchoRPC) -> None:
    pause = threading.Event()
    for _ in range(200):
        try:
            api.usage(CONTEXT)
            return
        except Exception:
            pause.wait(0.1)
    raise SystemExit("the server does not reply")


if __name__ == "__main__":
    main()
