//! Settings of models that embed or rank, by `sentence-transformers` 5.7.

use super::{
    Effect::{None, OneOf, Only, Used},
    FLAG, Others, Table,
};

/// An entry of the list of modules.
pub const MODULE: Table = Table {
    file: "modules.json",
    of: "",
    about: "Each entry is a step of a model that embeds or ranks, by `sentence-transformers` 5.7. `type` is a class of that library: `Transformer`, `Pooling`, `Dense`, `LayerNorm`, `Normalize` or `Dropout`, or of a model that ranks `Transformer` alone; others are refused.",
    others: Others::Refused,
    keys: &[("type", Used), ("path", Used), ("idx", None), ("name", None), ("kwargs", Only(&["{}", "[]"]))],
};

/// The network of an embedding model.
pub const TRANSFORMER: Table = Table {
    file: "sentence_bert_config.json",
    of: "models that embed",
    about: "How texts are passed to the network. Older versions named the file after the network, `sentence_roberta_config.json` for one; the first that is not empty counts.",
    others: Others::Refused,
    keys: &[
        ("max_seq_length", Used),
        ("do_lower_case", OneOf(FLAG)),
        ("transformer_task", Only(&["\"feature-extraction\""])),
        (
            "modality_config",
            Only(&["{\"text\":{\"method\":\"forward\",\"method_output_name\":\"last_hidden_state\"}}"]),
        ),
        ("module_output_name", Only(&["\"token_embeddings\""])),
        ("processing_kwargs", Only(&["{}"])),
        ("unpad_inputs", None),
        ("model_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("model_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("tokenizer_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("processor_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("config_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("config_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
    ],
};

/// How the vectors of tokens become one.
pub const POOLING: Table = Table {
    file: "N_Pooling/config.json",
    of: "",
    about: "How the vectors of a text's tokens become one.",
    others: Others::Refused,
    keys: &[
        ("pooling_mode", Used),
        ("pooling_mode_cls_token", OneOf(FLAG)),
        ("pooling_mode_max_tokens", OneOf(FLAG)),
        ("pooling_mode_mean_tokens", OneOf(FLAG)),
        ("pooling_mode_mean_sqrt_len_tokens", OneOf(FLAG)),
        ("pooling_mode_weightedmean_tokens", OneOf(FLAG)),
        ("pooling_mode_lasttoken", OneOf(FLAG)),
        ("include_prompt", OneOf(FLAG)),
        // Those of the graph count.
        ("embedding_dimension", None),
        ("word_embedding_dimension", None),
    ],
};

/// A layer after the pooling.
pub const DENSE: Table = Table {
    file: "N_Dense/config.json",
    of: "",
    about: "A layer after the pooling.",
    others: Others::Refused,
    keys: &[
        ("bias", OneOf(FLAG)),
        (
            "activation_function",
            OneOf(&[
                "\"torch.nn.modules.linear.Identity\"",
                "\"torch.nn.modules.activation.Tanh\"",
                "\"torch.nn.modules.activation.ReLU\"",
                "\"torch.nn.modules.activation.Sigmoid\"",
            ]),
        ),
        ("module_input_name", Only(&["\"sentence_embedding\""])),
        ("module_output_name", Only(&["\"sentence_embedding\""])),
        // Those of the weights count.
        ("in_features", None),
        ("out_features", None),
    ],
};

/// Normalization by weights.
pub const LAYER_NORM: Table = Table {
    file: "N_LayerNorm/config.json",
    of: "",
    about: "Normalization of a vector by mean and variance.",
    others: Others::Refused,
    keys: &[("dimension", None)],
};

/// Normalization to length 1.
pub const NORMALIZE: Table = Table {
    file: "N_Normalize/config.json",
    of: "",
    about: "Normalization of a vector to length 1. It has no settings.",
    others: Others::Refused,
    keys: &[],
};

/// Dropout, which is for training.
pub const DROPOUT: Table = Table {
    file: "N_Dropout/config.json",
    of: "",
    about: "Dropout, which only training applies.",
    others: Others::Refused,
    keys: &[("dropout", None)],
};

/// Prompts.
pub const SENTENCE_TRANSFORMERS: Table = Table {
    file: "config_sentence_transformers.json",
    of: "models that embed",
    about: "Prompts and dimensions of an embedding model.",
    others: Others::Refused,
    keys: &[
        ("prompts", Used),
        ("default_prompt_name", Used),
        ("truncate_dim", Used),
        ("model_type", Only(&["\"SentenceTransformer\""])),
        // Who receives vectors compares them.
        ("similarity_fn_name", None),
        ("__version__", None),
    ],
};

/// The network of a model that ranks.
pub const RANKING_TRANSFORMER: Table = Table {
    file: "sentence_bert_config.json",
    of: "models that rank",
    about: "How pairs of texts are passed to the network.",
    others: Others::Refused,
    keys: &[
        ("max_seq_length", Used),
        ("do_lower_case", OneOf(FLAG)),
        ("transformer_task", Only(&["\"sequence-classification\""])),
        ("modality_config", Only(&["{\"text\":{\"method\":\"forward\",\"method_output_name\":\"logits\"}}"])),
        ("module_output_name", Only(&["\"scores\""])),
        ("processing_kwargs", Only(&["{}"])),
        ("unpad_inputs", None),
        ("model_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("model_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("tokenizer_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("processor_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("config_args", Only(&["{}", "{\"trust_remote_code\":true}"])),
        ("config_kwargs", Only(&["{}", "{\"trust_remote_code\":true}"])),
    ],
};

/// Prompts of a model that ranks.
pub const RANKING: Table = Table {
    file: "config_sentence_transformers.json",
    of: "models that rank",
    about: "Prompts before a query: the default one, since a job names none.",
    others: Others::Refused,
    keys: &[
        ("prompts", Used),
        ("default_prompt_name", Used),
        ("model_type", Only(&["\"CrossEncoder\""])),
        // Scores are from 0 to 1 whatever the function is: the order is the same.
        ("activation_fn", None),
        ("__version__", None),
    ],
};
