//! b3: what the network adds to a stream of 64 frames paced at 20 ms, against the same stream served directly.

use std::{convert::Infallible, time::Duration};

use anyhow::Result;
use axum::{Router, routing::post, serve::ListenerExt};
use futures::StreamExt;

use crate::{
    load::{Reply, Target},
    stats::{Spread, percentile},
    systems::Network,
};

const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);

pub(crate) async fn run(rounds: usize) -> Result<()> {
    let network = Network::start(None).await?;
    let ours = network.target("sim-chat")?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/chat", listener.local_addr()?);
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a fresh socket takes options"));
    let mock = tokio::spawn(async move { axum::serve(listener, mock()).await });
    let direct = Target::new(url, "none", "mock")?;
    let (mut added_first, mut added_gap) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let through = ours.ask(&format!("round {round}"), FRAMES).await?;
        let floor = direct.ask("x", FRAMES).await?;
        if round > 0 {
            added_first.push(through.first_ms - floor.first_ms);
            added_gap.push(worst_gap(&through) - worst_gap(&floor));
        }
    }
    mock.abort();
    println!("overhead: {FRAMES} frames at {} ms, {} rounds", PACE.as_millis(), rounds - 1);
    println!("| figure | milliseconds |");
    println!("| --- | --- |");
    println!("| b3: added time to first token | {} |", Spread::of(added_first));
    println!("| b3: added to the 99th percentile of the gap between frames | {} |", Spread::of(added_gap));
    Ok(())
}

/// The 99th percentile of the gaps between frames.
fn worst_gap(reply: &Reply) -> f64 {
    let mut gaps: Vec<f64> = reply.frames_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    percentile(&gaps, 99.0)
}

/// The same frames at the same pace, straight from HTTP.
fn mock() -> Router {
    Router::new().route(
        "/chat",
        post(|| async {
            let frames = futures::stream::unfold(0, |n| async move {
                if n >= FRAMES {
                    return None;
                }
                tokio::time::sleep(PACE).await;
                let chunk = r#"{"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}"#;
                Some((Ok::<_, Infallible>(format!("data: {chunk}\n\n")), n + 1))
            });
            let end = futures::stream::once(async { Ok("data: [DONE]\n\n".to_owned()) });
            ([("content-type", "text/event-stream")], axum::body::Body::from_stream(frames.chain(end)))
        }),
    )
}
