#!/bin/bash
# cluster.sh N: a controller and N hosts as containers with systemd, made with nova-lite-setup. A cloud to play with, until Ctrl-C.
# It needs root, systemd-nspawn, and what devstack/test.sh installs. Nothing of it reaches this machine's own interfaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $EUID == 0 ]] || { echo "cluster.sh needs root." >&2; exit 1; }
PYTHON=.venv/bin/python
[[ -x $PYTHON ]] || PYTHON=$(command -v python3)
exec "$PYTHON" -W ignore -m tests.integration.systemd.cluster "$@"
