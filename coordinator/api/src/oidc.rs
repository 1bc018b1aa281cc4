//! A client of an OpenID Connect provider: authorization code flow with PKCE.
//!
//! The provider's description and keys are read for each sign-in, so that keys which it replaces need no restart.

use std::{fs, path::PathBuf, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use openidconnect::{
    AsyncHttpClient, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointMaybeSet, EndpointNotSet,
    EndpointSet, HttpRequest, HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, Scope, TokenResponse as _,
    core::{CoreAuthenticationFlow, CoreClient, CoreProviderMetadata, CoreUserInfoClaims},
};
use reqwest::{Client, redirect::Policy};
use tokio::sync::Semaphore;

use island_coordinator_domain::config::Oidc;

/// Maximum time for a reply of the provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum sign-ins that wait for the provider at one time: beginning one needs no key.
const MAX_WAITING: usize = 32;
/// Maximum bytes of a reply.
const MAX_REPLY: usize = 1 << 20;

/// Why the provider cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The file of the client's secret.
    #[error("read the secret of the OpenID Connect client {path}")]
    Secret {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An address of the settings.
    #[error("use {0} as an address")]
    Address(String, #[source] openidconnect::url::ParseError),
    /// The HTTP client.
    #[error("create an HTTP client")]
    Http(#[source] reqwest::Error),
    /// As many sign-ins as may wait for it.
    #[error("{MAX_WAITING} sign-ins wait for the provider already")]
    Busy,
    /// It cannot be reached, or its description is invalid.
    #[error("read the description of the provider")]
    Discovery(#[source] anyhow::Error),
    /// It does not confirm the code.
    #[error("exchange a code at the provider")]
    Exchange(#[source] anyhow::Error),
    /// What it states of the person is invalid or incomplete.
    #[error("verify what the provider states of a person")]
    Claims(#[source] anyhow::Error),
}

/// An error that is read as text only.
fn described(error: impl std::error::Error + Send + Sync + 'static) -> anyhow::Error {
    anyhow::Error::new(error)
}

/// The values of a new sign-in, and where to send the person.
#[derive(Debug)]
pub(crate) struct Begun {
    pub address: String,
    pub state: String,
    pub nonce: String,
    pub verifier: String,
}

/// Whom the provider confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// The person's id at the provider.
    pub subject: String,
    /// The address that the provider has verified.
    pub email: Option<String>,
}

/// The parameters state which addresses are known: where people sign in for certain, where codes are exchanged and
/// people are described if the provider's description has them.
type ProviderClient = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The provider, as the settings name it.
#[derive(Debug)]
pub struct Provider {
    issuer: IssuerUrl,
    client_id: ClientId,
    secret: Option<ClientSecret>,
    redirect: RedirectUrl,
    email_domains: Vec<String>,
    http: Http,
    waiting: Semaphore,
}

impl Provider {
    /// Reads the secret. `redirect` is the address to which the provider returns the person.
    pub fn new(settings: &Oidc, redirect: &str) -> Result<Self, ProviderError> {
        let address = |text: &str, error| ProviderError::Address(text.to_owned(), error);
        let secret = settings.client_secret.as_ref().map(|path| {
            let read = fs::read_to_string(path);
            read.map(|secret| ClientSecret::new(secret.trim().to_owned()))
                .map_err(|source| ProviderError::Secret { path: path.clone(), source })
        });
        // A redirect could lead to an address that only this machine reaches.
        let http = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).build();
        Ok(Self {
            issuer: IssuerUrl::new(settings.issuer.clone())
                .map_err(|error| address(&settings.issuer, error))?,
            client_id: ClientId::new(settings.client_id.clone()),
            secret: secret.transpose()?,
            redirect: RedirectUrl::new(redirect.to_owned()).map_err(|error| address(redirect, error))?,
            email_domains: settings.email_domains.iter().map(|domain| domain.to_lowercase()).collect(),
            http: Http(http.map_err(ProviderError::Http)?),
            waiting: Semaphore::new(MAX_WAITING),
        })
    }

    /// Name of the provider.
    pub(crate) fn issuer(&self) -> &str {
        self.issuer.as_str()
    }

    /// Whether a person with this address may sign in.
    pub(crate) fn admits(&self, email: &str) -> bool {
        let domain = email.rsplit_once('@').map(|(_, domain)| domain.to_lowercase());
        self.email_domains.is_empty() || domain.is_some_and(|domain| self.email_domains.contains(&domain))
    }

    /// A client with the addresses and keys that the provider has now.
    async fn client(&self) -> Result<ProviderClient, ProviderError> {
        let description = CoreProviderMetadata::discover_async(self.issuer.clone(), &self.http);
        let description = description.await.map_err(|error| ProviderError::Discovery(described(error)))?;
        let client =
            CoreClient::from_provider_metadata(description, self.client_id.clone(), self.secret.clone());
        Ok(client.set_redirect_uri(self.redirect.clone()))
    }

    /// Begins a sign-in. Its state begins with `mark`, so that who began it is known without a record of it.
    pub(crate) async fn begin(&self, mark: &str) -> Result<Begun, ProviderError> {
        let _waits = self.waiting.try_acquire().map_err(|_| ProviderError::Busy)?;
        let client = self.client().await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let state = CsrfToken::new(format!("{mark}{}", CsrfToken::new_random().secret()));
        let (address, state, nonce) = client
            .authorize_url(flow, || state, Nonce::new_random)
            .add_scope(Scope::new("email".to_owned()))
            .set_pkce_challenge(challenge)
            .url();
        Ok(Begun {
            address: address.into(),
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
        })
    }

    /// Exchanges the code that a person brought back for who the person is.
    pub(crate) async fn confirm(
        &self,
        code: &str,
        nonce: &str,
        verifier: &str,
    ) -> Result<Person, ProviderError> {
        let _waits = self.waiting.try_acquire().map_err(|_| ProviderError::Busy)?;
        let client = self.client().await?;
        let exchange = client.exchange_code(AuthorizationCode::new(code.to_owned()));
        let exchange = exchange.map_err(|error| ProviderError::Exchange(described(error)))?;
        let tokens = exchange
            .set_pkce_verifier(PkceCodeVerifier::new(verifier.to_owned()))
            .request_async(&self.http)
            .await
            .map_err(|error| ProviderError::Exchange(described(error)))?;
        let missing = || ProviderError::Claims(anyhow::anyhow!("the provider returned no ID token"));
        let token = tokens.id_token().ok_or_else(missing)?;
        let claims = token
            .claims(&client.id_token_verifier(), &Nonce::new(nonce.to_owned()))
            .map_err(|error| ProviderError::Claims(described(error)))?;
        let subject = claims.subject().as_str().to_owned();
        if let Some(email) = claims.email() {
            let is_verified = claims.email_verified() == Some(true);
            return Ok(Person { subject, email: is_verified.then(|| email.as_str().to_owned()) });
        }
        // Many providers return the address only here.
        let request = client.user_info(tokens.access_token().clone(), Some(claims.subject().clone()));
        let request = request.map_err(|error| ProviderError::Claims(described(error)))?;
        let about: CoreUserInfoClaims = request
            .request_async(&self.http)
            .await
            .map_err(|error| ProviderError::Claims(described(error)))?;
        let is_verified = about.email_verified() == Some(true);
        let email = about.email().filter(|_| is_verified).map(|email| email.as_str().to_owned());
        Ok(Person { subject, email })
    }
}

/// The HTTP client of requests to the provider.
#[derive(Debug)]
struct Http(Client);

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = SendError;
    type Future = BoxFuture<'c, Result<HttpResponse, SendError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        send(&self.0, request).boxed()
    }
}

async fn send(client: &Client, request: HttpRequest) -> Result<HttpResponse, SendError> {
    let mut response = client.execute(request.try_into()?).await?;
    let mut reply = openidconnect::http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        reply = reply.header(name, value);
    }
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        if body.len() + part.len() > MAX_REPLY {
            return Err(SendError::TooLong);
        }
        body.extend_from_slice(&part);
    }
    Ok(reply.body(body)?)
}

/// A request to the provider failed.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("send a request")]
    Request(#[from] reqwest::Error),
    #[error("read a reply")]
    Reply(#[from] openidconnect::http::Error),
    #[error("the reply has more than {MAX_REPLY} bytes")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_domains_are_admitted() {
        let provider = |domains: &[&str]| {
            let settings = Oidc {
                issuer: "https://accounts.example.org".into(),
                client_id: "island".into(),
                client_secret: None,
                email_domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
                key_days: 30,
            };
            Provider::new(&settings, "https://island.example.org/api/v1/login/callback").expect("a provider")
        };
        assert!(provider(&[]).admits("a@anything.example"));
        let one = provider(&["Example.org"]);
        assert!(one.admits("a@example.ORG"));
        for other in
            ["a@sub.example.org", "a@example.org.evil.example", "example.org", "a@example.org@evil.example"]
        {
            assert!(!one.admits(other), "{other}");
        }
    }
}
