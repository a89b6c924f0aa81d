#!/bin/bash
# A Ceph of one node for devstack's Cinder, on loopback: a monitor, a manager and an OSD on a sparse file. For trying
# things out: there is one copy of everything.
#
# CEPH_ADDRESS: another address of this machine, which other machines reach.
#
#   ceph.sh start CONFIGURATION_DIRECTORY DATA_DIRECTORY    makes it, if it is not there yet
#   ceph.sh stop CONFIGURATION_DIRECTORY DATA_DIRECTORY
#
# devstack installs this file as /opt/nova-lite/ceph.sh. The configuration directory gets ceph.conf and the keyrings of
# client.admin and client.cinder.
set -euo pipefail
export LC_ALL=C.UTF-8
command=${1:-} ETC=${2:?} DATA=${3:?}
ADDRESS=${CEPH_ADDRESS:-127.0.0.1}
POOL=volumes
SIZE=$((20 * 1024 * 1024 * 1024))

ask() {
    timeout 60 "$1" --conf "$ETC/ceph.conf" "${@:2}"
}

is_running() {
    [[ -s $DATA/$1.pid ]] && [[ $({ tr '\0' ' ' <"/proc/$(<"$DATA/$1.pid")/cmdline"; } 2>/dev/null) == *"$ETC/ceph.conf"* ]]
}

configure() {
    install -m 0644 /dev/stdin "$ETC/ceph.conf" <<CONFIG
[global]
fsid = $(uuidgen)
mon host = [v2:$ADDRESS:3300/0,v1:$ADDRESS:6789/0]
public addr = $ADDRESS
cluster addr = $ADDRESS
run dir = $DATA
admin socket = $DATA/\$name.asok
pid file = $DATA/\$name.pid
log file = $DATA/\$name.log
keyring = $ETC/\$name.keyring
mon allow pool size one = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd memory target = 939524096
bluestore cache autotune = false
bluestore cache size = 67108864
bluestore block size = $SIZE

[client]
# What is below is the daemons' own.
admin socket =
pid file =
log file =

[mon.a]
mon data = $DATA/mon
keyring = $DATA/mon/keyring

[mgr.a]
mgr data = $DATA/mgr

[osd.0]
osd data = $DATA/osd
CONFIG
}

make() {
    local keys osd
    keys=$DATA/mon.keyring
    configure
    ceph-authtool --create-keyring "$keys" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool --create-keyring "$ETC/client.admin.keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool "$keys" --import-keyring "$ETC/client.admin.keyring"
    monmaptool --create --clobber --addv a "[v2:$ADDRESS:3300/0,v1:$ADDRESS:6789/0]" \
        --fsid "$(sed -n 's/^fsid = //p' "$ETC/ceph.conf")" "$DATA/monmap"
    ceph-mon --conf "$ETC/ceph.conf" --mkfs -i a --monmap "$DATA/monmap" --keyring "$keys"
    run mon a
    (umask 077 && ask ceph auth get-or-create mgr.a mon 'allow profile mgr' osd 'allow *' >"$ETC/mgr.a.keyring")
    run mgr a
    osd=$(uuidgen)
    ask ceph osd new "$osd"
    (umask 077 && ask ceph auth get-or-create osd.0 mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' >"$ETC/osd.0.keyring")
    ceph-osd --conf "$ETC/ceph.conf" -i 0 --mkfs --osd-uuid "$osd"
    run osd 0
    ask ceph osd pool create "$POOL" 8
    ask rbd pool init "$POOL"
    (umask 077 && ask ceph auth get-or-create client.cinder mon 'profile rbd' osd "profile rbd pool=$POOL" \
        mgr "profile rbd pool=$POOL" >"$ETC/client.cinder.keyring")
    touch "$DATA/made"
}

# run mon|mgr|osd ID: it goes into the background by itself.
run() {
    is_running "$1.$2" || "ceph-$1" --conf "$ETC/ceph.conf" -i "$2"
}

end() {
    is_running "$1" || return 0
    local pid
    pid=$(<"$DATA/$1.pid")
    kill "$pid"
    for _ in {1..100}; do
        [[ -d /proc/$pid ]] || return 0
        sleep 0.1
    done
    kill -KILL "$pid"
}

case $command in
start)
    install -d -m 0755 "$ETC"
    install -d -m 0700 "$DATA" "$DATA"/{mon,mgr,osd}
    if [[ -e $DATA/made ]]; then
        run mon a
        run mgr a
        run osd 0
    else
        make
    fi
    ;;
stop)
    end osd.0
    end mgr.a
    end mon.a
    ;;
*)
    echo "usage: ceph.sh start|stop CONFIGURATION_DIRECTORY DATA_DIRECTORY" >&2
    exit 2
    ;;
esac
