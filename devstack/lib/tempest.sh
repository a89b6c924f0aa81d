# Tempest in a virtual environment and a workspace of its own. Sourced, never run.

# Those of the networks that compute itself knows, and those that make projects for themselves.
WITHOUT_NEUTRON='(test_list_servers_filtered_by_ip|admin\.test_networks|compute\.test_networks|admin\.test_quotas)'

install_tempest() {
    install_locked "$1" tempest
}

# tempest_accounts CONCURRENCY: each worker needs several projects, with a manager, a member and a reader in each, two
# admins, and one that is a service as well; one admin more looks for networks.
tempest_accounts() {
    seq --format=%g:member $((4 * $1))
    seq --format=%g:manager $((4 * $1))
    seq --format=%g:reader $((4 * $1))
    seq --format=admin-%g:admin $((2 * $1 + 1))
    seq --format=service-%g:admin,service "$1"
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

# run_tempest DIRECTORY CONCURRENCY REGEX [OPTION...]: some tests need a configuration that says that there is no Neutron.
run_tempest() {
    local directory=$1 concurrency=$2 regex=$3
    shift 3
    cd "$directory/workspace" || return
    tempest_tests "$directory" "$concurrency" --config-file etc/tempest.conf \
        --regex "$regex" --exclude-regex "$WITHOUT_NEUTRON" "$@" || true
    tempest_tests "$directory" 1 --config-file etc/without-neutron.conf \
        --regex "^(?=.*($regex))(?=.*$WITHOUT_NEUTRON)" --combine || true
}

# failed_tests DIRECTORY: a regular expression of those that report_tempest listed.
failed_tests() {
    [[ -s $1/failed ]] || die "there is no failed test to repeat."
    paste --serial --delimiters='|' "$1/failed"
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
