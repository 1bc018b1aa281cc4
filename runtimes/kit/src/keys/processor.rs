//! `processor_config.json`, by `transformers` 4.57.

use super::{
    Effect::{None, OneOf},
    Others, Table,
};

/// The pair of a tokenizer and the processor of images or sound. Newer versions keep the settings of both in it; those are refused, since
/// the files that are read would lack them.
pub const PROCESSOR: Table = Table {
    file: "processor_config.json",
    of: "",
    about: "Which classes a processor consists of, by `transformers` 4.57.",
    others: Others::Refused,
    keys: &[
        (
            "processor_class",
            OneOf(&[
                "\"CLIPProcessor\"",
                "\"DonutProcessor\"",
                "\"MCTCTProcessor\"",
                "\"NougatProcessor\"",
                "\"SamProcessor\"",
                "\"SpeechT5Processor\"",
                "\"TrOCRProcessor\"",
                "\"VisionTextDualEncoderProcessor\"",
                "\"Wav2Vec2BertProcessor\"",
                "\"Wav2Vec2Processor\"",
                "\"Wav2Vec2ProcessorWithLM\"",
                "\"WhisperProcessor\"",
            ]),
        ),
        ("auto_map", None),
        ("transformers_version", None),
    ],
};
