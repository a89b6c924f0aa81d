# Settings, progress and errors of all devstack scripts. Sourced, never run.

set -euo pipefail
export LC_ALL=C.UTF-8
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PREFIX=/opt/nova-lite
VENV=$PREFIX/venv
OPENSTACK=$PREFIX/openstack
NEUTRON=$PREFIX/neutron
ETC=/etc/nova-lite
STATE=/var/lib/nova-lite
LOGS=/var/log/nova-lite
RUN=/run/nova-lite
SECRETS=$ETC/secrets
KEYS=$ETC/keys
CONSOLE_TLS=$ETC/console-tls
STACKED=$ETC/devstack.env
# The group of all daemons' users, who are named after it; and the one user that earlier versions had for all of them.
GROUP=nova-lite
# The installed devstack/libvirt-host.sh, and its network.
LIBVIRT_HOST=$PREFIX/libvirt-host.sh
# The installed devstack/ceph.sh.
CEPH=$PREFIX/ceph.sh
HOSTS_NETWORK=169.254.76
CLOUD=nova-lite
REGION=RegionOne
source "$TOP/devstack/packaging/trees.sh"
# The checkout may be a directory of another user, or not writable: run nothing from, and leave nothing in, the caller's directory.
cd /

# no_arguments "$@": for a script that takes none, or not these; it says what its first lines say.
no_arguments() {
    (($#)) || return 0
    sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "$TOP/devstack/${0##*/}" >&2
    [[ $1 == -h || $1 == --help ]] && exit
    echo "${0##*/} does not take: $*" >&2
    exit 2
}

# require_positive OPTION... -- ARGUMENT...: end the script if the arguments give one of these options 0 or less.
require_positive() {
    local options=" " option value
    while [[ $1 != -- ]]; do
        options+="$1 "
        shift
    done
    shift
    while (($#)); do
        option=${1%%=*} value=${1#*=}
        [[ $1 == *=* ]] || value=${2:-}
        shift
        [[ $options != *" $option "* || ! $value =~ ^(-[0-9.]+|[0.]+)$ ]] || die "$option $value: must be above 0."
    done
}

# What can be chosen, with the defaults. The environment wins over devstack/local.conf, that over what the machine was
# stacked with, and that over the defaults.
declare -A DEFAULTS=(
    [DATABASE]=sqlite
    [VIRT_DRIVER]=libvirt
    [COMPUTES]=1
    [AUTH]=standalone
    [VOLUMES]=local
    [NETWORK]=local
    [SPICE]=no
    [API_WORKERS]=1
    [API_PORT]=8774
    [IDENTITY_PORT]=5000
    [IMAGE_PORT]=9292
    [VOLUME_PORT]=8776
    [NETWORK_PORT]=9696
    [PLACEMENT_PORT]=8778
    [PAGE_PORT]=8788
    [CONCURRENCY]=
    [NETWORK_CIDR]=10.0.77.0/24
    [FLOATING_CIDR]=172.24.4.0/24
    [PROJECT_RANGES]=""
    [BROKER_ADDRESS]=127.0.0.1
    [NETWORK_BRIDGE]=nlbr0
    [NETWORK_CIDR6]=
    [NETWORK_VNI]=
)
# These cannot be changed while the machine is stacked.
FIXED=(DATABASE VIRT_DRIVER COMPUTES AUTH VOLUMES NETWORK SPICE NETWORK_CIDR NETWORK_BRIDGE NETWORK_CIDR6 NETWORK_VNI)

load_settings() {
    local name
    local -A given=() stacked=()
    for name in "${!DEFAULTS[@]}"; do
        [[ ! -v $name ]] || given[$name]=${!name}
        ! is_stacked || stacked[$name]=$(source "$STACKED" && echo "${!name-${DEFAULTS[$name]}}")
    done
    [[ ! -f $TOP/devstack/local.conf ]] || source "$TOP/devstack/local.conf"
    for name in "${!DEFAULTS[@]}"; do
        printf -v "$name" %s "${given[$name]-${!name-${stacked[$name]-${DEFAULTS[$name]}}}}"
    done
    check_settings
}

check_settings() {
    [[ $DATABASE =~ ^(sqlite|mariadb|postgresql)$ ]] || die "DATABASE=$DATABASE: must be sqlite, mariadb or postgresql."
    [[ $VIRT_DRIVER =~ ^(libvirt|fake)$ ]] || die "VIRT_DRIVER=$VIRT_DRIVER: must be libvirt or fake."
    [[ $COMPUTES =~ ^[1-9][0-9]?$ ]] || die "COMPUTES=$COMPUTES: must be a number from 1 to 99."
    [[ $AUTH =~ ^(standalone|keystone|noauth2)$ ]] || die "AUTH=$AUTH: must be standalone, keystone or noauth2."
    [[ $AUTH != keystone || $VIRT_DRIVER != libvirt || $COMPUTES == 1 ]] ||
        die "COMPUTES=$COMPUTES: with AUTH=keystone there can be one libvirt host only, as Keystone and Glance serve this machine's loopback."
    [[ $VOLUMES =~ ^(local|rbd|cinder)$ ]] || die "VOLUMES=$VOLUMES: must be local, rbd or cinder."
    [[ $VOLUMES != rbd || ($AUTH == standalone && $VIRT_DRIVER == libvirt) ]] ||
        die "VOLUMES=rbd: needs AUTH=standalone and VIRT_DRIVER=libvirt."
    [[ $VOLUMES != cinder || ($AUTH == keystone && $VIRT_DRIVER == libvirt) ]] ||
        die "VOLUMES=cinder: needs AUTH=keystone and VIRT_DRIVER=libvirt."
    [[ $SPICE =~ ^(yes|no)$ ]] || die "SPICE=$SPICE: must be yes or no."
    [[ $SPICE == no || $VIRT_DRIVER == libvirt ]] || die "SPICE=yes: needs VIRT_DRIVER=libvirt."
    [[ $NETWORK =~ ^(local|neutron)$ ]] || die "NETWORK=$NETWORK: must be local or neutron."
    [[ $NETWORK != neutron || ($AUTH == keystone && $VIRT_DRIVER == libvirt) ]] ||
        die "NETWORK=neutron: needs AUTH=keystone and VIRT_DRIVER=libvirt."
    [[ $API_WORKERS =~ ^[1-9][0-9]?$ ]] || die "API_WORKERS=$API_WORKERS: must be a number from 1 to 99."
    local name
    for name in API_PORT IDENTITY_PORT IMAGE_PORT VOLUME_PORT NETWORK_PORT PLACEMENT_PORT PAGE_PORT; do
        [[ ${!name} =~ ^[0-9]{1,5}$ ]] && ((${!name} > 0 && ${!name} < 65536)) || die "$name=${!name}: must be a port number."
    done
    [[ $CONCURRENCY =~ ^(|eventlet|threading)$ ]] || die "CONCURRENCY=$CONCURRENCY: must be eventlet, threading or empty."
    [[ $FLOATING_CIDR =~ ^[0-9.]+/[0-9]+$ ]] || die "FLOATING_CIDR=$FLOATING_CIDR: must be an IPv4 network such as 172.24.4.0/24."
    [[ $NETWORK_CIDR =~ ^[0-9.]+/[0-9]+$ ]] || die "NETWORK_CIDR=$NETWORK_CIDR: must be an IPv4 network such as 10.0.77.0/24."
    [[ $NETWORK_CIDR6 =~ ^(|[0-9a-f:]+/64)$ ]] || die "NETWORK_CIDR6=$NETWORK_CIDR6: must be a /64 of IPv6 such as fd00:77::/64, or empty."
    [[ $NETWORK_VNI =~ ^(|[1-9][0-9]{0,7})$ ]] || die "NETWORK_VNI=$NETWORK_VNI: must be a number from 1 to 16777215, or empty."
    [[ $BROKER_ADDRESS =~ ^([0-9]{1,3}(\.[0-9]{1,3}){3}|any)$ && $BROKER_ADDRESS != 0.0.0.0 ]] ||
        die "BROKER_ADDRESS=$BROKER_ADDRESS: must be an IPv4 address of this machine, or any."
    [[ $NETWORK_BRIDGE =~ ^[a-z][a-z0-9-]{0,14}$ ]] || die "NETWORK_BRIDGE=$NETWORK_BRIDGE: must be a name of at most 15 characters."
}

# What the machine was stacked with is kept, so that unstack.sh and service.sh need not be told, and a change is noticed.
save_settings() {
    local name
    for name in "${!DEFAULTS[@]}"; do
        printf '%s=%q\n' "$name" "${!name}"
    done | sort | install -m 0644 /dev/stdin "$STACKED"
}

is_stacked() {
    [[ -f $STACKED ]]
}

load_stacked_settings() {
    source "$STACKED"
}

refuse_changed_settings() {
    local name was
    for name in "${FIXED[@]}"; do
        was=$(source "$STACKED" && echo "${!name-${DEFAULTS[$name]}}")
        [[ $was == "${!name}" ]] ||
            die "this machine is stacked with $name=$was, not ${!name}; run devstack/unstack.sh first."
    done
}

# --- progress and errors

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

need_root() {
    ((EUID == 0)) || die "run this as root."
}

clock() {
    printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60))
}

say() {
    echo "[$(clock)] $*"
}

# step TITLE FUNCTION [ARGUMENT...]: run it, its output in $LOG; a failure ends the script with the end of its output.
# The function runs in a subshell: what it finds out, it leaves in files.
step() {
    local title=$1 began=$SECONDS from status
    shift
    say "$title"
    from=$(stat -c %s "$LOG" 2>/dev/null || echo 0)
    echo "=== [$(clock)] $title" >>"$LOG"
    set +e
    (
        set -e
        "$@"
    ) </dev/null >>"$LOG" 2>&1 9>&-
    status=$?
    set -e
    ((status == 0)) || fail_step "$title" "$status" "$from"
    ((SECONDS - began < 2)) || say "    $((SECONDS - began)) s"
}

fail_step() {
    local title=$1 status=$2 from=$3
    tail -c "+$((from + 1))" "$LOG" | tail -n 20 | sed 's/^/    | /' >&2
    die "failed at \"$title\" (status $status) after $(clock); the end of $LOG is above."
}

# Only one devstack script at a time; the lock is file descriptor 9, which children do not inherit.
take_lock() {
    exec 9>/run/lock/nova-lite-devstack.lock
    flock -n 9 || die "another devstack script is running."
}

# wait_for SECONDS COMMAND [ARGUMENT...]: until it succeeds; its last output goes to stderr when it never does.
wait_for() {
    local deadline=$((SECONDS + $1)) output
    shift
    until output=$("$@" 2>&1); do
        if ((SECONDS >= deadline)); then
            echo "$output" >&2
            return 1
        fi
        sleep 0.3
    done
}

has_systemd() {
    [[ -d /run/systemd/system ]]
}

# --- secrets: made once, kept in a file that only root reads

secret() {
    local name=$1 file=$SECRETS/$1
    if [[ ! -s $file ]]; then
        install -d -m 0700 "$SECRETS"
        (umask 077 && head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$file.new")
        mv "$file.new" "$file"
    fi
    cat "$file"
}
