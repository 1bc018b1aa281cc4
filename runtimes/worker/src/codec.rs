//! Frames on a byte stream: a `u32` length, big-endian, and that many bytes of JSON.

use std::{io, marker::PhantomData};

use bytes::{Buf, BufMut, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::codec::{Decoder, Encoder};

use crate::frame::MAX_FRAME_BYTES;

const HEADER: usize = 4;

/// Why the bytes of the other side are not frames. The connection ends; the process does not.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket cannot be read or written.
    #[error("use the worker's socket")]
    Socket(#[from] io::Error),
    /// A frame longer than [`MAX_FRAME_BYTES`], announced or about to be sent.
    #[error("frame of {0} bytes is over the limit of {MAX_FRAME_BYTES}")]
    TooLong(usize),
    /// A frame that is not the expected JSON.
    #[error("parse a frame")]
    Malformed(#[source] serde_json::Error),
}

/// Reads frames of `In` and writes frames of any serializable type.
#[derive(Debug)]
pub struct FrameCodec<In>(PhantomData<fn() -> In>);

impl<In> Default for FrameCodec<In> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<In: DeserializeOwned> Decoder for FrameCodec<In> {
    type Item = In;
    type Error = FrameError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<In>, FrameError> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*header) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(length));
        }
        if bytes.len() < HEADER + length {
            // Space grows with the bytes that have arrived, not with the announced length.
            bytes.reserve((HEADER + length - bytes.len()).min(64 << 10));
            return Ok(None);
        }
        bytes.advance(HEADER);
        let body = bytes.split_to(length);
        serde_json::from_slice(&body).map(Some).map_err(FrameError::Malformed)
    }
}

impl<In, Out: Serialize> Encoder<&Out> for FrameCodec<In> {
    type Error = FrameError;

    fn encode(&mut self, frame: &Out, bytes: &mut BytesMut) -> Result<(), FrameError> {
        let start = bytes.len();
        bytes.put_u32(0);
        serde_json::to_writer(bytes.writer(), frame).map_err(FrameError::Malformed)?;
        let length = bytes.len() - start - HEADER;
        if length > MAX_FRAME_BYTES {
            bytes.truncate(start);
            return Err(FrameError::TooLong(length));
        }
        bytes[start..start + HEADER].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ToWorker;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(cuts in proptest::collection::vec(1_usize..7, 1..40), count in 1_usize..5) {
            let mut codec = FrameCodec::<ToWorker>::default();
            let mut wire = BytesMut::new();
            for now in 0..count {
                codec.encode(&ToWorker::Shutdown { now: now % 2 == 0 }, &mut wire).expect("encode");
            }
            let (mut arrived, mut frames) = (BytesMut::new(), 0);
            for cut in cuts.into_iter().chain(std::iter::repeat(64)) {
                if wire.is_empty() { break }
                let part = wire.split_to(cut.min(wire.len()));
                arrived.extend_from_slice(&part);
                while let Some(frame) = codec.decode(&mut arrived).expect("decode") {
                    prop_assert_eq!(frame, ToWorker::Shutdown { now: frames % 2 == 0 });
                    frames += 1;
                }
            }
            prop_assert_eq!(frames, count);
        }

        #[test]
        fn arbitrary_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::from(&noise[..]);
            let mut codec = FrameCodec::<ToWorker>::default();
            while let Ok(Some(_)) = codec.decode(&mut bytes) {}
        }
    }

    #[test]
    fn an_announced_length_of_gigabytes_is_rejected_at_once() {
        let mut bytes = BytesMut::from(&u32::MAX.to_be_bytes()[..]);
        let refused = FrameCodec::<ToWorker>::default().decode(&mut bytes);
        assert!(matches!(refused, Err(FrameError::TooLong(_))));
    }
}
