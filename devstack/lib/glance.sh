# A Glance of this cloud's own, beside its Keystone: files, SQLite, loopback. Sourced, never run.

write_glance_config() {
    make_openstack_directories glance
    config_file "$(service_user glance)" glance/glance-api.conf <<CONFIG
[DEFAULT]
enabled_backends = files:file
enabled_import_methods = []
worker_self_reference_url = http://127.0.0.1:$IMAGE_PORT

[glance_store]
default_backend = files

[files]
filesystem_store_datadir = $STATE/glance/images

[os_glance_staging_store]
filesystem_store_datadir = $STATE/glance/staging

[os_glance_tasks_store]
filesystem_store_datadir = $STATE/glance/tasks

[database]
connection = sqlite:///$STATE/glance/glance.sqlite

[paste_deploy]
config_file = $OPENSTACK/etc/glance/glance-api-paste.ini
flavor = keystone

$(keystone_authtoken glance)
CONFIG
    echo "$IMAGE_PORT" | install -m 0644 /dev/stdin "$ETC/glance/port"
}

set_up_glance() {
    stop_service glance
    as_service glance "$OPENSTACK/bin/glance-manage" --config-file "$ETC/glance/glance-api.conf" db_sync
    start_services glance
}

# upload_images: those of standard input, as `replace_images` has them.
upload_images() {
    cat <(secret admin-password; echo) - | "$VENV/bin/python" "$TOP/devstack/lib/upload_images.py" "$(auth_url)" "$REGION"
}
