# Users of a cloud without Keystone: admin, and demo in a project of that name. Sourced, never run.

# Their passwords are made once. Changed ones are theirs: what is there is not touched. The admin's is in clouds.yaml's secure.yaml.
create_users() {
    set_up admin "$(auth_url)"
    grep -qxF demo <<<"$(listed project name)" || manage project create demo --description "For trying things out"
    grep -qxF demo <<<"$(listed user name)" || secret "demo-password" | manage user create demo --project demo --role member
}
