# What tests need, and the stages that test.sh runs. Sourced, never run.

TEST_VENV=$TOP/.venv
# Database and user of this run: another run has others, and keeps its password.
TEST_DATABASE=nova_lite_test_$$
TEST_PACKAGES=(bind9 btrfs-progs dbus gnupg haproxy iperf3 iputils-ping ldap-utils lzop mariadb-server ntfs-3g openssl openssh-client
    openssh-server postgresql prometheus qemu-efi-aarch64 qemu-system-arm restic rsync shellcheck slapd systemd-container
    systemd-sysv xfsprogs)
# The daemon of virtiofs has a package of its own after Debian 12.
[[ $(source /etc/os-release && echo "${VERSION_ID-}") == 12 ]] || TEST_PACKAGES+=(virtiofsd)
# Ubuntu has Chromium as a snap alone, which needs its store and sees no temporary files of others. There npm has it.
if [[ $(source /etc/os-release && echo "${ID-}") == ubuntu ]]; then
    CHROMIUM_OF_NPM=@sparticuz/chromium@147.0.0
    TEST_PACKAGES+=(fonts-dejavu-core libnss3)
else
    CHROMIUM_OF_NPM=
    TEST_PACKAGES+=(chromium)
fi
# What controllers of a cloud with several have besides. Its containers have this machine's packages.
CONTROLLER_PACKAGES=(galera-4 haproxy keepalived mariadb-backup socat)
# Files whose failed tests are tried again, in one run of pytest. All tests of a file fail with a server that they share.
MAX_AGAIN=${MAX_AGAIN:-3}
# From the front, with integration and then the last ones beside (test.sh): one process is enough for security.
ALL_STAGES=(lint unit functional faults security integration)

# Services of packages of which tests only run the programs. They listen on all addresses, so who had none gets none.
declare -A SERVICES_OF=([openssh-server]="ssh.service ssh.socket" [slapd]=slapd.service [prometheus]=prometheus.service
    [haproxy]=haproxy.service [keepalived]=keepalived.service [bind9]=named.service)

prepare_tests() {
    install_stopped "${BASE_PACKAGES[@]}" "${LIBVIRT_PACKAGES[@]}" "${CONSOLE_PACKAGES[@]}" "${SPICE_PACKAGES[@]}" "${GUEST_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    install_for_tests "$TEST_VENV"
    [[ -z $CHROMIUM_OF_NPM ]] || install_chromium_of_npm
}

# The package has the program compressed. Its name tells the version that is here.
install_chromium_of_npm() {
    local directory=$TEST_VENV/${CHROMIUM_OF_NPM//[@\/]/_}
    if [[ ! -x $directory/chromium ]]; then
        install_node
        mkdir -p "$directory"
        npm pack --silent --pack-destination "$directory" "$CHROMIUM_OF_NPM"
        tar --extract --gzip --file "$directory"/*.tgz --directory "$directory" package/bin/chromium.br
        rm "$directory"/*.tgz
        node --eval 'process.stdout.write(require("zlib").brotliDecompressSync(require("fs").readFileSync(0)))' \
            <"$directory/package/bin/chromium.br" >"$directory/chromium.new"
        remove_tree "$directory/package"
        chmod +x "$directory/chromium.new"
        mv "$directory/chromium.new" "$directory/chromium"
    fi
    ln -sfn "$directory/chromium" "$TEST_VENV/bin/chromium"
}

# What checks and builds the web page, once for each lock file: a further run needs no network.
install_page_tools() {
    local page=$TOP/tools/page
    install_node
    if ! cmp --silent "$page/package-lock.json" "$page/node_modules/.installed"; then
        npm --prefix "$page" ci --no-audit --no-fund
        cp "$page/package-lock.json" "$page/node_modules/.installed"
    fi
}

# install_stopped PACKAGE...: services of $SERVICES_OF that come with them do not run, now and after a boot.
install_stopped() {
    local package units=()
    for package in "${!SERVICES_OF[@]}"; do
        [[ " $* " == *" $package "* ]] || continue
        # shellcheck disable=SC2206 # several units, separated by spaces
        [[ -z $(missing_packages "$package") ]] || units+=(${SERVICES_OF[$package]})
    done
    install_packages "$@"
    if ((${#units[@]})) && has_systemd; then
        systemctl disable --now "${units[@]}" || true
    fi
}

start_services_for_tests() {
    # As udev has it; without udev, it is root's alone, and qemu of an ordinary user cannot open its taps.
    [[ ! -c /dev/net/tun ]] || chmod 0666 /dev/net/tun
    start_broker
    start_libvirt
    start_mariadb
    start_postgresql
}

# Empty databases on the two servers, which the tests are told of in their environment; a test may make others whose
# names begin the same.
make_test_databases() {
    drop_databases_of_ended_runs
    make_mariadb_database "$TEST_DATABASE" "$TEST_DATABASE" "$1" "${TEST_DATABASE//_/\\_}%"
    make_postgresql_database "$TEST_DATABASE" "$TEST_DATABASE" "$1" CREATEDB
}

# Runs that were killed have left theirs.
drop_databases_of_ended_runs() {
    local user
    for user in $(
        {
            echo "SELECT DISTINCT User FROM mysql.user WHERE User LIKE 'nova\_lite\_test\_%'" | sql_mariadb
            sql_postgresql -c "SELECT rolname FROM pg_roles WHERE rolname LIKE 'nova\_lite\_test\_%'"
        } | grep ^nova_lite_test_ | sort --unique
    ); do
        kill -0 "${user##*_}" 2>/dev/null || drop_test_databases "$user"
    done
}

# drop_test_databases USER: with those that a test which was killed has left. PostgreSQL does not drop a role that owns a
# database.
drop_test_databases() {
    local name
    for name in $(echo "SHOW DATABASES LIKE '${1//_/\\_}\_%'" | sql_mariadb | tail --lines=+2); do
        echo "DROP DATABASE IF EXISTS \`$name\`" | sql_mariadb
    done
    drop_mariadb_database "$1" "$1"
    for name in $(sql_postgresql -c "SELECT datname FROM pg_database JOIN pg_roles ON datdba = pg_roles.oid
        WHERE rolname = '$1'"); do
        sql_postgresql -c "DROP DATABASE IF EXISTS \"$name\" WITH (FORCE)"
    done
    drop_postgresql_database "$1" "$1"
}

# run_tests DIRECTORY [OPTION]...: fewer lines than pytest's default, but its closing line. Failed tests of up to $MAX_AGAIN files
# are run once more, alone: on a busy machine a deadline may be missed. Those that pass then are named in $UNSTEADY, if
# that is set. What pytest says of the others is added to $FAILURES, if that is set.
run_tests() {
    local status=0 cache
    cache=$(mktemp --directory)
    pytest_quietly --override-ini "cache_dir=$cache" "$@" | tee "$cache/said" || status=$?
    if ((status == 1 && MAX_AGAIN > 0)); then
        status=0
        run_again "$cache/v/cache/lastfailed" "$@" | tee --append "$cache/said" || status=$?
    fi
    ((status == 0)) || [[ -z ${FAILURES:-} ]] || what_failed "$1" "$cache/said" >>"$FAILURES"
    remove_tree "$cache"
    return $status
}

pytest_quietly() {
    pytest --quiet --no-header --tb=short --durations=5 --disable-warnings "$@"
}

# what_failed DIRECTORY FILE: the end of what pytest said of failures, without its list of slow tests. Without such a part,
# the last lines.
what_failed() {
    local found
    found=$(awk '/^=+ (FAILURES|ERRORS) =+$/ {shown = 1} /^=+ slowest / {shown = 0} shown' "$2" | tail --lines=100)
    echo "--- what failed in ${1%/test_*.py}:"
    echo "${found:-$(tail --lines=40 "$2")}"
    grep --extended-regexp '^(FAILED|ERROR) ' "$2" | sort --unique || true
}

# run_again FILE DIRECTORY [OPTION]...: FILE is what pytest has kept of its failures.
run_again() {
    local cache=${1%/v/cache/lastfailed} failed
    failed=$(python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$1") || return 1
    shift
    (($(sed 's/::.*//' <<<"$failed" | sort --unique | wc -l) <= MAX_AGAIN)) || return 1
    say "Trying once more, alone: ${failed//$'\n'/, }"
    pytest_quietly --override-ini "cache_dir=$cache" "$@" --numprocesses 0 --last-failed || return
    [[ -z ${UNSTEADY:-} ]] || echo "$failed" >>"$UNSTEADY"
}

# --- stages; each runs in the checkout, with the test environment's commands first on PATH

# Every linter, whatever the one before it found.
stage_lint() {
    local status=0
    ruff check . tools/trace || status=1
    ruff format --check . tools/trace || status=1
    mypy || status=1
    lint-imports || status=1
    python tools/prose.py || status=1
    python tools/seams.py || status=1
    python tools/audit.py || status=1
    build_site || status=1
    npm --prefix tools/page run --silent check || status=1
    shellcheck --shell=bash --severity=warning devstack/*.sh devstack/lib/*.sh devstack/settings devstack/guest/build.sh devstack/packaging/install.sh .ci/run || status=1
    shellcheck --shell=dash --severity=warning devstack/packaging/{trees,purge}.sh || status=1
    return $status
}

# The documentation as a site, which is thrown away: dead links, and pages that no menu has, are errors.
build_site() {
    local directory status=0
    directory=$(mktemp --directory)
    mkdocs build --quiet --strict --site-dir "$directory" || status=1
    remove_tree "$directory"
    return $status
}

stage_unit() {
    run_tests tests/unit tests/model tests/simulation --numprocesses auto
}

# Daemons of a cloud need about a quarter of a core: three clouds leave some of two cores to real guests.
stage_functional() {
    run_tests tests/functional --numprocesses 3 --dist loadfile --no-loadscope-reorder
}

# One cloud for all of it.
stage_security() {
    run_tests tests/security
}

stage_faults() {
    run_tests tests/faults --numprocesses 4 --dist loadfile --no-loadscope-reorder
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

# Each script stacks a cloud of its own, and unstacks it. One that fails does not keep the others from running.
stage_long() {
    local script status=0
    for script in "$TOP"/devstack/test-*.sh; do
        say "--- $(basename "$script")"
        MAX_AGAIN=$MAX_AGAIN FAILURES=$FAILURES UNSTEADY=$UNSTEADY "$script" || status=1
    done
    return $status
}

# Two rows of tests, beside each other: most of the time each waits for guests. All of them have hosts and networks of their
# own. The driver's tests take the longest: whichever row is free takes the next part of them. What the second row says
# comes last.
integration_tests() {
    local status=0 said second begun
    said=$(mktemp)
    begun=$(mktemp --directory)
    driver_tests "$begun" >"$said" 2>&1 &
    second=$!
    run_tests tests/integration/cloud || status=$?
    run_tests tests/integration/network tests/integration/systemd tests/integration/cloud_init tests/integration/clients \
        tests/integration/qemu || status=$?
    driver_tests "$begun" || status=$?
    wait "$second" || status=$?
    cat "$said"
    remove_tree "$begun"
    rm "$said"
    return $status
}

# driver_tests DIRECTORY: the parts that have no directory there, as the other row has not begun them.
driver_tests() {
    local part status=0
    for part in a-d e-g h-l m-p q-z; do
        mkdir "$1/$part" 2>/dev/null || continue
        run_tests tests/integration/libvirt/test_[$part]*.py --ignore tests/integration/libvirt/test_kvm_device.py || status=$?
    done
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

# test_with NAME DIRECTORY: a directory of tests, on this machine stacked as the environment says (AUTH, VOLUMES, NETWORK).
# Unless it was stacked before, it is unstacked afterwards.
test_with() {
    need_root
    LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
    say "Testing $TOP with $1 (preparations are logged in $LOG)"
    step "Installing packages and the test environment" prepare_tests
    cd "$TOP" || exit
    export PATH=$TEST_VENV/bin:$PATH
    test_stacked run_tests "$2" || die "failed after $(clock)."
    say "All of it passed."
}
