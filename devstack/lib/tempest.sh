# Tempest in a virtual environment and a workspace of its own. Sourced, never run.

TEMPEST='tempest==47.*'
NETWORK_TESTS='(test_list_servers_filtered_by_ip|admin\.test_networks|compute\.test_networks)'

install_tempest() {
    local directory=$1
    make_venv "$directory"
    [[ $(cat "$directory/.dependencies" 2>/dev/null) != "$TEMPEST" ]] || return 0
    "$directory/bin/pip" install --quiet "$TEMPEST"
    echo "$TEMPEST" >"$directory/.dependencies"
}

# tempest_accounts CONCURRENCY: each worker needs several projects, with a manager, a member and a reader in each, and two
# admins; one admin more looks for networks.
tempest_accounts() {
    seq --format=%g:member $((4 * $1))
    seq --format=%g:manager $((4 * $1))
    seq --format=%g:reader $((4 * $1))
    seq --format=admin-%g:admin $((2 * $1 + 1))
}

python_of_tempest() {
    "$directory/venv/bin/python" "$@"
}

configure_tempest() {
    local directory=$1 url=$2
    [[ -d $directory/workspace/.stestr ]] ||
        "$directory/venv/bin/tempest" init --workspace-path "$directory/workspaces.yaml" "$directory/workspace"
    python_of_tempest "$TOP/devstack/lib/tempest.py" configure "$directory" "$url"
}

# run_tempest DIRECTORY CONCURRENCY REGEX: those of the networks that compute knows need a configuration without Neutron.
run_tempest() {
    local directory=$1 concurrency=$2 regex=$3
    cd "$directory/workspace" || return
    tempest_tests "$directory" "$concurrency" --config-file etc/tempest.conf --regex "$regex" --exclude-regex "$NETWORK_TESTS" || true
    tempest_tests "$directory" 1 --config-file etc/networks.conf --regex "^(?=.*$regex)(?=.*$NETWORK_TESTS)" --combine || true
}

# repeat_failed DIRECTORY CONCURRENCY: those that report_tempest listed.
repeat_failed() {
    local directory=$1 concurrency=$2
    cd "$directory/workspace" || return
    [[ -s $directory/failed ]] || die "there is no test to repeat."
    tempest_tests "$directory" "$concurrency" --config-file etc/tempest.conf --include-list "$directory/failed" --combine || true
}

# tempest_tests DIRECTORY CONCURRENCY OPTION...; its status is no verdict: report_tempest gives that.
tempest_tests() {
    local directory=$1 concurrency=$2
    shift 2
    "$directory/venv/bin/tempest" run --concurrency "$concurrency" "$@" 2>&1 |
        tee -a "$LOG" | grep --line-buffered -E '^\{[0-9]+\} |^Totals' | sed -uE 's/ \[[0-9.]+s\]//'
}

report_tempest() {
    local directory=$1
    cd "$directory/workspace" || return
    "$directory/venv/bin/stestr" last --subunit |
        python_of_tempest "$TOP/devstack/lib/tempest.py" report "$directory"
}
