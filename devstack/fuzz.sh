#!/bin/bash
# Sends a cloud requests made from its own OpenAPI document, and counts the answers that are 5xx (501 is an answer: a part
# of the API that is not there), that contradict the document, or that tell of another project's things:
#
#   fuzz.sh [--requests N] [--seed N] [--directory DIRECTORY] [--auth-url URL --manage COMMAND]
#
# Rounds are run until at least N (20000) requests were sent. In each, members of two projects are at it at the same time,
# each in midst of things marked as its own, and then an admin. By default the cloud is this machine's, stacked with
# AUTH=standalone; another one is named by the URL of its identity API and the nova-lite-manage command, with its options,
# that makes the users. They change and delete what they may: not for a cloud that is needed. What was sent, and each
# failure, is in DIRECTORY (by default /opt/nova-lite/fuzz), where schemathesis gets a venv. The last line is
# "20123 requests, 0 failures", and the status 0 when there was none. The same seed sends much the same requests.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in python clouds accounts; do
    source "$TOP/devstack/lib/$component.sh"
done

usage() {
    sed -n '2,5s/^# \{0,1\}//p' "$TOP/devstack/fuzz.sh" >&2
    exit 2
}

load_settings
requests=20000 seed=$RANDOM directory=$PREFIX/fuzz url=$(auth_url) manage=$VENV/bin/nova-lite-manage
while (($#)); do
    (($# > 1)) || usage
    case $1 in
    --requests | --seed | --directory | --auth-url | --manage)
        name=${1#--}
        printf -v "${name#auth-}" %s "$2"
        shift 2
        ;;
    *) usage ;;
    esac
done
[[ $requests =~ ^[1-9][0-9]{0,8}$ ]] || die "--requests $requests: must be a number from 1 to 999999999."
[[ $seed =~ ^[0-9]{1,9}$ ]] || die "--seed $seed: must be a number from 0 to 999999999."
[[ $directory == /* ]] || die "--directory $directory: must be absolute."
use_manage "$manage"

install -d -m 0700 "$directory"
LOG=$directory/fuzz.log
: >"$LOG"
say "Sending requests to the cloud of $url (all details in $directory)"
step "Installing schemathesis into $directory/venv" install_locked "$directory/venv" fuzz
step "Making users" make_accounts "$directory" fuzz one:member two:member three:admin
exec "$directory/venv/bin/python" "$TOP/devstack/lib/fuzz.py" "$directory" "$url" "$requests" "$seed"
