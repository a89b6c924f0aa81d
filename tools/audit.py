#!/usr/bin/env python3
"""Looks for known vulnerabilities of the locked versions of what a cloud and its tests install.

    tools/audit.py [--osv-url URL] [--accepted FILE] [LOCK]...

LOCK: files of pinned versions, by default `LOCKS`. pip-audit queries the index of Python packages, or a service that
speaks as osv.dev does. The exit status is 1 if a version has a vulnerability that the file of accepted ones does not
name, or if no version has one of its entries. Without an answer of the service the status is 0, and the last line
says that nothing was compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
REQUIREMENTS = TOP / "devstack/requirements"
LOCKS = [REQUIREMENTS / f"{name}.txt" for name in ("build", "stack", "compute", "controller", "tests")]
#: Lines of an id, a space, and the reason why the present version stays.
ACCEPTED = REQUIREMENTS / "accepted-vulnerabilities"
SECONDS = 20


class Unreachable(Exception):
    """The service did not answer."""


def query(locks: list[Path], osv_url: str | None) -> list[dict[str, Any]]:
    """Return pip-audit's entries of the locked versions: name, version, and either vulns or skip_reason."""
    service = ["--vulnerability-service", "osv", "--osv-url", osv_url] if osv_url else []
    files = [option for lock in locks for option in ("--requirement", str(lock))]
    options = ["--disable-pip", "--no-deps", "--timeout", str(SECONDS), "--progress-spinner", "off", "--format", "json"]
    with tempfile.TemporaryDirectory() as cache:  # not in a home directory, which may not exist
        command = [sys.executable, "-m", "pip_audit", "--cache-dir", cache, *options, *service, *files]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except ValueError:
        last = (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]
        if any(word in last for word in ("Connect", "Timeout", "Max retries", "ServiceError", "service")):
            raise Unreachable(last) from None
        raise SystemExit(f"pip-audit failed: {last}") from None
    return found


def accepted(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    reasons = {key: reason.strip() for key, _, reason in (line.partition(" ") for line in lines)}
    for key, reason in reasons.items():
        if not reason:
            raise SystemExit(f"{path}: {key} has no reason.")
    return reasons


def audit(locks: list[Path], osv_url: str | None, reasons: dict[str, str]) -> list[str]:
    """Return one line for each mistake. Raises `Unreachable` if no version was compared."""
    entries = query(locks, osv_url)
    skipped = [entry for entry in entries if "skip_reason" in entry]
    if len(skipped) == len(entries):
        raise Unreachable(skipped[0]["skip_reason"] if skipped else "no package is listed")
    for entry in skipped:
        print(f"{entry['name']}: not compared: {entry['skip_reason']}")
    findings, met = [], set()
    for entry in entries:
        for vulnerability in entry.get("vulns", []):
            names = {vulnerability["id"], *vulnerability["aliases"]}
            met |= names & reasons.keys()
            if not names & reasons.keys():
                fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
                findings.append(f"{entry['name']} {entry['version']}: {vulnerability['id']}, fixed in {fixed}")
    return findings + [f"{key} is accepted, but no locked version has it" for key in sorted(reasons.keys() - met)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osv-url", help="endpoint of a service that speaks as osv.dev does")
    parser.add_argument("--accepted", type=Path, default=ACCEPTED)
    parser.add_argument("locks", nargs="*", type=Path, default=LOCKS)
    options = parser.parse_args()
    try:
        audit(options.locks[:1], options.osv_url, {})  # a short file shows whether the service knows versions at all
        findings = audit(options.locks, options.osv_url, accepted(options.accepted))
    except Unreachable as error:
        print(f"NOT COMPARED with known vulnerabilities: the service does not answer ({error})")
        return 0
    print("\n".join(findings) or "no locked version has a known vulnerability that is not accepted")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
