// An OpenID Connect provider: node oidc_provider.cjs MODULES PORT REDIRECT. Confirms whoever names an e-mail address, and ends with its standard input.
const { pathToFileURL } = require("node:url");

(async () => {
  const [modules, port, redirect] = process.argv.slice(2);
  const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [{ client_id: "island", client_secret: "a secret", redirect_uris: [redirect] }],
    claims: { openid: ["sub"], email: ["email", "email_verified"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: id, email_verified: !id.startsWith("unverified") }),
    }),
    pkce: { required: () => true },
    cookies: { keys: ["of a test"] },
  });
  provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
  process.stdin.on("end", () => process.exit());
  process.stdin.resume();
})();
