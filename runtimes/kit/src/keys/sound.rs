//! `preprocessor_config.json` of models that read sound, by `transformers` 4.57.

use super::{
    Effect::{None, OneOf, Only, Used},
    FLAG, Others, Table,
};

/// How sound becomes the input of a graph.
pub const FEATURE_EXTRACTOR: Table = Table {
    file: "preprocessor_config.json",
    of: "models that read or make sound",
    about: "How sound becomes the input of a graph, by `transformers` 4.57.",
    others: Others::Refused,
    keys: &[
        (
            "feature_extractor_type",
            OneOf(&[
                "\"WhisperFeatureExtractor\"",
                "\"Wav2Vec2FeatureExtractor\"",
                "\"SpeechT5FeatureExtractor\"",
            ]),
        ),
        ("sampling_rate", Used),
        ("feature_size", Used),
        ("hop_length", Used),
        ("n_fft", Used),
        ("chunk_length", Used),
        ("do_normalize", OneOf(FLAG)),
        ("padding_value", Only(&["0"])),
        ("padding_side", Only(&["\"right\""])),
        ("dither", Only(&["0"])),
        // One sound is read at a time, so nothing is masked.
        ("return_attention_mask", None),
        // Follow from the other keys; the reference computes them anew.
        ("n_samples", None),
        ("nb_max_frames", None),
        ("mel_filters", None),
        // Of spectrograms as targets of training.
        ("num_mel_bins", None),
        ("win_length", None),
        ("win_function", None),
        ("frame_signal_scale", None),
        ("fmin", None),
        ("fmax", None),
        ("mel_floor", None),
        ("reduction_factor", None),
        ("processor_class", None),
        ("_processor_class", None),
        ("auto_map", None),
        ("feature_extractor_class", None),
        ("tokenizer_class", None),
        ("return_tensors", None),
        ("transformers_version", None),
        ("_name_or_path", None),
        ("_commit_hash", None),
    ],
};
