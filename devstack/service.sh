#!/bin/bash
# Start, stop, restart, kill or look at the daemons of the stack, with systemd or without:
#
#   service.sh start|stop|restart|kill|status|log [all|NAME]...
#
# NAME: api, conductor, scheduler, compute, compute-N, novncproxy, serialproxy, spicehtml5proxy (SPICE=yes), keystone, glance, cinder,
# cinder-scheduler, cinder-volume, neutron, neutron-ovn-maintenance. `compute` means every compute daemon;
# keystone and glance are there with AUTH=keystone, cinder with VOLUMES=cinder, neutron with NETWORK=neutron, the proxies
# of consoles unless VIRT_DRIVER=fake.
# `status` ends with 3 when one is not running; `log` shows the last 50 lines. `kill` sends SIGKILL: systemd starts the
# daemon again, and without systemd `start` does.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/services.sh"

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$TOP/devstack/service.sh" >&2
    exit 2
}

start() {
    start_services "$@"
    status "$@"
}

stop() {
    stop_services "$@"
    status "$@" || true
}

restart() {
    stop_services "$@"
    start "$@"
}

kill_daemons() {
    local name
    for name; do
        kill_service "$name"
    done
    status "$@" || true
}

status() {
    local name state result=0
    for name; do
        state=$(service_state "$name")
        printf '%-12s %s\n' "$name" "$state"
        [[ $state == running ]] || result=3
    done
    return $result
}

log() {
    local name
    for name; do
        echo "--- $name"
        service_log "$name" 50
    done
}

need_root
(($# >= 1)) && [[ $1 =~ ^(start|stop|restart|kill|status|log)$ ]] || usage
verb=$1
shift
is_stacked || die "this machine is not stacked; run devstack/stack.sh first."
load_stacked_settings
services=$(expand_services "$@")
[[ $verb != kill ]] || verb=kill_daemons # `kill` is bash's own
$verb $services
