#!/bin/bash
# cluster.sh N: a controller and N hosts as containers with systemd, made with nova-lite-setup. A cloud to play with, until Ctrl-C.
#
#   cluster.sh N [--debian DIRECTORY] [--guests] [--alert DIRECTORY] [--purge] [--once]
#
# --debian starts with empty machines, which install the packages that devstack/packages.sh made in DIRECTORY. Their release, of
# devstack/releases, is that of the packages. It needs debootstrap, and KEYRING as packages.sh does. --guests boots a server for
# each host.
# --alert runs Prometheus with the files of the set-up, cuts off the last host until its alerts fire, and stores pictures of the
# dashboards in DIRECTORY. --purge purges the packages at the end, and fails if anything is left. --once ends without waiting, as
# --purge does. It prints the seconds of each step.
# It needs root, systemd-nspawn, and what devstack/test.sh installs. Nothing of it reaches this machine's own interfaces.
set -euo pipefail
top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
[[ $EUID == 0 ]] || { echo "cluster.sh needs root." >&2; exit 1; }
PYTHON=$top/.venv/bin/python
[[ -x $PYTHON ]] || PYTHON=$(command -v python3)
"$PYTHON" -W ignore -c "import oslo_service" 2>/dev/null || { echo "cluster.sh needs the checkout's .venv: devstack/test.sh lint makes it." >&2; exit 1; }
# The caller's directory stays, as the arguments name others from there.
PYTHONPATH=$top exec "$PYTHON" -W ignore -m tests.integration.systemd.cluster "$@"
