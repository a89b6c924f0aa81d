#!/bin/bash
# Run programs of others that use clouds, each against a cloud of `nova-lite dev` of its own:
#
#   consumers.sh [--directory DIRECTORY] [--nova-lite COMMAND] [--provider FILE] PROGRAM...
#
# PROGRAM is ansible, fog, heat, libcloud, packer, rally or terraform. Those in Python are installed into DIRECTORY (by
# default /opt/nova-lite/consumers) in the versions of devstack/requirements. COMMAND is by default the nova-lite of the
# checkout's .venv, which devstack/test.sh makes. Heat needs root, and the RabbitMQ and MariaDB of this machine. It gets
# a virtual host and a database there, which are removed at the end. `terraform`, `packer` and the Ruby library
# fog-openstack have to be installed (Debian: packer, ruby-fog-openstack). FILE is the program
# terraform-provider-openstack.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/python.sh"

usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$TOP/devstack/consumers.sh" >&2
    exit 2
}

directory=$PREFIX/consumers command=$TOP/.venv/bin/nova-lite options=() programs=()
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
    ansible | fog | heat | libcloud | packer | rally | terraform)
        programs+=("$1")
        shift
        ;;
    *) usage ;;
    esac
done
[[ $directory == /* ]] || die "--directory $directory: must be absolute."
((${#programs[@]})) || usage

install -d -m 0755 "$directory"
LOG=$directory/install.log
: >"$LOG"
for program in "${programs[@]}"; do
    case $program in
    ansible | heat | rally) list=$program ;;
    *) list=programs ;;
    esac
    step "Installing what $program needs into $directory/venv-$list" install_locked "$directory/venv-$list" "$list"
    "$directory/venv-$list/bin/python" "$TOP/devstack/lib/consumers.py" "$program" \
        --directory "$directory" --nova-lite "$command" "${options[@]}"
done
