#!/bin/bash
# Check everything, as root, from a clean checkout:
#
#   test.sh [--fast | --long] [--once] [lint|unit|functional|security|faults|integration|long]...
#   test.sh run PATH_OR_OPTION_OF_PYTEST...     these tests alone, with the services and databases that they may need
#
# Without names all stages run, each to its end. What failed is shown again in the last lines, and told by the status.
# Integration runs beside the others, and then the last of them that has not begun; the output of both comes last.
# Failed tests of up to three files of a run are tried once more, alone, and named in the last lines if they pass then;
# with --once they are not. --fast is lint and unit. --long is all stages and `long`, which runs the scripts test-*.sh: clouds
# with the real Keystone, Glance, Neutron and Cinder, and a real OpenID Connect provider. What the tests need is installed
# and started; broker, databases and libvirt are left running.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$TOP/devstack/test.sh" >&2
    exit 2
}

stages=() chosen=()
if [[ ${1-} == run ]]; then
    (($# > 1)) || usage
    chosen=("${@:2}")
    set -- functional
fi
for word; do
    case $word in
    --fast) stages+=(lint unit) ;;
    --long) stages+=("${ALL_STAGES[@]}" long) ;;
    --once) MAX_AGAIN=0 ;;
    lint | unit | functional | security | faults | integration | long) stages+=("$word") ;;
    *) usage ;;
    esac
done
((${#stages[@]})) || stages=("${ALL_STAGES[@]}")

need_root
# Debian 13 keeps /tmp in memory, which has no room for the files of all tests.
export TMPDIR=/var/tmp
# Most terminals allow 1,024 open files; the units of the daemons allow more.
ulimit -Sn 65536 2>/dev/null || ulimit -Sn "$(ulimit -Hn)"
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
results=$(mktemp)
beside=$(mktemp)
begun=$(mktemp --directory) # has a directory for each stage that has begun
UNSTEADY=$(mktemp)
FAILURES=$(mktemp)
beside_pid=
databases=
trap leave EXIT

# What runs beside ends, too, if this is ended; what it has stacked, stays.
leave() {
    [[ -z $beside_pid ]] || kill -- "-$beside_pid" 2>/dev/null || true
    [[ -z $databases ]] || drop_test_databases "$TEST_DATABASE" >>"$LOG" 2>&1 || say "The test databases could not be dropped: see $LOG"
    remove_tree "$begun"
    rm -f "$results" "$beside" "$UNSTEADY" "$FAILURES"
}

say "Testing $TOP (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
[[ " ${stages[*]} " != *" lint "* ]] || step "Installing what checks the web page" install_page_tools
if [[ " ${stages[*]} " =~ \ (functional|security|faults|integration)\  ]]; then
    password=$(head -c 12 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
    step "Starting broker, databases and libvirt" start_services_for_tests
    databases=made
    step "Making test databases" make_test_databases "$password"
    export NOVA_LITE_TEST_MARIADB="mysql://$TEST_DATABASE:$password@127.0.0.1/$TEST_DATABASE?charset=utf8mb4"
    export NOVA_LITE_TEST_POSTGRESQL="postgresql+psycopg://$TEST_DATABASE:$password@127.0.0.1/$TEST_DATABASE"
fi

cd "$TOP"
export PATH=$TEST_VENV/bin:$PATH

if ((${#chosen[@]})); then
    pytest --no-header "${chosen[@]}" || die "failed after $(clock)."
    exit
fi

# run_stage STAGE: to its end; how it went is a line of $results.
run_stage() {
    local began=$SECONDS status result=passed
    say "=== $1"
    set +e
    (
        set -e
        "stage_$1"
    )
    status=$?
    set -e
    ((status == 0)) || result="FAILED (status $status)"
    printf '%-12s %-20s %4d s\n' "$1" "$result" $((SECONDS - began)) >>"$results"
    say "=== $1 $result after $((SECONDS - began)) s"
}

# run_lane STAGE...: those that the other lane has not begun.
run_lane() {
    local stage
    for stage; do
        mkdir "$begun/$stage" 2>/dev/null || continue
        run_stage "$stage"
    done
}

# run_beside STAGE...: a lane beside that of the script.
run_beside() {
    set -m # in a process group of its own
    run_lane "$@" >"$beside" 2>&1 </dev/null &
    beside_pid=$!
    set +m
    say "=== $1 beside the next ones; what it says comes after them"
}

follow_beside() {
    tail --quiet --lines=+1 --follow --pid="$beside_pid" "$beside"
    wait "$beside_pid" || true
    beside_pid=
}

# Real guests and their clients mostly wait, and so do daemons with fake hypervisors. They share the broker alone.
mkdir "$begun/long"
[[ " ${stages[*]} " != *" lint "* ]] || run_lane lint
if [[ " ${stages[*]} " == *" integration "* && " ${stages[*]} " =~ \ (unit|functional|security|faults)\  ]]; then
    backwards=()
    for stage in "${stages[@]}"; do backwards=("$stage" "${backwards[@]}"); done
    run_beside integration "${backwards[@]}"
fi
run_lane "${stages[@]}"
[[ -z $beside_pid ]] || follow_beside
# Last, as it stacks other clouds than the stage integration does.
[[ " ${stages[*]} " != *" long "* ]] || run_stage long

echo
cat "$FAILURES"
failed=()
for stage in "${stages[@]}"; do
    line=$(grep "^$stage " "$results") || line="$stage FAILED (it ended without a result)"
    echo "$line"
    [[ $line == *FAILED* ]] && failed+=("$stage")
done
[[ ! -s $UNSTEADY ]] || sed 's/^/passed at the second attempt alone: /' "$UNSTEADY"
((${#failed[@]} == 0)) || die "failed: ${failed[*]} (after $(clock))"
say "All of it passed."
