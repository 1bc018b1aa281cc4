//! `gliner_config.json`, by `gliner` 0.2.

use super::{
    Effect::{OneOf, Only, Used},
    Others, Table,
};

/// How a text and the types of its entities become the input of a graph.
pub const GLINER: Table = Table {
    file: "gliner_config.json",
    of: "",
    about: "How a text and the types of its entities become the input of a graph, by `gliner` 0.2.",
    others: Others::Ignored("Other keys describe the network, which the graph contains, or its training."),
    keys: &[
        ("max_width", Used),
        ("max_len", Used),
        ("ent_token", Used),
        ("sep_token", Used),
        (
            "span_mode",
            OneOf(&[
                "\"markerV0\"",
                "\"markerV1\"",
                "\"marker\"",
                "\"query\"",
                "\"mlp\"",
                "\"cat\"",
                "\"conv_conv\"",
                "\"conv_max\"",
                "\"conv_mean\"",
                "\"conv_sum\"",
                "\"conv_share\"",
            ]),
        ),
        ("words_splitter_type", OneOf(&["\"whitespace\""])),
        ("subtoken_pooling", Only(&["\"first\""])),
        ("labels_encoder", Only(&[])),
        ("represent_spans", Only(&["false"])),
        ("precomputed_prompts_mode", Only(&["false"])),
        ("id_to_classes", Only(&[])),
    ],
};
