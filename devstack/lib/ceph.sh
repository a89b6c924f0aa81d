# The Ceph that VOLUMES=rbd and VOLUMES=cinder keep volumes in: devstack/ceph.sh, installed, and the secret by which guests
# open their volumes. Sourced, never run.

# For VOLUMES=rbd: what hosts and guests read, where AppArmor lets guests read it.
CEPH_CONFIG=/etc/ceph/nova-lite.conf
# Where Ceph listens if several libvirt hosts are to reach it. The machine answers for each address that it has.
CEPH_HOSTS_ADDRESS=$HOSTS_NETWORK.100

# ceph_host start|stop
ceph_host() {
    [[ $1 == start || -x $CEPH ]] || return 0
    CEPH_ADDRESS=$(ceph_address) "$CEPH" "$1" "$ETC/ceph" "$STATE/ceph"
}

ceph_address() {
    if [[ $VOLUMES == rbd ]] && ((COMPUTES > 1)); then echo "$CEPH_HOSTS_ADDRESS"; else echo 127.0.0.1; fi
}

start_ceph() {
    local group=root address
    address=$(ceph_address)
    [[ $VOLUMES != cinder ]] || group=$(service_user cinder)
    install -m 0755 "$TOP/devstack/ceph.sh" "$CEPH"
    install -d -m 0750 -g "$group" "$ETC/ceph"
    install -d -m 0755 "$STATE/ceph"
    [[ $address == 127.* ]] || ip address replace "$address/32" dev lo
    if has_systemd; then
        install -m 0644 /dev/stdin /etc/systemd/system/nova-lite-ceph.service <<UNIT
[Unit]
Description=Ceph of one node for nova_lite's volumes
After=network-online.target
Wants=network-online.target

[Service]
Type=forking
Environment=CEPH_ADDRESS=$address
$([[ $address == 127.* ]] || echo "ExecStartPre=ip address replace $address/32 dev lo")
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
    if [[ $VOLUMES == cinder ]]; then
        open_ceph_to_cinder
    else
        describe_ceph
    fi
}

# No secret is in it. The keyring is root's, as whom the compute daemons run.
describe_ceph() {
    install -d -m 0755 "$(dirname "$CEPH_CONFIG")"
    {
        echo "# Written by devstack/stack.sh."
        echo "[global]"
        sed -n '/^mon host = /p' "$ETC/ceph/ceph.conf"
        printf '%s\n' "[client]" "keyring = $ETC/ceph/\$name.keyring"
    } | install -m 0644 /dev/stdin "$CEPH_CONFIG"
}

open_ceph_to_cinder() {
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
    rm -f "$CEPH_CONFIG"
    [[ $(ceph_address) == 127.* ]] || ip address delete "$(ceph_address)/32" dev lo 2>/dev/null || true # it may be gone
    [[ ! -s $SECRETS/ceph-secret-uuid ]] || virsh_system secret-undefine "$(ceph_secret_uuid)" || true # it may be gone
}
