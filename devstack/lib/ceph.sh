# The Ceph that VOLUMES=cinder keeps volumes in: devstack/ceph.sh, installed, and the secret by which guests open their
# volumes. Sourced, never run.

# ceph_host start|stop
ceph_host() {
    [[ $1 == start || -x $CEPH ]] || return 0
    "$CEPH" "$1" "$ETC/ceph" "$STATE/ceph"
}

start_ceph() {
    install -m 0755 "$TOP/devstack/ceph.sh" "$CEPH"
    install -d -m 0750 -g "$(service_user cinder)" "$ETC/ceph"
    install -d -m 0755 "$STATE/ceph"
    if has_systemd; then
        install -m 0644 /dev/stdin /etc/systemd/system/nova-lite-ceph.service <<UNIT
[Unit]
Description=Ceph of one node for nova_lite's Cinder
After=network-online.target
Wants=network-online.target

[Service]
Type=forking
ExecStart=$CEPH start $ETC/ceph $STATE/ceph
ExecStop=$CEPH stop $ETC/ceph $STATE/ceph
TimeoutStartSec=180

[Install]
WantedBy=multi-user.target
UNIT
        systemctl daemon-reload
        systemctl enable --now nova-lite-ceph.service
    else
        ceph_host start
    fi
    chgrp "$(service_user cinder)" "$ETC/ceph/client.cinder.keyring"
    chmod 0640 "$ETC/ceph/client.cinder.keyring"
    # Ceph's bindings are the distribution's: of no other version than its libraries.
    local target binding
    target=$("$OPENSTACK/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    for binding in /usr/lib/python3/dist-packages/{rados,rbd}.*.so; do
        ln -sf "$binding" "$target/"
    done
    "$OPENSTACK/bin/python" -c 'import rados, rbd'
}

ceph_secret_uuid() {
    [[ -s $SECRETS/ceph-secret-uuid ]] || (umask 077 && install -d -m 0700 "$SECRETS" && uuidgen >"$SECRETS/ceph-secret-uuid")
    cat "$SECRETS/ceph-secret-uuid"
}

# libvirt keeps the key of client.cinder, which no domain's XML has in it.
define_ceph_secret() {
    local uuid definition key
    uuid=$(ceph_secret_uuid)
    definition=$(mktemp)
    key=$(mktemp)
    cat >"$definition" <<SECRET
<secret ephemeral='no' private='yes'>
  <uuid>$uuid</uuid>
  <usage type='ceph'><name>nova-lite client.cinder</name></usage>
</secret>
SECRET
    virsh_system secret-define "$definition"
    sed -n 's/^[[:space:]]*key = //p' "$ETC/ceph/client.cinder.keyring" | tr -d '\n' >"$key"
    virsh_system secret-set-value "$uuid" --file "$key"
    rm "$definition" "$key"
}

remove_ceph() {
    ceph_host stop
    [[ ! -s $SECRETS/ceph-secret-uuid ]] || virsh_system secret-undefine "$(ceph_secret_uuid)" || true # it may be gone
}
