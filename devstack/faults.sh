#!/bin/bash
# The whole fault matrix, as root: each operation with each single fault at each point it passes (about two hours; docs/contributing/fault-tests.md).
#
#   faults.sh [--pairs N [--seed N]] [--parallel N] [--only TEXT]... [--logs DIRECTORY] [--results FILE]
#   faults.sh --real-guests [--only TEXT]    instead some 30 cases on libvirt, with the guest that is built here (ten minutes)
#   faults.sh --history MINUTES [--seed N] [--file FILE] [--without PROTECTION]
#                                            instead random requests and random faults, judged afterwards (docs/contributing/fault-tests.md)
#   faults.sh --history --check FILE [--server ID]    judge a history again
#
# --results FILE: what has passed there is not run again, so that a run can go on after it was stopped.
# It needs what `test.sh unit` installs, and starts the broker. Its last line is "N passed, N failed", or "N violations".
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

require_positive --pairs --parallel --every --history --clients -- "$@"
need_root
LOG=$(mktemp /tmp/nova-lite-faults.XXXXXX.log)
say "Fault matrix of $TOP (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Starting the broker" start_broker
cd "$TOP" || die "no checkout at $TOP"
if [[ ${1:-} == --history ]]; then
    exec "$TEST_VENV/bin/python" -W ignore -m tests.faults.history "${@:2}"
fi
if [[ ${1:-} == --real-guests ]]; then
    step "Starting libvirt" start_libvirt
    step "Building the guest image" build_guest
    exec "$TEST_VENV/bin/python" -W ignore -m tests.faults.real_guests "$GUEST/image" "${@:2}"
fi
exec "$TEST_VENV/bin/python" -W ignore -m tests.faults.matrix "$@"
