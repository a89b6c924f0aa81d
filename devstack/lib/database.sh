# Local database servers, with databases and users on them. Sourced, never run.

DATABASE_NAME=nova_lite
DATABASE_USER=nova_lite

# --- the servers

mariadb_answers() {
    mariadb --user=root --execute 'SELECT 1'
}

start_mariadb() {
    if mariadb_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now mariadb
    else
        install -d -o mysql -g mysql /run/mysqld
        start-stop-daemon --start --oknodo --background --pidfile /run/mysqld/mysqld.pid --exec /usr/sbin/mariadbd -- --user=mysql
    fi
    wait_for 60 mariadb_answers
}

# sql_mariadb: runs its standard input. sql_postgresql: the same, or a single command with -c.
sql_mariadb() {
    mariadb --user=root --batch
}

as_postgres() {
    setpriv --reuid=postgres --regid=postgres --init-groups "$@"
}

sql_postgresql() {
    as_postgres psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --tuples-only --no-align "$@"
}

postgresql_answers() {
    sql_postgresql -c 'SELECT 1'
}

start_postgresql() {
    local version name
    if postgresql_answers >/dev/null 2>&1; then
        return
    elif has_systemd; then
        systemctl enable --now postgresql
    else
        read -r version name _ < <(pg_lsclusters --no-header)
        pg_ctlcluster --skip-systemctl-redirect "$version" "$name" start
    fi
    wait_for 60 postgresql_answers
}

# --- users and databases; names are ours, passwords are hexadecimal: neither needs quoting

# make_mariadb_database NAME USER PASSWORD [PATTERN of databases that the user owns]
make_mariadb_database() {
    local host
    {
        echo "CREATE DATABASE IF NOT EXISTS \`$1\` CHARACTER SET utf8mb4;"
        for host in localhost 127.0.0.1; do
            echo "CREATE USER IF NOT EXISTS '$2'@'$host'; ALTER USER '$2'@'$host' IDENTIFIED BY '$3';"
            echo "GRANT ALL PRIVILEGES ON \`${4:-$1}\`.* TO '$2'@'$host';"
        done
    } | sql_mariadb
}

drop_mariadb_database() {
    echo "DROP DATABASE IF EXISTS \`$1\`; DROP USER IF EXISTS '$2'@'localhost', '$2'@'127.0.0.1';" | sql_mariadb
}

# make_postgresql_database NAME USER PASSWORD [OPTION of the role, as CREATEDB]
make_postgresql_database() {
    local verb=CREATE
    [[ -z $(sql_postgresql -c "SELECT 1 FROM pg_roles WHERE rolname = '$2'") ]] || verb=ALTER
    echo "$verb ROLE \"$2\" LOGIN ${4-} PASSWORD '$3';" | sql_postgresql
    [[ -n $(sql_postgresql -c "SELECT 1 FROM pg_database WHERE datname = '$1'") ]] ||
        sql_postgresql -c "CREATE DATABASE \"$1\" OWNER \"$2\" ENCODING 'UTF8' TEMPLATE template0"
}

drop_postgresql_database() {
    sql_postgresql -c "DROP DATABASE IF EXISTS \"$1\" WITH (FORCE)"
    sql_postgresql -c "DROP ROLE IF EXISTS \"$2\""
}

# --- the stack's own

set_up_database() {
    case $DATABASE in
    mariadb) start_mariadb ;;
    postgresql)
        start_postgresql
        make_postgresql_database "$DATABASE_NAME" "$DATABASE_USER" "$(secret database)"
        ;;
    esac
}

# Of PostgreSQL: nova-lite-setup chooses the others.
database_url() {
    echo "postgresql+psycopg://$DATABASE_USER:$(secret database)@127.0.0.1/$DATABASE_NAME"
}

drop_database() {
    case $DATABASE in
    mariadb) ! command -v mariadb >/dev/null || { start_mariadb && drop_mariadb_database "$DATABASE_NAME" "$DATABASE_USER"; } ;;
    postgresql) ! command -v psql >/dev/null || { start_postgresql && drop_postgresql_database "$DATABASE_NAME" "$DATABASE_USER"; } ;;
    esac
}
