# The daemons: systemd units where systemd is, else background processes with pid files. Sourced, never run.

compute_services() {
    if ((COMPUTES == 1)); then
        echo compute
    else
        seq --format=compute-%g "$COMPUTES"
    fi
}

# own_libvirt COMPUTE_SERVICE: the number of the libvirt host (devstack/libvirt-host.sh) that it has for itself, and lives on;
# nothing for one that works with this machine's libvirtd, or with none.
own_libvirt() {
    [[ $VIRT_DRIVER == libvirt && $1 =~ ^compute-([0-9]+)$ && $1 != compute-1 ]] || return 0
    echo "${BASH_REMATCH[1]}"
}

libvirt_hosts() {
    local name
    for name in $(compute_services); do
        own_libvirt "$name"
    done
}

daemons() {
    echo conductor scheduler $(compute_services) api $(console_proxies)
}

# A fake guest has no console.
console_proxies() {
    [[ $VIRT_DRIVER == fake ]] || echo novncproxy serialproxy $([[ $SPICE == no ]] || echo spicehtml5proxy)
}

NEUTRON_SERVICES="neutron neutron-ovn-maintenance"

# What others wrote: identity, image, volume and network services beside our daemons.
openstack_services() {
    [[ $AUTH != keystone ]] || echo keystone glance
    [[ ${VOLUMES-} != cinder ]] || echo cinder cinder-scheduler cinder-volume
    [[ ${NETWORK-} != neutron ]] || echo "$NEUTRON_SERVICES"
}

all_services() {
    echo $(openstack_services) $(daemons)
}

# expand_services [NAME...]: each must be all, or one of the services; `compute` is every compute daemon.
expand_services() {
    local name
    for name in "${@:-all}"; do
        case $name in
        all) all_services ;;
        compute) compute_services ;;
        *)
            [[ " $(all_services | xargs) " == *" $name "* ]] || die "no service $name (there are: $(all_services | xargs))."
            echo "$name"
            ;;
        esac
    done
}

# service_command NAME: its program and arguments.
service_command() {
    case $1 in
    keystone | glance | cinder)
        echo "$OPENSTACK/bin/python $OPENSTACK/serve_wsgi.py $1 $ETC/$1"
        return
        ;;
    cinder-*)
        echo "$OPENSTACK/bin/python $OPENSTACK/run_cinder.py $1 $ETC/cinder"
        return
        ;;
    neutron)
        echo "$NEUTRON/bin/python $NEUTRON/serve_wsgi.py $1 $ETC/$1"
        return
        ;;
    neutron-*)
        echo "$NEUTRON/bin/$1-worker --config-file $ETC/neutron/neutron.conf"
        return
        ;;
    esac
    echo "$VENV/bin/nova-lite-${1%%-*} --config-file $ETC/nova-lite.conf --config-file $ETC/$1.conf"
}

# service_user NAME: each has a user of its own. The two proxies share one, as they do key and broker account. compute is
# root: libvirt's socket, guests' disks that are qemu's, addresses and packet filters; and so is cinder-volume, which would
# have its tools run by sudo otherwise.
service_user() {
    case $1 in
    compute* | registrar | cinder-volume) echo root ;;
    neutron*) echo "$GROUP-neutron" ;;
    cinder*) echo "$GROUP-cinder" ;;
    *proxy) echo "$GROUP-console" ;;
    *) echo "$GROUP-$1" ;;
    esac
}

# The users of the services that others wrote, root apart.
openstack_users() {
    local name
    for name in $(openstack_services); do
        service_user "$name"
    done | sort -u | grep -vx root || true
}

# start_service, stop_service, kill_service, service_state and service_log NAME do the same in both worlds.
start_service() {
    if has_systemd; then
        systemctl start --no-block "$(unit_of "$1")"
    else
        start_process "$1"
    fi
}

stop_service() {
    if has_systemd; then
        systemctl stop "$(unit_of "$1")"
    else
        stop_process "$1"
    fi
}

# Ends the daemon at once (SIGKILL), as a crash would. systemd starts it again after a few seconds.
kill_service() {
    local pid
    if has_systemd; then
        systemctl kill --kill-who=main --signal=KILL "$(unit_of "$1")"
    elif pid=$(process_of "$1"); then
        kill -KILL "$pid"
    fi
}

# One of: running, starting, stopped, failed.
service_state() {
    if has_systemd; then
        unit_state "$1"
    else
        process_state "$1"
    fi
}

service_log() {
    local name=$1 lines=$2
    if has_systemd; then
        journalctl --unit="$(unit_of "$name")" --lines="$lines" --no-pager --output=cat
    else
        tail -n "$lines" "$LOGS/$name.log" 2>/dev/null || echo "(no log yet)"
    fi
}

# start_services NAME...: the conductor first, for the others ask it as soon as they start (and again until it answers).
start_services() {
    local name
    for name; do
        start_service "$name"
        [[ $name != conductor ]] || wait_for_services 180 "$name"
    done
    wait_for_services 180 "$@"
}

# At the same time: each may have to finish what it is at.
stop_services() {
    local name
    for name; do
        stop_service "$name" &
    done
    wait
}

# wait_for_services SECONDS NAME...: until each has said that it is ready; else the end of its log, and failure.
wait_for_services() {
    local deadline=$((SECONDS + $1)) name state failures
    shift
    for name; do
        failures=0
        until state=$(service_state "$name") && [[ $state == running ]]; do
            # A process that is just being started has, for a moment, no pid in its file, or no command line.
            [[ $state != failed ]] || failures=$((failures + 1))
            if ((failures >= 10 || SECONDS >= deadline)); then
                service_log "$name" 10 >&2
                echo "$name is $state" >&2
                return 1
            fi
            sleep 0.2
        done
    done
}

# --- with systemd

unit_of() {
    case $1 in
    compute-*) echo "nova-lite-compute@${1#compute-}.service" ;;
    *) echo "nova-lite-$1.service" ;;
    esac
}

unit_state() {
    case $(systemctl is-active "$(unit_of "$1")") in
    active) echo running ;;
    activating | reloading) echo starting ;;
    failed) echo failed ;;
    *) echo stopped ;;
    esac
}

install_units() {
    local name
    set_up units nova-lite-{conductor,scheduler,api,novncproxy,serialproxy,spicehtml5proxy,compute,compute@}
    [[ $AUTH != keystone ]] || install_openstack_units
    install_libvirt_host_units
    systemctl daemon-reload
    for name in $(all_services); do
        systemctl enable "$(unit_of "$name")"
    done
}

remove_units() {
    local unit units
    units=$(systemctl list-units --all --plain --no-legend 'nova-lite-*' | cut -d' ' -f1)
    for unit in $units; do
        systemctl disable --now "$unit"
        systemctl reset-failed "$unit" 2>/dev/null || true
    done
    remove_tree /etc/systemd/system/nova-lite-*.service{,.d} /etc/systemd/system/multi-user.target.wants/nova-lite-*
    systemctl daemon-reload
}

# A unit for each further libvirt host, and its compute daemon started within. Guests outlive the daemon, not the host.
install_libvirt_host_units() {
    local number hosts
    hosts=$(libvirt_hosts)
    [[ -n $hosts ]] || return 0
    install -m 0644 /dev/stdin /etc/systemd/system/nova-lite-libvirt@.service <<UNIT
[Unit]
Description=libvirt host %i of this machine
After=network-online.target libvirtd.service
Wants=network-online.target libvirtd.service

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=HOST_CERTIFICATES=$(host_certificates compute-%i)
ExecStart=$LIBVIRT_HOST start %i
ExecStop=$LIBVIRT_HOST stop %i
TimeoutStartSec=180
UNIT
    for number in $hosts; do
        install -D -m 0644 /dev/stdin "/etc/systemd/system/$(unit_of "compute-$number").d/libvirt.conf" <<UNIT
[Unit]
Requires=nova-lite-libvirt@$number.service
After=nova-lite-libvirt@$number.service

[Service]
# To enter that host's namespaces takes what the unit denies; within, its files are others.
CapabilityBoundingSet=~
RestrictNamespaces=no
SystemCallFilter=
ProtectSystem=no
ProtectControlGroups=no
PrivateTmp=no
ProtectHome=no
DevicePolicy=auto
ExecStart=
ExecStart=$LIBVIRT_HOST enter $number $(service_command "compute-$number")
UNIT
    done
}

# --- without

pid_file() {
    echo "$RUN/$1.pid"
}

# process_of NAME: its pid, if the process of the pid file is (still) that daemon, or about to become it.
process_of() {
    local pid started_as
    pid=$(cat "$(pid_file "$1")" 2>/dev/null) || return 1
    # As it was started: what this version would start it with may be something else.
    started_as=$(cat "$RUN/$1.command" 2>/dev/null) || read -r started_as _ <<<"$(service_command "$1")"
    # Neutron's workers call themselves by another name, with this in brackets.
    [[ $({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null) == *"$started_as"[]\ ]* ]] || return 1
    echo "$pid"
}

start_process() {
    local name=$1 program arguments owner host entered=() nice=0
    ! process_of "$name" >/dev/null || return 0
    read -r program arguments <<<"$(service_command "$name")"
    owner=$(service_user "$name")
    host=$(own_libvirt "$name")
    if [[ -n $host ]]; then
        "$LIBVIRT_HOST" start "$host"
        entered=("$LIBVIRT_HOST" enter "$host")
    fi
    entered+=("$program")
    install -d -m 0755 "$RUN" "$LOGS"
    rm -f "$(pid_file "$name")" "$RUN/$name.ready"
    touch "$LOGS/$name.log"
    chown "$owner" "$LOGS/$name.log"
    chmod 0640 "$LOGS/$name.log"
    stat -c %s "$LOGS/$name.log" >"$RUN/$name.log-start"
    echo "$program $arguments" >"$RUN/$name.command"
    # As its unit; a container may be without the right to.
    [[ $name != conductor* || $(nice -n -10 nice 2>/dev/null) != -10 ]] || nice=-10
    env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8 \
        GLIBC_TUNABLES=glibc.malloc.tcache_count=0 $(cat "$ETC/environment") \
        start-stop-daemon --start --background --make-pidfile --pidfile "$(pid_file "$name")" --chdir / --nicelevel "$nice" \
        --chuid "$owner:$(id -gn "$owner")" --output "$LOGS/$name.log" --startas "${entered[0]}" -- "${entered[@]:1}" $arguments
}

stop_process() {
    ! process_of "$1" >/dev/null ||
        start-stop-daemon --stop --oknodo --pidfile "$(pid_file "$1")" --retry TERM/90/KILL/5
    rm -f "$(pid_file "$1")" "$RUN/$1.command" "$RUN/$1.log-start" "$RUN/$1.ready"
}

# What services say when they are: ours, and Neutron's.
READY=' is ready on host |Maintenance task thread has started'

# Whether it is ready it says in its log, once: that is noted, because logs are rotated.
process_state() {
    if process_of "$1" >/dev/null; then
        if [[ ! -e $RUN/$1.ready ]] &&
            tail -c "+$(($(cat "$RUN/$1.log-start") + 1))" "$LOGS/$1.log" | grep -E "$READY" >/dev/null; then
            touch "$RUN/$1.ready"
        fi
        if [[ -e $RUN/$1.ready ]]; then
            echo running
        else
            echo starting
        fi
    elif [[ -e $(pid_file "$1") ]]; then
        echo failed
    else
        echo stopped
    fi
}
