#!/bin/bash
# Run programs of others that use clouds, each against a cloud of `nova-lite dev` of its own:
#
#   consumers.sh [--directory DIRECTORY] [--nova-lite COMMAND] [--provider FILE] all|PROGRAM...
#
# PROGRAM is ansible, fog, heat, horizon, libcloud, octavia, packer, rally, skyline or terraform. `all` is each of them, and
# terraform with --provider only. A table of the results comes last, and the status is 0 if all passed. Results go into
# benchmarks/results/consumers, and Horizon's screenshots into docs/reference/images. `clients.sh --page` makes a page.
# Debian packages (packer, ruby-fog-openstack, chromium) are installed as root. Programs in Python are installed into
# DIRECTORY (by default /opt/nova-lite/consumers) in the versions of devstack/requirements. COMMAND is by default the
# nova-lite of the checkout's .venv, which devstack/test.sh makes. Heat needs root, RabbitMQ and MariaDB. It gets a
# virtual host and a database there, which are removed at the end. Terraform has to be installed. FILE is the program
# terraform-provider-openstack.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database; do
    source "$TOP/devstack/lib/$component.sh"
done

usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$TOP/devstack/consumers.sh" >&2
    exit 2
}

ALL=(ansible fog heat horizon libcloud octavia packer rally skyline)
declare -A PACKAGES_OF=([fog]=ruby-fog-openstack [heat]="mariadb-server rabbitmq-server" [horizon]=chromium [packer]=packer)

directory=$PREFIX/consumers command=$TOP/.venv/bin/nova-lite options=() programs=() all=""
while (($#)); do
    case $1 in
    --directory | --nova-lite | --provider)
        (($# > 1)) || usage
        case $1 in
        --directory) directory=$2 ;;
        --nova-lite) command=$2 ;;
        --provider) options=(--provider "$2") ;;
        esac
        shift 2
        ;;
    all)
        all=1
        shift
        ;;
    ansible | fog | heat | horizon | libcloud | octavia | packer | rally | skyline | terraform)
        programs+=("$1")
        shift
        ;;
    *) usage ;;
    esac
done
[[ $directory == /* ]] || die "--directory $directory: must be absolute."
if [[ -n $all ]]; then
    programs=("${ALL[@]}")
    ((${#options[@]} == 0)) || programs+=(terraform)
fi
((${#programs[@]})) || usage

install -d -m 0755 "$directory"
LOG=$directory/install.log
: >"$LOG"

# install_program PROGRAM VENV LIST
install_program() {
    local packages
    read -ra packages <<<"${PACKAGES_OF[$1]:-}"
    ((${#packages[@]} == 0)) || install_packages "${packages[@]}"
    if [[ $1 == heat ]]; then
        need_root
        start_broker
        start_mariadb
    fi
    install_locked "$2" "$3"
}

run_program() {
    local list=programs
    [[ ! -f $TOP/devstack/requirements/$1.in ]] || list=$1
    step "Installing what $1 needs (packages, $directory/venv-$list)" install_program "$1" "$directory/venv-$list" "$list"
    say "Running $1"
    "$directory/venv-$list/bin/python" "$TOP/devstack/lib/consumers.py" "$1" \
        --directory "$directory" --nova-lite "$command" "${options[@]}"
}

table=() failed=()
for program in "${programs[@]}"; do
    began=$SECONDS result=passed
    set +e
    (
        set -e
        run_program "$program"
    )
    (($? == 0)) || {
        result=FAILED
        failed+=("$program")
    }
    set -e
    table+=("$(printf '%-10s %-7s %4d s' "$program" "$result" $((SECONDS - began)))")
done
echo
printf '%s\n' "${table[@]}"
((${#failed[@]} == 0)) || die "failed: ${failed[*]} (after $(clock))"
