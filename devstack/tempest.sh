#!/bin/bash
# Run Tempest's compute tests against this machine's cloud, which has to be stacked with AUTH=standalone:
#
#   tempest.sh [--concurrency N] [--directory DIRECTORY] [--auth-url URL --manage COMMAND] [--failed | REGEX]
#
# REGEX picks tests (by default tempest.api.compute). --failed repeats those that failed, and adds to the results.
# Tempest, its configuration and report.md go into DIRECTORY (by default /opt/nova-lite/tempest). Another cloud is named
# by the URL of its identity API and the nova-lite-manage command, with its options, that makes its users.
# The status is 0 when no test failed but for want of something that this cloud is known not to have: report.md says what
# each failure and skip needs. It can be repeated.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in python clouds accounts tempest; do
    source "$TOP/devstack/lib/$component.sh"
done

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$TOP/devstack/tempest.sh" >&2
    exit 2
}

load_settings
concurrency=1 directory=$PREFIX/tempest url=$(auth_url) manage=$VENV/bin/nova-lite-manage regex="" failed=""
while (($#)); do
    case $1 in
    --concurrency | --directory | --auth-url | --manage)
        (($# > 1)) || usage
        name=${1#--}
        name=${name#auth-}
        printf -v "$name" %s "$2"
        shift 2
        ;;
    --failed)
        failed=1
        shift
        ;;
    -*) usage ;;
    *)
        [[ -z $regex ]] || usage
        regex=$1
        shift
        ;;
    esac
done
[[ $concurrency =~ ^[1-9][0-9]?$ ]] || die "--concurrency $concurrency: must be a number from 1 to 99."
[[ $directory == /* ]] || die "--directory $directory: must be absolute."
use_manage "$manage"

install -d -m 0755 "$directory"
LOG=$directory/tempest.log
: >"$LOG"
say "Testing the cloud of $url with Tempest (all details in $LOG)"
step "Installing Tempest into $directory/venv" install_tempest "$directory/venv"
step "Making users for it" make_accounts "$directory" tempest $(tempest_accounts "$concurrency")
step "Writing its configuration" configure_tempest "$directory" "$url"
say "Running tests"
if [[ -n $failed ]]; then
    run_tempest "$directory" "$concurrency" "$(failed_tests "$directory")" --combine
else
    run_tempest "$directory" "$concurrency" "${regex:-^tempest\\.api\\.compute}"
fi
report_tempest "$directory"
