//! `island auth login --browser`.

use std::{net::Ipv4Addr, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use island_protocol_api::{PREFIX, signup::FinishLogin};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Command,
    time::timeout,
};

use crate::{
    output::{Output, text},
    settings::{SavedSettings, Settings},
};

/// Time that the coordinator gives a sign-in.
const PATIENCE: Duration = Duration::from_mins(10);
/// Time for the browser to send a request.
const REQUEST: Duration = Duration::from_secs(5);
const MAX_REQUEST: u64 = 16 << 10;
const PAGE: &str = "<!doctype html><title>Island</title><p>You are signed in. You can close this page.";

pub(super) async fn login(settings: &Settings, output: &Output) -> Result<()> {
    let verifier = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for the browser")?;
    let port = listener.local_addr().context("read the port for the browser")?.port();
    let base = settings.api_url.trim_end_matches('/').trim_end_matches(PREFIX);
    let url = format!("{base}{PREFIX}/login?port={port}&challenge={challenge}");
    output.note(&format!("sign in at {url}"));
    open(&url);
    let Ok(code) = timeout(PATIENCE, code(&listener)).await else {
        bail!("nobody signed in within {} minutes", PATIENCE.as_secs() / 60);
    };
    let body = FinishLogin { code: code?, verifier };
    let answer = settings.client_with(None)?.finish_login(&body).answer().await?;
    super::save_key(answer.value.key.clone(), settings, output)?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let account = answer.value.data;
    output.line(&format!(
        "Signed in as {} with {}. The key is in {}.",
        account.email,
        text::amount(account.credits),
        SavedSettings::path()?.display()
    ))?;
    super::warn_if_overridden(output);
    Ok(())
}

/// Opens a page, where a desktop has a program for that. The address is shown in any case.
fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It ends at once, or stays with the browser that it started.
    drop(command.spawn());
}

/// The code that the browser brings. Other requests, as for an icon, are answered and ignored.
async fn code(listener: &TcpListener) -> Result<String> {
    loop {
        let (mut connection, _) = listener.accept().await.context("wait for the browser")?;
        let Ok(Ok(head)) = timeout(REQUEST, head(&mut connection)).await else { continue };
        let code = code_of(&head).map(str::to_owned);
        let status = if code.is_some() { "200 OK" } else { "404 Not Found" };
        let page = if code.is_some() { PAGE } else { "" };
        let reply = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
            page.len()
        );
        // The code is here, whether or not the page arrives.
        let _ = timeout(REQUEST, connection.write_all(reply.as_bytes())).await;
        if let Some(code) = code {
            return Ok(code);
        }
    }
}

async fn head(connection: &mut TcpStream) -> std::io::Result<String> {
    let (mut head, mut limited) = (Vec::new(), connection.take(MAX_REQUEST));
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The code in the first line of a request.
fn code_of(head: &str) -> Option<&str> {
    let target = head.lines().next()?.strip_prefix("GET /?code=")?;
    let code = target.split([' ', '&']).next()?;
    let is_plain =
        !code.is_empty() && code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_with_a_code_ends_the_wait() {
        assert_eq!(code_of("GET /?code=aB3 HTTP/1.1\r\nHost: x\r\n\r\n"), Some("aB3"));
        assert_eq!(code_of("GET /?code=aB3&x=y HTTP/1.1\r\n\r\n"), Some("aB3"));
        for other in [
            "",
            "GET /favicon.ico HTTP/1.1",
            "GET /?code= HTTP/1.1",
            "POST /?code=a HTTP/1.1",
            "GET /?code=%00 HTTP/1.1",
        ] {
            assert_eq!(code_of(other), None, "{other}");
        }
    }
}
