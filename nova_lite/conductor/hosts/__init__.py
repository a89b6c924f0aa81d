"""The conductor's work for compute hosts: heartbeats, domains, filter rules, change notifications, retirement."""
