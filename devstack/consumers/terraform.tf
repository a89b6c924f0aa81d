terraform {
  required_providers {
    openstack = { source = "terraform-provider-openstack/openstack" }
  }
}

provider "openstack" {}

data "openstack_images_image_v2" "guest" {
  name        = "nova-lite-guest"
  most_recent = true
}
data "openstack_compute_flavor_v2" "nano" { name = "m1.nano" }
data "openstack_networking_network_v2" "public" { name = "public" }

resource "openstack_networking_network_v2" "net" {
  for_each       = { a = "10.66.1.0/24", b = "10.66.2.0/24" }
  name           = "tf-${each.key}"
  admin_state_up = true
}
resource "openstack_networking_subnet_v2" "subnet" {
  for_each   = { a = "10.66.1.0/24", b = "10.66.2.0/24" }
  name       = "tf-${each.key}"
  network_id = openstack_networking_network_v2.net[each.key].id
  cidr       = each.value
  ip_version = 4
  dns_nameservers = ["192.0.2.53"]
}
resource "openstack_networking_router_v2" "router" {
  name                = "tf"
  admin_state_up      = true
  external_network_id = data.openstack_networking_network_v2.public.id
}
resource "openstack_networking_router_interface_v2" "interface" {
  for_each  = openstack_networking_subnet_v2.subnet
  router_id = openstack_networking_router_v2.router.id
  subnet_id = each.value.id
}
resource "openstack_networking_secgroup_v2" "web" {
  name                 = "tf-web"
  description          = "Web servers"
  delete_default_rules = true
}
resource "openstack_networking_secgroup_rule_v2" "in" {
  for_each          = toset(["22", "80", "443"])
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = tonumber(each.key)
  port_range_max    = tonumber(each.key)
  remote_ip_prefix  = "0.0.0.0/0"
  security_group_id = openstack_networking_secgroup_v2.web.id
}
resource "openstack_networking_secgroup_rule_v2" "icmp" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "icmp"
  remote_ip_prefix  = "0.0.0.0/0"
  security_group_id = openstack_networking_secgroup_v2.web.id
}
resource "openstack_networking_secgroup_rule_v2" "out" {
  direction         = "egress"
  ethertype         = "IPv4"
  security_group_id = openstack_networking_secgroup_v2.web.id
}
resource "openstack_compute_keypair_v2" "key" { name = "tf" }
resource "openstack_networking_port_v2" "port" {
  for_each           = openstack_networking_network_v2.net
  name               = "tf-${each.key}"
  network_id         = each.value.id
  admin_state_up     = true
  security_group_ids = [openstack_networking_secgroup_v2.web.id]
  fixed_ip { subnet_id = openstack_networking_subnet_v2.subnet[each.key].id }
}
resource "openstack_compute_servergroup_v2" "apart" {
  name     = "tf"
  policies = ["anti-affinity"]
}
resource "openstack_compute_instance_v2" "server" {
  for_each  = openstack_networking_port_v2.port
  name      = "tf-${each.key}"
  image_id  = data.openstack_images_image_v2.guest.id
  flavor_id = data.openstack_compute_flavor_v2.nano.id
  key_pair  = openstack_compute_keypair_v2.key.name
  user_data = "#!/bin/sh\necho hello\n"
  metadata  = { role = "web" }
  network { port = each.value.id }
  scheduler_hints { group = openstack_compute_servergroup_v2.apart.id }
}
resource "openstack_networking_floatingip_v2" "address" { pool = "public" }
resource "openstack_networking_floatingip_associate_v2" "address" {
  floating_ip = openstack_networking_floatingip_v2.address.address
  port_id     = openstack_networking_port_v2.port["a"].id
  depends_on  = [openstack_networking_router_interface_v2.interface]
}
resource "openstack_blockstorage_volume_v3" "data" {
  name  = "tf"
  size  = 1
  enable_online_resize = true
}
resource "openstack_compute_volume_attach_v2" "data" {
  instance_id = openstack_compute_instance_v2.server["a"].id
  volume_id   = openstack_blockstorage_volume_v3.data.id
}
output "address" { value = openstack_networking_floatingip_v2.address.address }
