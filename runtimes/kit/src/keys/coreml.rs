//! Metadata of Core ML models, by the format's specification.

use super::{
    Effect::{OneOf, Used},
    Others, Table,
};

/// Notes that authors attach to a model.
pub const NOTES: Table = Table {
    file: "userDefined",
    of: "Core ML models",
    about: "Notes of a model's author, texts by name, in the description of a package or in `metadata.json` of a compiled model.",
    others: Others::Ignored("Core ML reads none of them, and neither is any other used here."),
    keys: &[("com.apple.coreml.model.preview.params", Used)],
};

/// Metadata of a compiled model.
pub const COMPILED: Table = Table {
    file: "metadata.json",
    of: "compiled Core ML models",
    about: "The interface of a model, by function. The description inside a package has the same content.",
    others: Others::Ignored(
        "Other keys describe the model to people and to tools; Core ML does not run by them.",
    ),
    keys: &[
        ("modelType", OneOf(&["{\"name\":\"MLModelType_mlProgram\"}"])),
        ("inputSchema", Used),
        ("outputSchema", Used),
        ("stateSchema", Used),
        ("functions", Used),
        ("userDefinedMetadata", Used),
    ],
};
