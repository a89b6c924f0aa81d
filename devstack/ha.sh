#!/bin/bash
# Loses parts of a cloud under load, as root, and measures what fails (docs/howto/high-availability.md).
#
#   ha.sh [--only TEXT]... [--interrupt] [--stay]
#   ha.sh --upgrade [--from COMMIT] [--stay]
#
# Three controllers and two hosts are containers with systemd. Each controller is killed, cut off and paused, and a broker
# and a database's node are lost. --only chooses losses by their titles. With --interrupt, the set-up of the second
# controller is first killed at each of its steps, and run again. With --stay, a failure leaves the machines until Ctrl-C.
# It prints failed requests and seconds as a table (half an hour). Nothing of it reaches this machine's interfaces.
#
# --upgrade loses nothing: each machine gets this version instead of an older one, that of COMMIT, as docs/howto/upgrade.md
# says (a quarter of an hour). It fails if a request does.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

module=failover
if [[ ${1:-} == --upgrade ]]; then
    module=upgrade
    shift
fi
arguments=("$@")
while (($#)); do
    case $module$1 in
        failover--only | upgrade--from) (($# > 1)) || die "$1 needs a value." ;&
        failover--only=* | upgrade--from=* | failover--interrupt | *--stay) ;;
        *) no_arguments "$@" ;;
    esac
    [[ $1 != --only && $1 != --from ]] || shift
    shift
done
set -- "${arguments[@]}"
need_root
LOG=$(mktemp /tmp/nova-lite-ha.XXXXXX.log)
say "A cloud with three controllers under load (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Installing packages of controllers" install_stopped "${CONTROLLER_PACKAGES[@]}"
cd "$TOP" || die "no checkout at $TOP"
exec "$TEST_VENV/bin/python" -W ignore -m "tests.integration.systemd.$module" "$@"
