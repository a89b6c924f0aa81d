#!/bin/bash
# Starts a fresh cloud of real Nova with databases and a broker host of its own: nova-api with 2 processes, conductor,
# scheduler, and 4 nova-compute with the fake driver; Placement, Glance and Neutron. Ends when a server was ACTIVE and is gone.
#
# Needs root, RabbitMQ and MariaDB on this machine. The first start installs it from PyPI into $NOVA_REFERENCE
# (/opt/nova-reference), which takes minutes. It prints url, token, image, flavor and pids, and writes them to run/cloud.env there.
# down.sh ends exactly these processes, and drops their databases.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
source "$here/settings.sh"
source "$here/../../devstack/packaging/trees.sh"
[[ -x $BIN/nova-compute ]] || {
    echo "Installing Nova, Placement, Glance and Neutron into $ROOT/venv ..." >&2
    python3 -m venv "$ROOT/venv"
    "$BIN/pip" install --quiet "${PACKAGES[@]}"
}
bash "$here/down.sh"
remove_tree "$ETC" "$STATE" "$LOGS" "$RUN"
mkdir -p "$ETC"/{nova,placement,glance,neutron} "$STATE"/{nova,glance/images,neutron,locks} "$RUN" "$LOGS"
db() { echo "mysql+pymysql://novaref:$PASSWORD@127.0.0.1/novaref_$1?charset=utf8mb4"; }

# --- databases and broker: fresh ones
{
    for name in "${DATABASES[@]}"; do
        echo "DROP DATABASE IF EXISTS novaref_$name; CREATE DATABASE novaref_$name CHARACTER SET utf8mb3;"
    done
    echo "CREATE USER IF NOT EXISTS novaref@'127.0.0.1' IDENTIFIED BY '$PASSWORD'; CREATE USER IF NOT EXISTS novaref@localhost IDENTIFIED BY '$PASSWORD';"
    echo "GRANT ALL ON \`novaref\\_%\`.* TO novaref@'127.0.0.1'; GRANT ALL ON \`novaref\\_%\`.* TO novaref@localhost;"
} | mysql
rabbitmqctl -q delete_vhost nova-ref >/dev/null 2>&1 || true
rabbitmqctl -q add_vhost nova-ref >/dev/null
rabbitmqctl -q add_user novaref "$PASSWORD" >/dev/null 2>&1 || rabbitmqctl -q change_password novaref "$PASSWORD" >/dev/null
rabbitmqctl -q set_permissions -p nova-ref novaref '.*' '.*' '.*' >/dev/null

# --- configuration
broker="transport_url = rabbit://novaref:$PASSWORD@127.0.0.1:5672/nova-ref"
service() { printf '%s\n' "auth_type = admin_token" "token = admin:service" "endpoint = http://127.0.0.1:$1" "endpoint_override = http://127.0.0.1:$1"; }
policy="[oslo_policy]
enforce_new_defaults = true
enforce_scope = false"
cat >"$ETC/nova/nova.conf" <<C
[DEFAULT]
$broker
my_ip = 127.0.0.1
host = ref-controller
state_path = $STATE/nova
compute_driver = fake.FakeDriver
debug = false
[api_database]
connection = $(db api)
[database]
connection = $(db cell1)
[cache]
enabled = true
backend = oslo_cache.dict
[placement]
$(service $PLACEMENT_PORT)
[neutron]
$(service $NEUTRON_PORT)
[glance]
api_servers = http://127.0.0.1:$GLANCE_PORT
[quota]
instances = -1
cores = -1
ram = -1
[vnc]
enabled = false
[oslo_concurrency]
lock_path = $STATE/locks
$policy
C
# Hosts know no database.
sed '/^\[api_database\]/,/^connection/d; /^\[database\]/,/^connection/d' "$ETC/nova/nova.conf" >"$ETC/nova/compute.conf"
# Nova no longer has noauth2: the same few lines as a filter in place of Keystone's.
cat >"$ETC/noauth_ref.py" <<'C'
"""WSGI filter: takes the user and the project from the token USER:PROJECT, as Nova's former noauth2 did."""


def factory(global_conf, **local_conf):
    def filter_(app):
        def call(environ, start_response):
            user, _, project = environ.get("HTTP_X_AUTH_TOKEN", "").partition(":")
            if user:
                environ["HTTP_X_USER_ID"] = user
                environ["HTTP_X_PROJECT_ID"] = project or user
                environ["HTTP_X_ROLES"] = "admin,manager,member,reader" if user == "admin" else "member,reader"
            return app(environ, start_response)

        return call

    return filter_
C
sed 's/^paste.filter_factory = keystonemiddleware.*/paste.filter_factory = noauth_ref:factory/' \
    "$ROOT/venv/etc/nova/api-paste.ini" >"$ETC/nova/api-paste.ini"
for host in "${HOSTS[@]}"; do
    mkdir -p "$STATE/$host"
    printf '[DEFAULT]\nhost = %s\nstate_path = %s\n' "$host" "$STATE/$host" >"$ETC/nova/$host.conf"
done
cat >"$ETC/placement/placement.conf" <<C
[api]
auth_strategy = noauth2
[placement_database]
connection = $(db placement)
C
cat >"$ETC/glance/glance-api.conf" <<C
[DEFAULT]
enabled_backends = file:file
[database]
connection = $(db glance)
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = $STATE/glance/images
[os_glance_staging_store]
filesystem_store_datadir = $STATE/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = $STATE/glance/tasks
[paste_deploy]
config_file = $ROOT/venv/etc/glance/glance-api-paste.ini
[oslo_policy]
enforce_new_defaults = false
enforce_scope = false
policy_file = $ETC/glance/policy.yaml
C
echo '"publicize_image": ""' >"$ETC/glance/policy.yaml"
# Neutron's first request of a process fails if no other has made SQLAlchemy complete its models: they are completed here.
cat >"$ETC/neutron_ref.py" <<'C'
from neutron.wsgi.api import application  # noqa: F401
import neutron.db.models.port_forwarding  # noqa: F401
import sqlalchemy.orm

sqlalchemy.orm.configure_mappers()
C
cat >"$ETC/neutron/neutron.conf" <<C
[DEFAULT]
core_plugin = ml2
service_plugins =
auth_strategy = noauth
$broker
state_path = $STATE/neutron
api_paste_config = $ROOT/venv/etc/neutron/api-paste.ini
dhcp_agent_notification = false
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = $(db neutron)
[ml2]
type_drivers = local
project_network_types = local
mechanism_drivers =
extension_drivers =
[oslo_concurrency]
lock_path = $STATE/locks
[oslo_policy]
enforce_new_defaults = false
enforce_scope = false
C

# --- schemas: made once, later read from a copy
nova() { "$BIN/nova-manage" --config-file "$ETC/nova/nova.conf" "$@"; }
make_schemas() {
    nova api_db sync &&
    nova cell_v2 map_cell0 --database_connection "$(db cell0)" &&
    nova cell_v2 create_cell --name cell1 --verbose &&
    nova db sync &&
    OS_PLACEMENT_CONFIG_DIR=$ETC/placement "$BIN/placement-manage" --config-file "$ETC/placement/placement.conf" db sync &&
    "$BIN/glance-manage" --config-file "$ETC/glance/glance-api.conf" db_sync &&
    "$BIN/neutron-db-manage" --config-file "$ETC/neutron/neutron.conf" upgrade heads &&
    mysqldump --databases "${DATABASES[@]/#/novaref_}" >"$ROOT/schemas.sql.new" &&
    mv "$ROOT/schemas.sql.new" "$ROOT/schemas.sql"
}
if [[ -s $ROOT/schemas.sql ]]; then
    mysql <"$ROOT/schemas.sql"
else
    make_schemas >"$LOGS/schemas.log" 2>&1 </dev/null || { tail -n 20 "$LOGS/schemas.log"; exit 1; }
fi

# --- daemons
start() { # NAME COMMAND...
    local name=$1
    shift
    setsid "$@" >"$LOGS/$name.log" 2>&1 </dev/null &
    echo $! >"$RUN/$name.pid"
}
wsgi() { # NAME PORT PROCESSES MODULE [ARGUMENT...]
    local name=$1 port=$2 processes=$3 module=$4
    shift 4
    start "$name" "$BIN/uwsgi" --master --die-on-term --exit-on-reload --need-app --lazy-apps --enable-threads \
        --thunder-lock --processes "$processes" --threads 1 --buffer-size 65535 --add-header "Connection: close" \
        --http-socket "127.0.0.1:$port" --disable-logging \
        --virtualenv "$ROOT/venv" --pythonpath "$ETC" --module "$module" "$@"
}
answers() { # PORT PATH
    curl -s -o /dev/null --max-time 5 -H "X-Auth-Token: $TOKEN" -w '%{http_code}' "http://127.0.0.1:$1$2" | grep -qE '^(200|300)$'
}
await() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        ((SECONDS < end)) || { echo "up.sh: not in time: $what" >&2; exit 1; }
        sleep 0.3
    done
}
OS_PLACEMENT_CONFIG_DIR=$ETC/placement wsgi placement $PLACEMENT_PORT 2 placement.wsgi.api:application
OS_GLANCE_CONFIG_DIR=$ETC/glance wsgi glance $GLANCE_PORT 2 glance.wsgi.api:application
OS_NEUTRON_CONFIG_DIR=$ETC/neutron OS_NEUTRON_CONFIG_FILES=neutron.conf ASGI_WORKERS=2 \
    wsgi neutron $NEUTRON_PORT 2 neutron_ref:application
await 90 "placement answers" answers $PLACEMENT_PORT /
await 90 "glance answers" answers $GLANCE_PORT /v2/images
await 120 "neutron answers" answers $NEUTRON_PORT /v2.0/ports
start conductor "$BIN/nova-conductor" --config-file "$ETC/nova/nova.conf"
compute() { start "compute-$1" "$BIN/nova-compute" --config-file "$ETC/nova/compute.conf" --config-file "$ETC/nova/$1.conf"; }
provided() { # COUNT: so many hosts have told Placement what they have
    (($(mysql -N -e 'SELECT COUNT(DISTINCT resource_provider_id) FROM novaref_placement.inventories') >= $1))
}
start scheduler "$BIN/nova-scheduler" --config-file "$ETC/nova/nova.conf"
OS_NOVA_CONFIG_DIR=$ETC/nova wsgi api $NOVA_PORT 2 nova.wsgi.osapi_compute:application
# One after the other: Placement refuses some of several that come at once to an empty database.
for number in "${!HOSTS[@]}"; do
    compute "${HOSTS[number]}"
    await 180 "${HOSTS[number]} is ready" provided $((number + 1))
done
await 120 "nova answers" answers $NOVA_PORT /v2.1/flavors
nova cell_v2 discover_hosts >>"$LOGS/schemas.log" 2>&1

# --- an image, a flavor, and a server as a proof
call() { # METHOD URL [BODY [TYPE]]
    curl -sf --max-time 60 -X "$1" -H "X-Auth-Token: $TOKEN" -H "OpenStack-API-Version: compute 2.37" \
        -H "Content-Type: ${4:-application/json}" ${3:+--data-binary "$3"} "$2"
}
field() { python3 -c "import json,sys; o=json.load(sys.stdin)
for k in sys.argv[1].split('.'): o=o[k]
print(o)" "$1"; }
nova_url=http://127.0.0.1:$NOVA_PORT/v2.1
image=$(call POST http://127.0.0.1:$GLANCE_PORT/v2/images \
    '{"name": "bench", "disk_format": "raw", "container_format": "bare", "visibility": "public"}' | field id)
head -c 1048576 /dev/zero >"$STATE/image.raw"
call PUT http://127.0.0.1:$GLANCE_PORT/v2/images/"$image"/file "@$STATE/image.raw" application/octet-stream
call POST $nova_url/flavors '{"flavor": {"id": "1", "name": "m1.tiny", "ram": 512, "vcpus": 1, "disk": 1}}' >/dev/null
server=$(call POST $nova_url/servers \
    "{\"server\": {\"name\": \"proof\", \"imageRef\": \"$image\", \"flavorRef\": \"1\", \"networks\": \"none\"}}" | field server.id)
active() {
    local status
    status=$(call GET "$nova_url/servers/$server" | field server.status)
    [[ $status != ERROR ]] || { call GET "$nova_url/servers/$server"; exit 1; }
    [[ $status == ACTIVE ]]
}
await 120 "the first server is ACTIVE" active
call DELETE "$nova_url/servers/$server"
gone() { [[ $(call GET "$nova_url/servers" | field servers) == "[]" ]]; }
await 60 "the first server is gone" gone

{
    echo "url=$nova_url"
    echo "token=$TOKEN"
    echo "image=$image"
    echo "flavor=1"
    pids=""
    # benchmarks/api.py counts a process and the children of its main thread; the other members of its session are named.
    for file in "$RUN"/*.pid; do
        pid=$(<"$file") number=1
        pids+="--pid $(basename "$file" .pid)=$pid "
        for member in $(ps -o pid= -s "$pid"); do
            [[ $member == "$pid" || " $(<"/proc/$pid/task/$pid/children") " == *" $member "* ]] ||
                pids+="--pid $(basename "$file" .pid)-$((++number))=$member "
        done
    done
    echo "pids=\"${pids% }\""
} | tee "$RUN/cloud.env"
