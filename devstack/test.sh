#!/bin/bash
# Check everything, as root, from a clean checkout:
#
#   test.sh [--fast] [lint|unit|functional|faults|integration]...
#
# Without names all stages run, each to its end, and any failure is told again in the last lines and by the status.
# --fast is lint and unit. What the tests need is installed and started; broker, databases and libvirt are left running.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

stages=()
for word; do
    case $word in
    --fast) stages+=(lint unit) ;;
    lint | unit | functional | faults | integration) stages+=("$word") ;;
    *) usage ;;
    esac
done
((${#stages[@]})) || stages=("${ALL_STAGES[@]}")

need_root
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
say "Testing $TOP (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
if [[ " ${stages[*]} " =~ \ (functional|faults|integration)\  ]]; then
    password=$(head -c 12 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
    step "Starting broker, databases and libvirt" start_services_for_tests
    step "Making test databases" make_test_databases "$password"
    trap 'drop_test_databases >>"$LOG" 2>&1' EXIT
    export NOVA_LITE_TEST_MARIADB="mysql+pymysql://$TEST_DATABASE:$password@127.0.0.1/$TEST_DATABASE?charset=utf8mb4"
    export NOVA_LITE_TEST_POSTGRESQL="postgresql+psycopg://$TEST_DATABASE:$password@127.0.0.1/$TEST_DATABASE"
fi

cd "$TOP"
export PATH=$TEST_VENV/bin:$PATH
failed=()
summary=()
for stage in "${stages[@]}"; do
    began=$SECONDS
    say "=== $stage"
    set +e
    (
        set -e
        "stage_$stage"
    )
    status=$?
    set -e
    result=passed
    ((status == 0)) || { result="FAILED (status $status)" && failed+=("$stage"); }
    summary+=("$(printf '%-12s %-20s %4d s' "$stage" "$result" $((SECONDS - began)))")
    say "=== $stage $result after $((SECONDS - began)) s"
done

echo
printf '%s\n' "${summary[@]}"
((${#failed[@]} == 0)) || die "failed: ${failed[*]} (after $(clock))"
say "All of it passed."
