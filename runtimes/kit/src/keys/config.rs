//! `config.json`, by `transformers` 4.57.

use super::{
    Effect::{None, OneOf, Used},
    Others, Table,
};

/// What decides on answers outside a graph. Where `generation_config.json` is absent, its keys count here, too.
pub const CONFIG: Table = Table {
    file: "config.json",
    of: "",
    about: "The model. Where there is no `generation_config.json`, the keys of that file are read here, with the same effect.",
    others: Others::Ignored("Other keys describe the network, which the graph contains."),
    keys: &[
        ("model_type", Used),
        ("attention_type", Used),
        ("id2label", Used),
        ("label2id", Used),
        ("num_labels", Used),
        (
            "problem_type",
            OneOf(&["\"regression\"", "\"single_label_classification\"", "\"multi_label_classification\""]),
        ),
        ("prefix", Used),
        ("task_specific_params", Used),
        ("tokenizer_class", Used),
        ("pad_token_id", Used),
        ("max_position_embeddings", Used),
        ("n_positions", Used),
        ("decoder", Used),
        ("conv_stride", Used),
        ("sampling_rate", Used),
        ("max_target_positions", Used),
        ("median_filter_width", Used),
        ("num_mel_bins", Used),
        ("reduction_factor", Used),
        ("max_speech_positions", Used),
        ("max_text_positions", Used),
        ("speaker_embedding_dim", Used),
        // The function of a model that ranks: scores are from 0 to 1 whatever it is, and the order is the same.
        ("sentence_transformers", None),
        ("sbert_ce_default_activation_function", None),
    ],
};
