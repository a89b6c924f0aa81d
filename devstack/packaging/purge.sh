# What the packages' purges share. devstack/packaging/debian/rules puts it, after trees.sh, into their scripts. A purge enters no
# mount and follows no link. nova_lite/cmd/setup/directories.py does the same.

STATE=/var/lib/nova-lite
INSTANCES=$STATE/instances

# Refuse a purge while guests of this host run: libvirt has a file of each. Their disks must not go.
refuse_running_guests() {
    guests=$(grep -lsF "$INSTANCES/" /run/libvirt/qemu/*.xml | sed 's|.*/||; s|\.xml$||' | tr '\n' ' ')
    if [ -n "$guests" ]; then
        echo "$DPKG_MAINTSCRIPT_PACKAGE: guests run: $guests" >&2
        echo "$DPKG_MAINTSCRIPT_PACKAGE: nothing is purged. Delete their servers, or end them with virsh destroy, and purge again." >&2
        exit 1
    fi
}

# host_in FILE: print the name that a configuration file gives to a daemon's host.
host_in() {
    [ ! -e "$1" ] || sed -n '/^\[DEFAULT\]/,/^\[/s/^host *= *//p' "$1" | tail -n 1
}

# Print the names that the daemons of this machine have in the cloud.
own_hosts() {
    local file own common names
    common=$(host_in /etc/nova-lite/nova-lite.conf)
    common=${common:-$(uname -n)}
    names=$(for file in /etc/nova-lite/*.conf; do
        own=$(host_in "$file")
        case $file in */nova-lite.conf | */\*.conf) ;; *) echo "${own:-$common}" ;; esac
    done)
    echo "${names:-$common}" | sort -u
}

# record_host FILE: print the host of the record of an instance, or of its interfaces.
record_host() {
    sed -n '1s/^{"uuid":"[^"]*","host":"\([^"]*\)".*/\1/p' "$1" 2>/dev/null | grep .
}

# is_own HOST: check whether a name is in $hosts.
is_own() {
    printf '%s\n' "$hosts" | grep -qxF -- "$1"
}

# Print the hosts that show in a directory that they use it.
users() {
    local file
    for file in "$1"/_hosts/* "$1"/_marks/*; do
        [ ! -e "$file" ] || printf '%s\n' "${file##*/}"
    done
    for file in "$1"/*/instance.json "$1"/_interfaces/*.json; do
        record_host "$file" || true
    done
}

# remove_directory PATH: remove a directory of this machine alone. If it is a link, the directory to which it leads stays.
remove_directory() {
    if [ -L "$1" ]; then
        echo "$(readlink -f -- "$1") is left: $1 is a link to it." >&2
        rm -f -- "$1"
    else
        remove_tree "$1"
    fi
}

# purge_shared DIRECTORY: remove a directory that other hosts may use. Then only what this host has recorded as its own goes.
purge_shared() {
    local directory hosts others file name
    directory=$1 hosts=$(own_hosts)
    if [ -L "$directory" ] || is_mounted "$directory"; then
        remove_directory "$directory"
        return 0
    fi
    [ -d "$directory" ] || return 0
    others=$(users "$directory" | sort -u | while read -r name; do is_own "$name" || printf '%s ' "$name"; done)
    if [ -n "$others" ]; then
        remove_own "$directory"
        echo "$directory is left: other hosts use it: $others" >&2
        return 0
    fi
    for file in "$directory"/* "$directory"/.[!.]* "$directory"/..?*; do
        if is_ours "${file##*/}"; then
            remove_tree "$file"
        elif [ -e "$file" ] || [ -L "$file" ]; then
            echo "$file is left: it is not of this cloud." >&2
        fi
    done
    rmdir --ignore-fail-on-non-empty -- "$directory"
}

# is_ours NAME: check whether our programs give such a name to files and directories of guests, volumes, images and backups.
is_ours() {
    case $1 in
    _* | .new-* | .health-* | .part-* | .import-* | floating@* | fake-* | before-upgrade-*) return 0 ;;
    uploads | staging | snapshots | luks) return 0 ;;
    esac
    case ${1%%@*} in
    *[!0-9a-f-]*) return 1 ;;
    ????????-????-????-????-????????????) return 0 ;;
    esac
    return 1
}

# remove_own DIRECTORY: remove what is of $hosts. Disks that are kept for another host stay.
remove_own() {
    local file host
    for file in "$1"/*/instance.json "$1"/_interfaces/*.json; do
        if is_own "$(record_host "$file")"; then
            case $file in
            *@kept/instance.json) ;;
            *.json/*) ;;
            */instance.json) remove_tree "${file%/*}" ;;
            *) remove_tree "$file" ;;
            esac
        fi
    done
    for host in $hosts; do
        remove_tree "$1"/*@"$host".json "$1"/_*/"$host" "$1/uploads/$host" "$1/fake-$host" \
            "$1/.new-$host"[-@]* "$1/_interfaces/.new-$host@"*
    done
}

# purge_state [NAME...]: remove these directories of the state directory, or all of it.
purge_state() {
    local path
    if [ -L "$STATE" ] || is_mounted "$STATE"; then
        [ $# -gt 0 ] || remove_directory "$STATE"
        return 0
    fi
    [ $# -gt 0 ] || set -- "$STATE"/* "$STATE"/.[!.]* "$STATE"/..?*
    for path in "$@"; do
        case ${path##*/} in
        instances | volumes | images | backups) purge_shared "$STATE/${path##*/}" ;;
        *) remove_directory "$STATE/${path##*/}" ;;
        esac
    done
    [ ! -d "$STATE" ] || rmdir --ignore-fail-on-non-empty "$STATE"
}

# Remove the realms of this machine with their links, bridges and DHCP servers, and load balancers. nova_lite/virt/libvirt/net/removal.py does the same.
# What another program's guest uses stays.
remove_realms() {
    local file pid path name device others kept
    [ ! -d /run/systemd/system ] || systemctl stop nova-lite-load-balancers.slice 2>/dev/null || true
    for name in $(ip netns list 2>/dev/null | cut -d' ' -f1 | grep '^nova-lite-lb-' || true); do
        # shellcheck disable=SC2046 # numbers
        kill $(ip netns pids "$name") 2>/dev/null || true
        ip netns delete "$name"
    done
    for file in /var/lib/libvirt/dnsmasq/nova-lite-*.conf; do
        [ -e "$file" ] || continue
        name=${file##*/nova-lite-}
        [ ! -d /run/systemd/system ] || systemctl stop "nova-lite-dhcp-${name%.conf}.service" 2>/dev/null || true
        pid=$(cat "${file%.conf}.pid" 2>/dev/null || true)
        [ -z "$pid" ] || case "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") " in
            *" --conf-file=$file "*) kill "$pid" 2>/dev/null || true ;;
        esac
    done
    for path in /sys/class/net/*; do
        name=$(cat "$path/ifalias" 2>/dev/null || true)
        case $name in nova-lite:*) ;; *) continue ;; esac
        others=$(find "$path/brif/" -mindepth 1 -printf '%f\n' 2>/dev/null | grep -v '^nlg\|^nlvx' | tr '\n' ' ' || true)
        if [ -n "$others" ]; then
            echo "Network ${name#nova-lite:} is left: its bridge ${path##*/} has $others" >&2
            continue
        fi
        for device in "$path"/brif/*; do
            [ ! -e "$device" ] || ip link delete dev "${device##*/}"
        done
        ip link delete dev "${path##*/}"
        remove_tree /var/lib/libvirt/dnsmasq/"nova-lite-${name#nova-lite:}".*
    done
    kept=" $(cat /sys/class/net/nlg*/ifalias 2>/dev/null | tr '\n' ' ' || true)"
    for name in $(ip netns list 2>/dev/null | cut -d' ' -f1 | grep '^nl-' || true); do
        case $kept in *" ${name#nl-} "*) continue ;; esac
        # A process that still ends keeps the namespace, but not its link.
        device=nlu$(printf %s "${name#nl-}" | sha256sum | cut -c1-12)
        [ ! -e "/sys/class/net/$device" ] || ip link delete dev "$device"
        ip netns delete "$name"
    done
    ip address delete 169.254.192.1/32 dev lo 2>/dev/null || true
    for name in iptables ip6tables; do
        "$name" --wait -D FORWARD -j NOVA_LITE_LINKS 2>/dev/null || true
        "$name" --wait -F NOVA_LITE_LINKS 2>/dev/null || true
        "$name" --wait -X NOVA_LITE_LINKS 2>/dev/null || true
    done
    [ "$kept" != " " ] || rm -f /var/lib/libvirt/dnsmasq/nova-lite-resolver.* /var/lib/libvirt/dnsmasq/nova-lite-links.*
}
