//! The place in a trace, as the W3C's header `traceparent` spells it.

use std::{fmt, str::FromStr};

/// Name of the header, in HTTP and on the fabric.
pub const HEADER: &str = "traceparent";
/// Length of a header of version 0.
const LENGTH: usize = 55;
/// Flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// A header that names no place in a trace. It is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
pub struct InvalidTraceContext;

/// A place in a trace: the trace, the span, and whether the trace is recorded. Anybody may send one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl TraceContext {
    /// The first span of a new trace, which is recorded with the probability `sample`.
    pub(super) fn new(sample: f64) -> Self {
        // 0 is the absence of an id.
        Self {
            trace: rand::random::<u128>().max(1),
            span: rand::random::<u64>().max(1),
            is_sampled: rand::random::<f64>() < sample,
        }
    }

    /// A new span of the same trace.
    pub(super) fn child(self) -> Self {
        Self { span: rand::random::<u64>().max(1), ..self }
    }

    /// The id of the trace.
    pub fn trace_id(self) -> [u8; 16] {
        self.trace.to_be_bytes()
    }

    /// The id of the span.
    pub fn span_id(self) -> [u8; 8] {
        self.span.to_be_bytes()
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(self) -> bool {
        self.is_sampled
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceContext;

    fn from_str(text: &str) -> Result<Self, InvalidTraceContext> {
        let known = text.get(..LENGTH).ok_or(InvalidTraceContext)?;
        // Later versions may add fields.
        let is_whole =
            text.len() == LENGTH || (!text.starts_with("00") && text.as_bytes().get(LENGTH) == Some(&b'-'));
        let is_plain = known.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        let mut fields = known.split('-');
        let mut field =
            |length: usize| fields.next().filter(|field| field.len() == length).ok_or(InvalidTraceContext);
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let number = |digits| u128::from_str_radix(digits, 16).map_err(|_| InvalidTraceContext);
        let (trace, span, flags) = (number(trace)?, number(span)? as u64, number(flags)? as u8);
        let is_valid = is_whole && is_plain && version != "ff" && trace != 0 && span != 0;
        let is_sampled = flags & SAMPLED != 0;
        if is_valid { Ok(Self { trace, span, is_sampled }) } else { Err(InvalidTraceContext) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_written() {
        let context: TraceContext = EXAMPLE.parse().expect("valid");
        assert_eq!(context.to_string(), EXAMPLE);
        assert!(context.is_sampled());
        assert_eq!(context.span_id(), [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        let not_sampled: TraceContext = EXAMPLE.replace("-01", "-00").parse().expect("valid");
        assert!(!not_sampled.is_sampled());
        let later = EXAMPLE.replacen("00", "cc", 1) + "-more";
        assert_eq!(later.parse::<TraceContext>(), Ok(context));
    }

    #[test]
    fn whatever_else_arrives_is_invalid() {
        for text in [
            "",
            "00",
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &EXAMPLE.replace("b7ad6b7169203331", &"0".repeat(16)),
            &EXAMPLE.replacen("00", "ff", 1),
            &format!("{EXAMPLE}-more"),
            &format!("{}-+1", &EXAMPLE[..52]),
            &EXAMPLE[..54],
            &"é".repeat(40),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(InvalidTraceContext), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            if let Ok(context) = text.parse::<TraceContext>() {
                prop_assert_eq!(context.to_string().parse(), Ok(context));
            }
        }

        #[test]
        fn every_context_is_its_header(trace in 1_u128.., span in 1_u64.., is_sampled: bool) {
            let context = TraceContext { trace, span, is_sampled };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }
    }
}
