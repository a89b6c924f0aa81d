# What tests need, and the stages that test.sh runs. Sourced, never run.

TEST_VENV=$TOP/.venv
TEST_DATABASE=nova_lite_test
TEST_PACKAGES=(chromium mariadb-server openssl openssh-client postgresql shellcheck)
ALL_STAGES=(lint unit functional faults integration)

prepare_tests() {
    install_packages "${BASE_PACKAGES[@]}" "${LIBVIRT_PACKAGES[@]}" "${CONSOLE_PACKAGES[@]}" "${GUEST_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    install_for_tests "$TEST_VENV"
}

start_services_for_tests() {
    start_broker
    start_libvirt
    start_mariadb
    start_postgresql
}

# Empty databases on the two servers, which the tests are told of in their environment; a test may make others whose
# names begin the same.
make_test_databases() {
    make_mariadb_database "$TEST_DATABASE" "$TEST_DATABASE" "$1" 'nova\_lite\_test%'
    make_postgresql_database "$TEST_DATABASE" "$TEST_DATABASE" "$1" CREATEDB
}

drop_test_databases() {
    drop_mariadb_database "$TEST_DATABASE" "$TEST_DATABASE"
    drop_postgresql_database "$TEST_DATABASE" "$TEST_DATABASE"
}

# run_tests DIRECTORY [OPTION]...: fewer lines than pytest's default, but its closing line.
run_tests() {
    pytest --quiet --no-header --tb=short --durations=5 "$@"
}

# --- stages; each runs in the checkout, with the test environment's commands first on PATH

# Every linter, whatever the one before it found.
stage_lint() {
    local status=0
    ruff check . || status=1
    ruff format --check . || status=1
    mypy || status=1
    lint-imports || status=1
    shellcheck --shell=bash --severity=warning devstack/*.sh devstack/lib/*.sh devstack/guest/build.sh .ci/run || status=1
    return $status
}

stage_unit() {
    run_tests tests/unit tests/model --numprocesses auto
}

stage_functional() {
    run_tests tests/functional --numprocesses auto --maxprocesses 4 --dist loadfile
}

stage_faults() {
    run_tests tests/faults --numprocesses 2 --dist loadfile
}

# The test that closes /dev/kvm makes all other guests wait, so it comes first, alone. The cloud has two compute hosts, as
# servers are to move.
stage_integration() {
    local status=0
    run_tests tests/integration/libvirt/test_kvm_device.py || status=1
    is_stacked || export COMPUTES=${COMPUTES:-2}
    test_stacked integration_tests || status=1
    return $status
}

# The cloud's tests, and beside them those of the driver, which have hosts and networks of their own: most of the time
# each waits for guests. What the latter say comes last.
integration_tests() {
    local status=0 said driver
    said=$(mktemp)
    run_tests tests/integration/libvirt --ignore tests/integration/libvirt/test_kvm_device.py >"$said" 2>&1 &
    driver=$!
    run_tests tests/integration/cloud || status=$?
    wait "$driver" || status=$?
    cat "$said"
    rm "$said"
    return $status
}

# test_stacked COMMAND...: on a cloud that stack.sh makes, or brings up to date with this checkout if the machine is one
# already, which it then stays.
test_stacked() {
    local was_stacked=0 status=0
    ! is_stacked || was_stacked=1
    "$TOP/devstack/stack.sh" || return
    "$@" || status=$?
    ((was_stacked)) || "$TOP/devstack/unstack.sh" || status=1
    return $status
}
