//! The model hub, and the owner's token for it.

use island_cache::{CheckError, TokenStanding, check_hub};
use island_daemon::chain::Chain;

use super::{Finding, finding};
use crate::config::Config;

const WHAT: &str = "model hub";

/// Checks whether the hub answers and accepts the token.
pub(super) async fn check(config: &Config) -> Finding {
    if config.cache.offline {
        return finding(WHAT, None, "not used: [cache] offline = true".into());
    }
    let endpoint = config.hub_endpoint();
    described(&endpoint, check_hub(&endpoint, config.read_hub_token()).await)
}

fn described(endpoint: &str, checked: Result<TokenStanding, CheckError>) -> Finding {
    let (good, detail) = match checked {
        Ok(TokenStanding::Accepted) => (Some(true), "accepts the token".to_owned()),
        Ok(TokenStanding::Absent) => (
            Some(true),
            "answers; without a token, models whose terms must be accepted there cannot be downloaded".to_owned(),
        ),
        Ok(TokenStanding::Unknown) => {
            (Some(true), "answers; whether it accepts the token is known only once a model needs it".to_owned())
        }
        Ok(TokenStanding::Refused) => (
            Some(false),
            "does not accept the token: create another one there, and put it into the file that cache.hub_token_file names, \
             or into HF_TOKEN"
                .to_owned(),
        ),
        // Models that are on disk, and those of the coordinator, need no hub.
        Err(error) => (None, format!("cannot be used now, so no model is downloaded from it: {}", Chain(&error))),
    };
    finding(WHAT, good, format!("{endpoint} {detail}"))
}

#[cfg(test)]
mod tests {
    use island_cache::WebError;

    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_the_next_step() {
        let described = |checked| described("https://hub.example", checked);
        for standing in [TokenStanding::Accepted, TokenStanding::Absent, TokenStanding::Unknown] {
            assert_eq!(described(Ok(standing)).good, Some(true), "{standing:?}");
        }
        let refused = described(Ok(TokenStanding::Refused));
        assert_eq!(refused.good, Some(false));
        assert!(refused.detail.starts_with("https://hub.example does not accept the token"), "{refused}");
        assert!(refused.detail.contains("cache.hub_token_file"), "{refused}");
        let error = WebError::Status { host: "hub.example".into(), status: 502 };
        let away = described(Err(error.into()));
        assert_eq!(away.good, None, "jobs of models that are here run all the same");
        assert!(away.detail.ends_with("hub.example answered 502"), "{away}");
    }
}
