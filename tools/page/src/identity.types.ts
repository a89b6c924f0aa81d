// Fields of the identity API that the page reads.
export interface Named {
  id: string;
  name: string;
}

export interface User extends Named {
  enabled: boolean;
  domain_id: string;
  password_expires_at: string | null;
}

export interface Project extends Named {
  enabled: boolean;
  description: string | null;
}

export interface Assignment {
  role: Named;
  user?: Named;
  group?: Named;
  scope: { project?: Named; domain?: Named };
  links: { assignment: string };
}

export interface Credential extends Named {
  description: string | null;
  expires_at: string | null;
  roles: Named[];
  secret?: string;
}

/** A credential whose secret the service knows: a key of one-time codes, for example. */
export interface SecretCredential {
  id: string;
  type: string;
}

/** A session: what its token says. */
export interface TokenReply {
  token: {
    user: Named;
    project?: Named | null;
    roles?: Named[];
    expires_at: string;
    catalog?: { type: string }[];
  };
}

export interface IdentityReply {
  users: User[];
  user: User;
  projects: Project[];
  roles: Named[];
  role_assignments: Assignment[];
  credentials: SecretCredential[];
  application_credentials: Credential[];
  application_credential: Credential;
}
