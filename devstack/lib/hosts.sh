# This machine's own name in /etc/hosts, which RabbitMQ has to find. Sourced, never run.

HOSTS_FILE=${HOSTS_FILE:-/etc/hosts}
HOSTS_MARK="# written by nova_lite's devstack"

resolves() {
    getent hosts "$1" >/dev/null
}

name_this_machine() {
    local name
    name=$(hostname)
    resolves "$name" && return
    echo "This machine's own name, $name, does not resolve: it gets a line in $HOSTS_FILE."
    [[ ! -s $HOSTS_FILE || -z $(tail -c 1 "$HOSTS_FILE") ]] || echo >>"$HOSTS_FILE"
    echo "127.0.1.1 $name $HOSTS_MARK" >>"$HOSTS_FILE"
    resolves "$name" || die "this machine's own name, $name, does not resolve even by $HOSTS_FILE: look at /etc/nsswitch.conf."
}

# Written in place: in a container the file is a mount and cannot be replaced.
forget_this_machine() {
    local rest
    grep -qF "$HOSTS_MARK" "$HOSTS_FILE" || return 0
    rest=$(mktemp)
    grep -vF "$HOSTS_MARK" "$HOSTS_FILE" >"$rest" || true
    cat "$rest" >"$HOSTS_FILE"
    rm -f "$rest"
}
