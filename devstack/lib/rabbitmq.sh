# The message broker: running, with a virtual host and users of ours. Sourced, never run.

VHOST=nova-lite
BROKER_USER=nova-lite
BROKER_PORT=5672
BROKER_ETC=/etc/rabbitmq
BROKER_MARK="# written by nova_lite's devstack"
EPMD_SOCKET=/etc/systemd/system/epmd.socket.d/nova-lite.conf

# Each start of the broker's tools costs a second or more, so what is known without them is looked at first. Those of RabbitMQ 4
# read their standard input.
broker_answers() {
    rabbitmq-diagnostics --quiet --timeout 10 check_running </dev/null
}

start_broker() {
    # First, or the broker's own commands start an epmd, and systemd's socket for it fails.
    ! has_systemd || pgrep -x epmd >/dev/null || systemctl start epmd.socket || true # there may be none
    if broker_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now rabbitmq-server
    else
        rabbitmq-server -detached
    fi
    wait_for 60 broker_answers
}

# --- where it listens: on loopback, and at BROKER_ADDRESS

# Whose configuration it is, if not ours; nothing: ours, or the package's. One that others use is theirs.
broker_is_anothers() {
    local file
    for file in "$BROKER_ETC"/{rabbitmq.conf,rabbitmq.config,advanced.config} "$BROKER_ETC"/conf.d/*; do
        [[ ! -e $file || $file == */conf.d/nova-lite.conf ]] || { echo "$file is there" && return; }
    done
    file=$BROKER_ETC/rabbitmq-env.conf
    ! without_our_lines "$file" | grep -v '^[[:space:]]*\(#\|$\)' >/dev/null || { echo "$file has settings" && return; }
    rabbitmqctl --silent --timeout 10 list_vhosts </dev/null 2>/dev/null |
        grep -vx "/\|$VHOST\|$VHOST-\(cinder\|neutron\)" | sed '1!d; s/.*/its virtual host & is not ours/' || true
}

without_our_lines() {
    [[ ! -e $1 ]] || sed "/^$BROKER_MARK: begin$/,/^$BROKER_MARK: end$/d" "$1"
}

# Its own name, by which its tools look for it, is loopback's to them: the machine's other addresses do not answer.
write_broker_addresses() {
    local address number=0
    forget_broker_addresses
    install -d -m 0755 "$BROKER_ETC/conf.d"
    for address in 127.0.0.1 "$BROKER_ADDRESS"; do
        [[ $number == 1 && $address == 127.* ]] || echo "listeners.tcp.$((++number)) = $address:$BROKER_PORT"
    done >"$BROKER_ETC/conf.d/nova-lite.conf"
    printf '%s\n' "{host, {127,0,0,1}, [\"$(hostname -s)\"]}." "{lookup, [file, native]}." >"$BROKER_ETC/nova-lite.inetrc"
    cat >>"$BROKER_ETC/rabbitmq-env.conf" <<SETTINGS
$BROKER_MARK: begin
export ERL_EPMD_ADDRESS=127.0.0.1
export ERL_INETRC=$BROKER_ETC/nova-lite.inetrc
SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
$BROKER_MARK: end
SETTINGS
    chmod 0644 "$BROKER_ETC/conf.d/nova-lite.conf" "$BROKER_ETC/nova-lite.inetrc" "$BROKER_ETC/rabbitmq-env.conf"
    has_systemd || return 0
    install -d -m 0755 "$(dirname "$EPMD_SOCKET")"
    printf '%s\n' "[Socket]" "ListenStream=" "ListenStream=127.0.0.1:4369" >"$EPMD_SOCKET"
    systemctl daemon-reload
}

# It goes on listening where it does until it is started again.
forget_broker_addresses() {
    local file=$BROKER_ETC/rabbitmq-env.conf rest
    rm -f "$BROKER_ETC/conf.d/nova-lite.conf" "$BROKER_ETC/nova-lite.inetrc"
    if grep -qsF "$BROKER_MARK" "$file"; then
        rest=$(without_our_lines "$file" && echo .)
        printf %s "${rest%.}" >"$file"
    fi
    [[ -e $EPMD_SOCKET ]] || return 0
    remove_tree "$(dirname "$EPMD_SOCKET")"
    systemctl daemon-reload
}

# The other nodes, one a line, that epmd knows: it serves all of the machine, and while they run, it is not started again.
other_nodes() {
    epmd -names 2>/dev/null | sed -n 's/^name \(.*\) at port .*/\1/p' | grep -vx 'rabbit\|rabbitmq.*' || true
}

# The addresses, of those on which broker, its node and epmd listen, that they have no need of, and that a start of the
# broker would close.
broker_listens_too_widely() {
    ports_open_widely "$BROKER_PORT" $((BROKER_PORT + 20000)) $([[ -n $(other_nodes) ]] || echo "${ERL_EPMD_PORT:-4369}")
}

ports_open_widely() {
    ss --no-header --listening --tcp --numeric | awk '{ print $4 }' | grep -E ":($(tr ' ' '|' <<<"$*"))$" |
        grep -vE "^(127\.[0-9.]+|\[::1\]|\[::ffff:127\.[0-9.]+\]):" | grep -vxF "$BROKER_ADDRESS:$BROKER_PORT" || true
}

# Before it is started. One that runs already, and listens elsewhere, ends first.
keep_broker_in() {
    local why
    if [[ $BROKER_ADDRESS == any ]]; then
        forget_broker_addresses
        return
    fi
    why=$(broker_is_anothers)
    if [[ -n $why ]]; then
        echo "The broker is left as it is: $why."
        return
    fi
    write_broker_addresses
    [[ -n $(broker_listens_too_widely) ]] || broker_lacks_an_address || return 0
    stop_broker
}

broker_lacks_an_address() {
    [[ -z $(ss --no-header --listening --tcp --numeric "src $BROKER_ADDRESS:$BROKER_PORT") ]] && broker_answers >/dev/null 2>&1
}

# With its epmd, unless that has other nodes.
stop_broker() {
    if has_systemd; then
        systemctl stop rabbitmq-server
        systemctl stop epmd.service epmd.socket || true # there may be none
        epmd -kill >/dev/null 2>&1 || true              # one that a command of the broker's has started
        return
    fi
    ! broker_answers >/dev/null 2>&1 || rabbitmqctl --quiet shutdown --timeout 60
    epmd -kill >/dev/null 2>&1 || true
}

# What an operator has to know of it, in one line; nothing if it is as it should be.
broker_hint() {
    local open why
    [[ $BROKER_ADDRESS != any ]] || return 0
    open=$(ports_open_widely "${ERL_EPMD_PORT:-4369}")
    [[ -z $open || -z $(other_nodes) ]] ||
        echo "epmd listens at $(xargs <<<"$open") and has other nodes ($(other_nodes | xargs)), so it is left as it is. Let no guest reach it."
    open=$(broker_listens_too_widely)
    [[ -n $open ]] || return 0
    why=$(broker_is_anothers)
    echo "The message broker listens at $(xargs <<<"$open"): it was set up by somebody else (${why:-it was not started again}), and is left as it is. Let no guest reach it."
}

# --- accounts

set_up_broker() {
    keep_broker_in
    start_broker
    [[ $BROKER_ADDRESS == any || -z $(broker_listens_too_widely) || -n $(broker_is_anothers) ]] ||
        die "the broker, or its epmd, listens at $(broker_listens_too_widely | xargs) although it is told not to."
}

delete_broker_user() {
    ! rabbitmqctl --quiet list_users | cut -f1 | grep -x -- "$1" >/dev/null || rabbitmqctl --quiet delete_user "$1"
}

drop_broker() {
    forget_broker_addresses
    command -v rabbitmqctl >/dev/null && broker_answers >/dev/null 2>&1 || return 0
    ! rabbitmqctl --quiet list_vhosts | grep -x "$VHOST" >/dev/null || rabbitmqctl --quiet delete_vhost "$VHOST"
    local name
    for name in $(rabbitmqctl --quiet list_users | cut -f1 | grep -E "^$BROKER_USER(-(conductor|scheduler|api|console|manage|compute([.-].+)?))?$" || true); do
        rabbitmqctl --quiet delete_user "$name"
    done
}
