//! Valid files pass; every invalid header is rejected quickly.

use std::{
    fs::File,
    io::{Cursor, Write},
};

use proptest::prelude::*;

use super::*;

/// Writes headers, valid or not.
#[derive(Default, Clone)]
struct Maker {
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Maker {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    fn tensor(mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let mut bytes = text(name);
        bytes.extend((shape.len() as u32).to_le_bytes());
        bytes.extend(shape.iter().flat_map(|side| side.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    fn data(mut self, bytes: usize) -> Self {
        self.data = bytes;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32) + self.data, 0);
        bytes
    }

    fn check(&self) -> Result<Header, GgufError> {
        check(&self.bytes())
    }
}

fn check(bytes: &[u8]) -> Result<Header, GgufError> {
    Header::read(Cursor::new(bytes), bytes.len() as u64)
}

fn sound() -> Maker {
    Maker::default()
        .entry("general.architecture", 8, &text("llama"))
        .entry("llama.block_count", 4, &2_u32.to_le_bytes())
        .entry(
            "tokens",
            9,
            &[&8_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &text("a"), &text("bc")].concat(),
        )
        .entry("scores", 9, &[&6_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &[0; 8]].concat())
        .tensor("token_embd.weight", &[4, 8], 0, 0)
        .tensor("blk.0.attn_q.weight", &[32, 2], 8, 128)
        .tensor("blk.1.attn_q.weight", &[4], 0, 224)
        .data(240)
}

#[test]
fn a_valid_file_passes() {
    let header = sound().check().expect("sound");
    assert_eq!(header.entry("llama.block_count"), Some(&Value::Unsigned(2)));
    assert_eq!(header.layer_bytes(), vec![68, 16]);
    assert_eq!(header.other_bytes(), 128);
    assert_eq!(header.tensors[1].shape, vec![32, 2]);
}

#[test]
fn every_truncated_file_is_rejected() {
    let whole = sound().bytes();
    for length in 0..whole.len() {
        assert!(check(&whole[..length]).is_err(), "cut at {length} of {}", whole.len());
    }
}

/// Flaws of the kinds that parsers of this format have had.
#[test]
fn invalid_headers_are_rejected() {
    let huge = u64::MAX.to_le_bytes();
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let tokens = |tokens: &[&str]| {
        let texts = tokens.iter().flat_map(|token| text(token));
        array(8, tokens.len() as u64).into_iter().chain(texts).collect::<Vec<u8>>()
    };
    assert!(Maker::default().entry(VOCABULARY, 9, &tokens(&["a", "", "b", ""])).check().is_ok());
    let corpus = [
        ("duplicate token", Maker::default().entry(VOCABULARY, 9, &tokens(&["a", "b", "a"]))),
        ("vocabulary of numbers", Maker::default().entry(VOCABULARY, 9, &array(4, 0))),
        ("vocabulary that is not an array", Maker::default().entry(VOCABULARY, 4, &[0; 4])),
        ("token longer than any", Maker::default().entry(VOCABULARY, 9, &tokens(&[&"a".repeat(4097)]))),
        ("text longer than the file", Maker::default().entry("k", 8, &huge)),
        ("array of endless numbers", Maker::default().entry("k", 9, &array(4, u64::MAX / 4))),
        ("array of endless texts", Maker::default().entry("k", 9, &array(8, u64::MAX))),
        ("array of arrays", Maker::default().entry("k", 9, &array(9, 1))),
        ("unknown value type", Maker::default().entry("k", 13, &[0; 8])),
        ("duplicate key", Maker::default().entry("k", 7, &[1]).entry("k", 7, &[1])),
        ("alignment zero", Maker::default().entry("general.alignment", 4, &0_u32.to_le_bytes())),
        ("alignment three", Maker::default().entry("general.alignment", 4, &3_u32.to_le_bytes())),
        ("alignment as text", Maker::default().entry("general.alignment", 8, &text("32"))),
        ("no dimensions", Maker::default().tensor("t", &[], 0, 0)),
        ("five dimensions", Maker::default().tensor("t", &[1; 5], 0, 0).data(64)),
        ("an empty side", Maker::default().tensor("t", &[4, 0], 0, 0).data(64)),
        (
            "product wraps to a small number",
            Maker::default().tensor("t", &[1 << 32, 1 << 32, 1, 1], 0, 0).data(64),
        ),
        ("product negative when signed", Maker::default().tensor("t", &[1 << 63], 24, 0).data(64)),
        ("bytes wrap", Maker::default().tensor("t", &[1 << 61, 3], 27, 0).data(64)),
        ("declared size over the file", Maker::default().tensor("t", &[1 << 20], 0, 0).data(64)),
        ("offset beyond the file", Maker::default().tensor("t", &[4], 0, 1 << 40).data(64)),
        ("offset wraps", Maker::default().tensor("t", &[4], 0, u64::MAX - 7).data(64)),
        ("offset not aligned", Maker::default().tensor("t", &[4], 0, 7).data(64)),
        ("overlapping tensors", Maker::default().tensor("a", &[32], 0, 0).tensor("b", &[4], 0, 0).data(256)),
        ("duplicate tensor", Maker::default().tensor("t", &[4], 0, 0).tensor("t", &[4], 0, 32).data(64)),
        ("tensor name too long", Maker::default().tensor(&"n".repeat(64), &[4], 0, 0).data(64)),
        ("removed type", Maker::default().tensor("t", &[32], 4, 0).data(64)),
        ("type out of range", Maker::default().tensor("t", &[32], u32::MAX, 0).data(64)),
        ("row of half a block", Maker::default().tensor("t", &[16, 2], 8, 0).data(64)),
    ];
    for (what, maker) in corpus {
        assert!(maker.check().is_err(), "{what} passes");
    }
    let mut counts = sound().bytes();
    counts[8..16].copy_from_slice(&huge);
    assert!(check(&counts).is_err(), "endless tensors pass");
    assert!(matches!(check(b"GGUF\x01\0\0\0"), Err(GgufError::Version(1))));
    assert!(matches!(check(b"GGJT----"), Err(GgufError::Magic)));
}

#[test]
fn a_sparse_file_of_ten_gigabytes_is_checked_by_its_header() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(
        [&text("k")[..], &9_u32.to_le_bytes(), &8_u32.to_le_bytes(), &(1_u64 << 40).to_le_bytes()].concat(),
    );
    file.write_all(&bytes).expect("write");
    File::set_len(file.as_file(), 10 << 30).expect("a sparse file");
    assert!(matches!(Header::check(file.path()), Err(GgufError::TooMany { .. })));
}

proptest! {
    #[test]
    fn any_change_of_a_byte_is_rejected_or_harmless(at in 0_usize..400, to: u8) {
        let mut bytes = sound().bytes();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(header) = check(&bytes) {
            let end = header.tensors.iter().map(|tensor| tensor.offset + tensor.bytes).max().unwrap_or(0);
            prop_assert!(end <= bytes.len() as u64);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = check(&[b"GGUF\x03\0\0\0", &noise[..]].concat());
    }
}
