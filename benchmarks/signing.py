"""CPU time of one thread to sign and verify messages between daemons.

It needs neither broker nor cloud, and tolerates a busy machine::

    python benchmarks/signing.py --runs 2000 --boot-ms 100 --json result.json

A row per size of the arguments. ``sign_us`` and ``verify_us``: a request; ``bare_sign_us`` and ``bare_verify_us``:
Ed25519 alone; ``answer_us``: a reply of that size, signed and verified. The last rows show the six requests and
three replies of a boot, and their share of ``--boot-ms``, the CPU time of all daemons for one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import keys
from nova_lite.rpc.client import Message
from nova_lite.rpc.keys import API, CONDUCTOR, PrivateKey
from nova_lite.rpc.signing import SIGNATURE, Signing

#: Bytes of arguments: of a heartbeat, an order to build, one with user data.
SIZES = (500, 4000, 64000)

#: Messages of a boot, by their sizes here: requests (the announcement is verified by one scheduler), and answers.
REQUESTS = (4000, 500, 4000, 500, 4000, 500)
ANSWERS = (4000, 500, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--boot-ms", type=float, default=100.0, help="CPU time of one boot, without signatures")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        api, conductor = (signing(Path(directory), role) for role in (API, CONDUCTOR))
        rows = [measured(api, conductor, size, options.runs) for size in SIZES]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    by_size = {row["bytes"]: row for row in rows}
    boot = sum(by_size[size]["sign_us"] + by_size[size]["verify_us"] for size in REQUESTS)
    boot += sum(by_size[size]["answer_us"] for size in ANSWERS)
    share = boot / 10 / options.boot_ms
    print(f"a boot: {boot / 1000:.2f} ms of CPU in all daemons, {share:.1f} % of {options.boot_ms} ms")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "boot_ms": boot / 1000}, indent=1) + "\n")


def signing(directory: Path, role: str) -> Signing:
    """Return one side, which trusts the other."""
    key = PrivateKey.generate()
    path = Path(keys.private_path(str(directory), role, "controller"))
    path.write_bytes(key.pem())
    path.chmod(0o600)
    trusted = directory / keys.TRUSTED
    known = keys.read_trusted(str(trusted)) if trusted.exists() else []
    keys.write_trusted(str(trusted), [*known, key.trusted(role, "controller", keys.now())])
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("keys_directory", str(directory), group="rpc")
    return Signing(conf, role, "controller")


def measured(api: Signing, conductor: Signing, size: int, runs: int) -> dict[str, Any]:
    arguments = {"request": {f"field_{number}": "x" * 40 for number in range(size // 55)}}
    message = Message("conductor", "create_instances", get_admin_context(), arguments=arguments)
    made = [api.signed(message) for _ in range(runs)]
    incoming = [
        SimpleNamespace(
            ctxt=json.loads(json.dumps(context)),
            message={"method": message.method, "args": arguments, "version": message.version},
        )
        for context, _ in made
    ]
    data, key = b"x" * size, api._ring.own  # type: ignore[union-attr]
    entry = api._ring.find(key.id)  # type: ignore[union-attr]
    assert entry is not None
    signature = key.sign(data)

    def answered(number: int) -> None:
        answer = conductor.reply(incoming[number], arguments, None)
        assert api.opened(message, incoming[number].ctxt[SIGNATURE]["id"], answer) == arguments

    return {
        "bytes": size,
        "sign_us": each(runs, lambda number: api.signed(message)),
        "verify_us": each(runs, lambda number: conductor.sender_of("conductor", "controller", incoming[number])),
        "answer_us": each(runs, answered),
        "bare_sign_us": each(runs, lambda number: key.sign(data)),
        "bare_verify_us": each(runs, lambda number: entry[1].verifies(signature, data)),
    }


def each(runs: int, work: Callable[[int], Any]) -> float:
    """Return microseconds of CPU: the median of ten parts."""
    part = max(1, runs // 10)
    times = []
    for start in range(0, part * 10, part):
        began = time.process_time()
        for number in range(start, min(start + part, runs)):
            work(number)
        times.append((time.process_time() - began) / part * 1e6)
    return round(statistics.median(times), 1)


if __name__ == "__main__":
    main()
