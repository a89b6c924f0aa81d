#!/bin/bash
# Run the tests of OpenStack's own clients, each suite against a cloud of `nova-lite dev` of its own:
#
#   clients.sh [--directory DIRECTORY] [--nova-lite COMMAND] [--gophercloud REPOSITORY] [--preloaded] SUITE...
#   clients.sh [--directory DIRECTORY] [--nova-lite COMMAND] --subset [GROUP]...
#   clients.sh --page
#
# SUITE is openstacksdk, openstackclient, gophercloud, gophercloud-placement, neutron-tempest-plugin, or
# tempest-identity, -image, -volume, -network or -compute. Their results go into benchmarks/results/clients. --page makes
# docs/reference/clients.md of all results. --subset runs groups of devstack/lib/client_subset.yaml, by default all, in a
# minute. It prints what failed, and has a status. The suites are installed into .venv-clients of the checkout, in the
# versions of devstack/requirements/clients.txt. Logs go into DIRECTORY (by default /opt/nova-lite/clients).
# COMMAND is by default the nova-lite of the checkout's .venv, which devstack/test.sh makes. REPOSITORY is a clone of
# gophercloud's repository; its modules come from Debian's packages golang-golang-x-crypto-dev and golang-gopkg-yaml.v3-dev.
# --preloaded runs openstackclient's thousands of commands in forks of one process.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/python.sh"

usage() {
    sed -n '2,16s/^# \{0,1\}//p' "$TOP/devstack/clients.sh" >&2
    exit 2
}

directory=$PREFIX/clients command=$TOP/.venv/bin/nova-lite page="" subset="" options=() suites=()
while (($#)); do
    case $1 in
    --directory | --nova-lite | --gophercloud)
        (($# > 1)) || usage
        case $1 in
        --directory) directory=$2 ;;
        --nova-lite) command=$2 ;;
        --gophercloud) options+=(--gophercloud "$2") ;;
        esac
        shift 2
        ;;
    --preloaded)
        options+=(--preloaded)
        shift
        ;;
    --page)
        page=1
        shift
        ;;
    --subset)
        subset=1
        shift
        ;;
    -*) usage ;;
    *)
        suites+=("$1")
        shift
        ;;
    esac
done
[[ $directory == /* ]] || die "--directory $directory: must be absolute."
((${#suites[@]})) || [[ -n $page$subset ]] || usage

install -d -m 0755 "$directory"
LOG=$directory/install.log
: >"$LOG"
venv=$TOP/.venv-clients
step "Installing the suites into $venv" install_locked "$venv" clients
run=("$venv/bin/python" "$TOP/devstack/lib/clients.py")
if [[ -n $subset ]]; then
    say "Running the subset (details in $directory/subset)"
    "${run[@]}" subset --directory "$directory" --nova-lite "$command" "${suites[@]}"
elif ((${#suites[@]})); then
    say "Running tests (details in $directory)"
    "${run[@]}" run --directory "$directory" --nova-lite "$command" "${options[@]}" "${suites[@]}"
fi
if [[ -n $page ]]; then
    "${run[@]}" page >"$TOP/docs/reference/clients.md.new"
    mv "$TOP/docs/reference/clients.md.new" "$TOP/docs/reference/clients.md"
fi
