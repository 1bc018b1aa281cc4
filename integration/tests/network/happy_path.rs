//! A chat job from HTTP to llama.cpp and back.

use island_coordinator_client::{api::chat::ChatRequest, protocol::job::JobStatus};
use island_integration::{
    Network,
    expect::{Story, final_job},
};
use serde_json::json;

#[tokio::test]
async fn a_job_streams_and_is_paid_for() {
    let network = Network::start();
    let client = network.client();
    let before = client.account().await.expect("account").credits;
    let input = json!({ "prompt": "Tell me about a walk.", "max_tokens": 24, "temperature": 0.0 }); // words: ok
    let job = client.submit_job("llm-chat", input, 0).await.expect("submit");
    assert_eq!(job.status, JobStatus::Submitted);
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    assert!(!story.text.trim().is_empty());

    let job = final_job(&client, job.id).await;
    assert_eq!(job.status, JobStatus::Completed);
    assert_eq!(job.output, Some(json!(story.text)));
    let usage = job.usage.expect("usage");
    assert!(usage.prompt_tokens > 0 && (1..=24).contains(&usage.completion_tokens));
    assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    let after = client.account().await.expect("account").credits;
    assert_eq!(Some(before - after), usage.credits_used);

    let replay = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    replay.assert_whole();
    assert_eq!(replay.text, story.text, "a finished job replays whole");
}

#[tokio::test]
async fn greedy_replies_are_the_same_streamed_and_whole() {
    let network = Network::start();
    let client = network.client();
    let request = ChatRequest {
        model: "llm-chat".into(),
        messages: serde_json::from_value(json!([{ "role": "user", "content": "Good morning!" }]))
            .expect("messages"),
        max_tokens: Some(16),
        temperature: Some(0.0),
        ..ChatRequest::default()
    };
    let whole = client.chat(&request).await.expect("whole reply");
    let mut stream = client.chat_stream(&request).await.expect("streamed reply");
    let mut text = String::new();
    while let Some(chunk) = stream.next().await {
        for choice in chunk.expect("chunk").choices {
            text.push_str(&choice.delta.content.unwrap_or_default());
        }
    }
    assert_eq!(whole.choices[0].message.content, json!(text));
    assert_eq!(whole.model, "llm-chat");
}

#[tokio::test]
async fn many_jobs_share_one_worker_without_mixing() {
    let network = Network::start();
    let client = network.client();
    let ask = |word: &str| {
        let client = client.clone();
        let input = json!({ "prompt": word, "max_tokens": 40, "delay_ms": 5 });
        async move {
            let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
            Story::default().read_to_end(&mut client.job_events(job.id, None)).await
        }
    };
    let alone = ask("alpha").await;
    let (a, b, c) = tokio::join!(ask("alpha"), ask("beta"), ask("alpha"));
    for story in [&a, &b, &c] {
        story.assert_whole();
        assert!(story.is_done(), "{:?}", story.last);
    }
    assert_eq!(a.text, alone.text);
    assert_eq!(c.text, alone.text);
    assert_ne!(a.text, b.text);
}
