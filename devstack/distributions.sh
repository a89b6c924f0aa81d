#!/bin/bash
# distributions.sh: the README's first command on an empty machine of each release of devstack/releases, which ends with a guest.
#
#   distributions.sh [--then COMMAND]... [--wait] [SUITE]...
#
# A machine is a container with debootstrap's smallest system, a clone of the checkout's last commit, and a network of its own.
# --then runs a further command in the clone, such as "devstack/test.sh unit". --wait keeps each machine until Ctrl-C. The status
# is 1 if anything fails.
# It needs root, debootstrap, slirp4netns and systemd-nspawn, and KEYRING as packages.sh does.
set -euo pipefail
top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
[[ $EUID == 0 ]] || { echo "distributions.sh needs root." >&2; exit 1; }
for program in debootstrap slirp4netns systemd-nspawn; do
    command -v "$program" >/dev/null || { echo "distributions.sh needs $program: install the package." >&2; exit 1; }
done
PYTHON=$top/.venv/bin/python
[[ -x $PYTHON ]] || PYTHON=$(command -v python3)
PYTHONPATH=$top exec "$PYTHON" -W ignore -m tests.integration.systemd.distributions "$@"
