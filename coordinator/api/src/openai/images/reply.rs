//! Converts a job's events to images.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, stream};
use island_protocol::event::{Image, JobEvent};
use island_protocol_api::{
    images::{ImageData, ImageEvent, ImageUsage, Images, StreamedImage},
    problem::Code,
};
use serde::Deserialize;

use super::request::{Generation, Kind};
use crate::{
    ApiError,
    http::slots::Slot,
    native::jobs::{follow::Follower, stream::KEEP_ALIVE},
    openai::chat::reply::problem,
};
use island_coordinator_domain::{job::Job, sse};

/// An answer in progress.
#[derive(Debug)]
pub(super) struct Reply {
    follower: Follower,
    model: String,
    created: i64,
    as_url: bool,
    kind: Kind,
}

/// Output of a Cargo that makes images. It was checked against the Cargo's schema when the job ended.
#[derive(Debug, Deserialize)]
struct Output {
    images: Vec<Picture>,
    seed: u64,
    width: u32,
    height: u32,
}

#[derive(Debug, Deserialize)]
struct Picture {
    data: String,
    format: String,
}

impl Reply {
    pub(super) fn new(follower: Follower, job: &Job, request: &Generation) -> Self {
        Self {
            follower,
            model: job.workload.to_string(),
            created: job.created_at.unix_ms() / 1000,
            as_url: request.as_url,
            kind: request.kind,
        }
    }

    /// Waits for all images.
    pub(super) async fn whole(mut self) -> Result<Images, ApiError> {
        let output = loop {
            match &self.follower.next().await?.event.event {
                JobEvent::Done { output, .. } => break output.clone().unwrap_or_default(),
                JobEvent::Error { error, code } => return Err(problem(code, error)),
                _ => {}
            }
        };
        let output = Output::deserialize(output)
            .map_err(|_| ApiError::new(Code::JobFailed, "the output has no images"))?;
        let format = output.images.first().map_or_else(|| "png".to_owned(), |picture| picture.format.clone());
        let one = |Picture { data, format }: Picture| {
            if self.as_url {
                ImageData { b64_json: None, url: Some(format!("data:image/{format};base64,{data}")) }
            } else {
                ImageData { b64_json: Some(data), url: None }
            }
        };
        Ok(Images {
            created: self.created,
            data: output.images.into_iter().map(one).collect(),
            model: self.model,
            size: format!("{}x{}", output.width, output.height),
            output_format: format,
            seed: output.seed,
        })
    }

    /// Streams previews and images as Server-Sent Events; an error is sent as an event.
    pub(super) fn frames(self, slot: Option<Slot>) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let state = Streaming { reply: self, slot, previews: 0, is_over: false };
        stream::unfold(state, |mut state| async move {
            let frame = state.next().await?;
            Some((Ok(frame), state))
        })
    }

    fn picture(&self, image: &Image) -> StreamedImage {
        let side = |side: Option<u32>| side.unwrap_or_default();
        StreamedImage {
            b64_json: image.data.clone(),
            created_at: self.created,
            size: format!("{}x{}", side(image.width), side(image.height)),
            output_format: image.format.clone(),
            quality: "auto".to_owned(),
            background: "opaque".to_owned(),
        }
    }
}

struct Streaming {
    reply: Reply,
    slot: Option<Slot>,
    /// Previews sent of the current image.
    previews: u32,
    is_over: bool,
}

impl Streaming {
    /// The next frame, a comment after a long silence, or `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            let entry = tokio::select! {
                biased;
                entry = self.reply.follower.next() => entry,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(sse::KEEP_ALIVE),
            };
            let entry = entry.map_err(ApiError::in_openai_form);
            let failed = match entry.as_ref().map(|entry| &entry.event.event) {
                Ok(JobEvent::Image(image)) => return Some(self.frame(image)),
                Ok(JobEvent::Done { .. }) => None,
                Ok(JobEvent::Error { error, code }) => {
                    Some(sse::data_frame(&problem(code, error).in_openai_form().body()))
                }
                Ok(_) => continue,
                Err(error) => Some(sse::data_frame(&error.body())),
            };
            self.is_over = true;
            // The slot is released before the client can know that the stream has ended.
            if let Some(slot) = self.slot.take() {
                slot.release().await;
            }
            return failed;
        }
        None
    }

    fn frame(&mut self, image: &Image) -> Bytes {
        let picture = self.reply.picture(image);
        let is_preview = image.preview;
        let partial_image_index = self.previews;
        self.previews = if image.preview { self.previews + 1 } else { 0 };
        let (image, usage) = (picture, ImageUsage::default());
        let event = match (self.reply.kind, is_preview) {
            (Kind::Generation, true) => ImageEvent::Partial { partial_image_index, image },
            (Kind::Generation, false) => ImageEvent::Completed { image, usage },
            (Kind::Edit, true) => ImageEvent::EditPartial { partial_image_index, image },
            (Kind::Edit, false) => ImageEvent::EditCompleted { image, usage },
        };
        sse::named_frame(event.name(), &event)
    }
}
