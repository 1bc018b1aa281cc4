//! Takes addresses apart, puts them together, and encodes their parts.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Input {
    /// Also resolves against a base, and puts into normal form.
    Parse {
        url: String,
        base: Option<String>,
    },
    Build(Parts),
    Encode {
        text: String,
    },
    Decode {
        text: String,
    },
}

#[derive(Deserialize)]
struct Parts {
    url: String,
    path: Option<Vec<String>>,
    query: Option<Vec<(String, String)>>,
    fragment: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Url(Box<Address>),
    Text { text: String },
}

#[derive(Serialize)]
struct Address {
    url: String,
    scheme: String,
    username: String,
    host: Option<String>,
    port: Option<u16>,
    path: String,
    query: Vec<(String, String)>,
    fragment: Option<String>,
    origin: String,
}

fn apart(url: &Url) -> Answer {
    Answer::Url(Box::new(Address {
        url: url.to_string(),
        scheme: url.scheme().to_owned(),
        username: url.username().to_owned(),
        host: url.host_str().map(str::to_owned),
        port: url.port_or_known_default(),
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        fragment: url.fragment().map(str::to_owned),
        origin: url.origin().ascii_serialization(),
    }))
}

fn build(parts: Parts) -> Result<Url, Error> {
    let mut url = Url::parse(&parts.url).or_invalid("url")?;
    if let Some(path) = parts.path {
        let mut segments = url.path_segments_mut().ok().or_invalid("this kind of url has no path")?;
        segments.pop_if_empty().extend(path);
    }
    if let Some(query) = parts.query {
        url.query_pairs_mut().extend_pairs(query);
    }
    if let Some(fragment) = parts.fragment {
        url.set_fragment(Some(&fragment));
    }
    Ok(url)
}

fn work(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    Ok(match input {
        Input::Parse { url, base } => {
            let base = base.map(|base| Url::parse(&base)).transpose().or_invalid("base")?;
            apart(&Url::options().base_url(base.as_ref()).parse(&url).or_invalid("url")?)
        }
        Input::Build(parts) => apart(&build(parts)?),
        Input::Encode { text } => Answer::Text { text: utf8_percent_encode(&text, RESERVED).to_string() },
        Input::Decode { text } => {
            Answer::Text { text: percent_decode_str(&text).decode_utf8().or_invalid("text")?.into_owned() }
        }
    })
}

fn main() -> ExitCode {
    run(work)
}
