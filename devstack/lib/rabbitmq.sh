# The message broker: running, with a virtual host and a user of ours. Sourced, never run.

VHOST=nova-lite
BROKER_USER=nova-lite

broker_answers() {
    rabbitmqctl --quiet --timeout 10 await_startup && rabbitmqctl --quiet --timeout 10 list_vhosts
}

start_broker() {
    if broker_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now rabbitmq-server
    else
        rabbitmq-server -detached
    fi
    wait_for 60 broker_answers
}

# Which process runs `rabbitmqctl` does not matter for the password: it is given on standard input.
set_up_broker() {
    start_broker
    rabbitmqctl --quiet list_vhosts | grep -x "$VHOST" >/dev/null || rabbitmqctl --quiet add_vhost "$VHOST"
    if rabbitmqctl --quiet list_users | cut -f1 | grep -x "$BROKER_USER" >/dev/null; then
        secret broker | rabbitmqctl --quiet change_password "$BROKER_USER"
    else
        secret broker | rabbitmqctl --quiet add_user "$BROKER_USER"
    fi
    rabbitmqctl --quiet set_permissions --vhost "$VHOST" "$BROKER_USER" '.*' '.*' '.*'
}

# broker_url [ADDRESS]: as whoever reaches this machine at that address says it.
broker_url() {
    echo "rabbit://$BROKER_USER:$(secret broker)@${1:-127.0.0.1}:5672/$VHOST"
}

drop_broker() {
    command -v rabbitmqctl >/dev/null && broker_answers >/dev/null 2>&1 || return 0
    ! rabbitmqctl --quiet list_vhosts | grep -x "$VHOST" >/dev/null || rabbitmqctl --quiet delete_vhost "$VHOST"
    ! rabbitmqctl --quiet list_users | cut -f1 | grep -x "$BROKER_USER" >/dev/null || rabbitmqctl --quiet delete_user "$BROKER_USER"
}
