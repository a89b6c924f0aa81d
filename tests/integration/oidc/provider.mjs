// A provider for tests: any name logs in, and its groups are those of its account. Arguments: port.
import { Provider, errors } from 'oidc-provider';

const port = Number(process.argv[2]);
const url = `http://127.0.0.1:${port}`;
const groups = { alice: ['makers', 'others'], cloud: ['makers'] };
const client = { client_secret: 'secret', redirect_uris: ['http://127.0.0.1:1/callback', 'http://127.0.0.1:1/login/callback'], response_types: ['code'] };
const grants = ['authorization_code', 'password', 'urn:ietf:params:oauth:grant-type:device_code', 'client_credentials'];

const provider = new Provider(url, {
  clients: [
    { ...client, client_id: 'cloud', grant_types: grants },
    { ...client, client_id: 'opaque', grant_types: grants },
  ],
  cookies: { keys: ['a key of tests'] },
  pkce: { required: () => false },
  extraTokenClaims: (ctx, token) => ({
    groups: groups[token.accountId ?? token.clientId] ?? [],
    email: `${token.accountId ?? token.clientId}@example.org`,
  }),
  features: {
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    devInteractions: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      // Tokens of the client "opaque" are no JWT.
      defaultResource: (ctx) => (ctx.oidc.client.clientId === 'opaque' ? undefined : 'urn:cloud'),
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'openid cloud', audience: 'cloud', accessTokenFormat: 'jwt' }),
    },
  },
});
// The provider has no grant for passwords, which OAuth 2.1 dropped. Its tokens are no JWT, as they name no resource.
async function byPassword(ctx, next) {
  const { username, password } = ctx.oidc.params;
  if (password !== `${username}'s`) throw new errors.InvalidGrant('the password is wrong');
  const { client } = ctx.oidc;
  const grant = new provider.Grant({ clientId: client.clientId, accountId: username });
  grant.addOIDCScope('openid');
  const grantId = await grant.save();
  const token = new provider.AccessToken({ accountId: username, client, grantId, gty: 'password', scope: 'openid' });
  ctx.body = { access_token: await token.save(), expires_in: token.expiration, token_type: 'Bearer' };
  await next();
}
provider.registerGrantType('password', byPassword, ['username', 'password', 'scope']);
provider.listen(port, '127.0.0.1', () => console.log('ready'));
