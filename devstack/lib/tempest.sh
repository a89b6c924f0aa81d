# Tempest in a virtual environment and a workspace of its own. Sourced, never run.

TEMPEST='tempest==47.*'
EXCLUDED=$TOP/devstack/tempest-exclude.txt

install_tempest() {
    local directory=$1
    make_venv "$directory"
    [[ $(cat "$directory/.dependencies" 2>/dev/null) != "$TEMPEST" ]] || return 0
    "$directory/bin/pip" install --quiet "$TEMPEST"
    echo "$TEMPEST" >"$directory/.dependencies"
}

manage() {
    "${MANAGE[@]}" "$@"
}

# listed NOUN: the names of all there are, one a line.
listed() {
    manage "$1" list --format json | python_of_tempest -c 'import json, sys; print(*(row["name"] for row in json.load(sys.stdin)), sep="\n")'
}

python_of_tempest() {
    "$directory/venv/bin/python" "$@"
}

# make_accounts DIRECTORY CONCURRENCY: users that share one password, made once, and accounts.yaml that names them. Each
# worker needs several projects, with a member and a reader in each, and two admins; one admin more looks for networks.
make_accounts() {
    local directory=$1 concurrency=$2 number password_is_new=0 projects users
    if [[ ! -s $directory/password ]]; then
        (umask 077 && head -c 24 /dev/urandom | base64 >"$directory/password")
        password_is_new=1
    fi
    projects=$(listed project)
    users=$(listed user)
    (umask 077 && : >"$directory/accounts.yaml")
    for ((number = 1; number <= 4 * concurrency; number++)); do
        make_account "tempest-$number" member
        make_account "tempest-$number" reader
    done
    for ((number = 1; number <= 2 * concurrency + 1; number++)); do
        make_account "tempest-admin-$number" admin
    done
}

# make_account PROJECT ROLE; in `make_accounts`, whose variables it reads.
make_account() {
    local project=$1 role=$2 user=$1-$2
    if ! grep -qxF -- "$project" <<<"$projects"; then
        manage project create "$project" --description "For Tempest"
        projects+=$'\n'$project
    fi
    if ! grep -qxF -- "$user" <<<"$users"; then
        manage user create "$user" --project "$project" --role "$role" <"$directory/password"
    elif ((password_is_new)); then
        manage user set-password "$user" <"$directory/password"
    fi
    local types=
    [[ $role != admin ]] || types=", types: [admin]"
    echo "- {username: $user, project_name: $project, password: '$(<"$directory/password")', roles: [$role]$types}" \
        >>"$directory/accounts.yaml"
}

configure_tempest() {
    local directory=$1 url=$2
    [[ -d $directory/workspace/.stestr ]] ||
        "$directory/venv/bin/tempest" init --workspace-path "$directory/workspaces.yaml" "$directory/workspace"
    python_of_tempest "$TOP/devstack/lib/tempest.py" configure "$directory" "$url"
}

run_tempest() {
    local directory=$1 concurrency=$2 regex=$3
    cd "$directory/workspace" || return
    "$directory/venv/bin/tempest" run --concurrency "$concurrency" --regex "$regex" --exclude-list "$EXCLUDED" 2>&1 |
        tee -a "$LOG" | grep --line-buffered -E '^\{[0-9]+\} |^Totals' | sed -E 's/ \[[0-9.]+s\]//'
}

report_tempest() {
    local directory=$1
    cd "$directory/workspace" || return
    "$directory/venv/bin/tempest" run --list-tests --regex '^tempest\.api\.compute' >"$directory/all-tests"
    "$directory/venv/bin/stestr" last --subunit |
        python_of_tempest "$TOP/devstack/lib/tempest.py" report "$directory" "$EXCLUDED"
}
