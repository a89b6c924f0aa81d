#!/bin/bash
# The whole fault matrix, as root: each operation with each single fault at each point it passes (some forty minutes; docs/faults.md).
#
#   faults.sh [--pairs N [--seed N]] [--parallel N] [--only TEXT] [--logs DIRECTORY]
#
# It needs what `test.sh unit` installs, and starts the broker. Its last line is "N passed, N failed".
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

need_root
LOG=$(mktemp /tmp/nova-lite-faults.XXXXXX.log)
say "Fault matrix of $TOP (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Starting the broker" start_broker
cd "$TOP" || die "no checkout at $TOP"
exec "$TEST_VENV/bin/python" -W ignore -m tests.faults.matrix "$@"
