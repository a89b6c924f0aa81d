// A provider for tests: any name logs in, and its groups are those of its account. Arguments: port.
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const url = `http://127.0.0.1:${port}`;
const groups = { alice: ['makers', 'others'], cloud: ['makers'] };
const client = { client_secret: 'secret', redirect_uris: ['http://127.0.0.1:1/callback'], response_types: ['code'] };
const grants = ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code', 'client_credentials'];

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
provider.listen(port, '127.0.0.1', () => console.log('ready'));
