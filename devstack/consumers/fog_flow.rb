# A server with a volume, a network of its own, a router and a floating address by fog-openstack:
#
#   fog_flow.rb URL PASSWORD
require 'fog/openstack'

url, password = ARGV
credentials = {
  openstack_auth_url: "#{url}/identity",
  openstack_username: 'demo',
  openstack_api_key: password,
  openstack_project_name: 'demo',
  openstack_user_domain_id: 'default',
  openstack_project_domain_id: 'default',
  openstack_region: 'RegionOne'
}
compute = Fog::OpenStack::Compute.new(credentials)
network = Fog::OpenStack::Network.new(credentials)
image = Fog::OpenStack::Image.new(credentials)
# fog-openstack knows versions 1 and 2 of the volume API. Version 3 answers the same requests.
volume = Fog::OpenStack::Volume::V2.new(credentials.merge(openstack_service_type: ['volumev3']))
identity = Fog::OpenStack::Identity.new(credentials)

raise 'no token' if identity.current_tenant.nil?

picture = image.images.all.find { |item| item.name == 'nova-lite-guest' }
flavor = compute.flavors.all.find { |item| item.name == 'm1.nano' }
outside = network.networks.all('router:external' => true).first

inner = network.networks.create(name: 'fog')
range = network.subnets.create(name: 'fog', network_id: inner.id, cidr: '10.99.1.0/24', ip_version: 4)
router = network.routers.create(name: 'fog', external_gateway_info: outside.id)
network.add_router_interface(router.id, range.id)
group = network.security_groups.create(name: 'fog', description: 'made by fog')
rule = network.security_group_rules.create(
  security_group_id: group.id, direction: 'ingress', protocol: 'tcp', port_range_min: 22, port_range_max: 22
)
key = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF fog'
compute.create_key_pair('fog', key)
server = compute.servers.create(
  name: 'fog', image_ref: picture.id, flavor_ref: flavor.id, key_name: 'fog', nics: [{ net_id: inner.id }],
  security_groups: ['fog'], metadata: { 'role' => 'web' }
)
server.wait_for(60) { ready? }
port = network.ports.all(device_id: server.id).first
address = network.floating_ips.create(floating_network_id: outside.id, port_id: port.id)
disk = volume.volumes.create(name: 'fog', description: 'made by fog', size: 1)
disk.wait_for(60) { status == 'available' }
server.attach_volume(disk.id, '/dev/vdb')
disk.wait_for(60) { status == 'in-use' }
server.reload
role = server.metadata.get('role')
raise "no metadata: #{role.inspect}" unless role && role.value == 'web'
server.reboot
server.wait_for(60) { ready? }
server.stop
server.wait_for(60) { state == 'SHUTOFF' }
server.detach_volume(disk.id)
disk.wait_for(60) { status == 'available' }

address.destroy
server.destroy
Fog.wait_for(60) { compute.servers.get(server.id).nil? }
disk.destroy
network.remove_router_interface(router.id, range.id)
router.destroy
rule.destroy
range.destroy
inner.destroy
group.destroy
compute.delete_key_pair('fog')
puts 'done'
