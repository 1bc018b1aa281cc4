//! Server-Sent Event frames, built once and shared by all readers. Data is JSON, so no text can break out of a frame.

use bytes::{BufMut as _, Bytes, BytesMut};
use island_protocol::event::{JobEvent, Numbered};
use serde::Serialize;
use serde_json::json;

/// Sent every 15 s when nothing else is.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// Last bytes of a job's stream at a coordinator that stops: clients connect again after a second, with `Last-Event-ID`.
pub const RESUME: Bytes =
    Bytes::from_static(b"retry: 1000\n: this coordinator is stopping; resume with Last-Event-ID\n\n");
/// Last line of a chat stream.
pub const CHAT_DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// `id`, `event` and `data` of a job event.
pub fn job_frame(event: &Numbered<JobEvent>) -> Bytes {
    let mut frame = BytesMut::with_capacity(128);
    frame.put_slice(format!("id: {}\nevent: {}\ndata: ", event.n, event.event.name()).as_bytes());
    match &event.event {
        // Some clients read the data under this second name.
        JobEvent::Image(image) => {
            let mut data = json!(event.event);
            data["image_data"] = json!(image.data);
            put_json(&mut frame, &data);
        }
        other => put_json(&mut frame, other),
    }
    frame.put_slice(b"\n\n");
    frame.freeze()
}

/// `data` alone, as chat clients expect.
pub fn data_frame(data: &impl Serialize) -> Bytes {
    let mut frame = BytesMut::with_capacity(256);
    frame.put_slice(b"data: ");
    put_json(&mut frame, data);
    frame.put_slice(b"\n\n");
    frame.freeze()
}

/// `event` and `data`. The name is a constant, so it needs no escaping.
pub fn named_frame(name: &'static str, data: &impl Serialize) -> Bytes {
    let mut frame = BytesMut::with_capacity(256);
    frame.put_slice(format!("event: {name}\ndata: ").as_bytes());
    put_json(&mut frame, data);
    frame.put_slice(b"\n\n");
    frame.freeze()
}

fn put_json(frame: &mut BytesMut, data: &impl Serialize) {
    serde_json::to_writer(frame.writer(), data).expect("wire types serialize into memory");
}

#[cfg(test)]
mod tests {
    use island_protocol::event::Image;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_breaks_out_of_a_frame(content in "(\\PC|\n|\r|event: done|data: |\u{2028}){0,20}") {
            let frame = job_frame(&Numbered { n: 7, event: JobEvent::token(content.clone()) });
            let text = std::str::from_utf8(&frame).expect("text");
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(lines.len(), 5);
            prop_assert_eq!((lines[0], lines[1], lines[3], lines[4]), ("id: 7", "event: token", "", ""));
            prop_assert!(!text.contains('\r'));
            let data: serde_json::Value =
                serde_json::from_str(lines[2].strip_prefix("data: ").expect("data")).expect("json");
            prop_assert_eq!(&data["content"], &serde_json::json!(content));
            prop_assert_eq!(&data["type"], "token");
        }
    }

    #[test]
    fn images_carry_their_bytes_under_both_names() {
        let image = Image { data: "QUJD".into(), format: "png".into(), ..Image::default() };
        let frame = job_frame(&Numbered { n: 1, event: JobEvent::Image(image) });
        let text = String::from_utf8(frame.to_vec()).expect("text");
        assert!(text.contains(r#""data":"QUJD""#) && text.contains(r#""image_data":"QUJD""#), "{text}");
    }
}
