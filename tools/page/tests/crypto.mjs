// The browser's cryptography, which Node 18 has without its global name.
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto;
