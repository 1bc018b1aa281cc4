//! The `[engine]` table of a Cargo: its settings for the container.

use island_protocol::{
    cargo::CargoSpec,
    egress::{MAX_PLACES, Place},
    job::{Failure, FailureCode},
};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of arguments of a command.
const MAX_WORDS: usize = 256;
/// Maximum bytes of all arguments.
const MAX_BYTES: usize = 64 << 10;

/// The table. Unknown keys are errors, so that no other setting of Docker gets through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// The program and its arguments, run without a shell; without it, the image's own entry point.
    pub command: Vec<String>,
    /// Addresses, as `host:port`, to which the program connects.
    pub egress: Vec<Place>,
}

impl EngineConfig {
    /// Parses the table of a Cargo.
    pub fn of(cargo: &CargoSpec) -> Result<Self, Failure> {
        let table = match &cargo.engine {
            Value::Null => Self::default(),
            Value::Object(_) => Self::deserialize(&cargo.engine)
                .map_err(|error| invalid_cargo(format!("read the Cargo's [engine] table: {error}")))?,
            _ => return Err(invalid_cargo("the Cargo's [engine] is not a table")),
        };
        table.check().map(|()| table)
    }

    fn check(&self) -> Result<(), Failure> {
        let bytes: usize = self.command.iter().map(String::len).sum();
        if self.command.len() > MAX_WORDS || bytes > MAX_BYTES || self.egress.len() > MAX_PLACES {
            return Err(invalid_cargo("the Cargo's [engine] table is too long"));
        }
        if self.command.iter().any(|word| word.contains('\0'))
            || self.command.first().is_some_and(String::is_empty)
        {
            return Err(invalid_cargo("the Cargo's command cannot be run: it is empty or contains a NUL"));
        }
        Ok(())
    }
}

/// An invalid Cargo is the job's fault: no Island could run it.
pub(crate) fn invalid_cargo(message: impl Into<String>) -> Failure {
    Failure::of_job(FailureCode::ModelRejected, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(engine: &Value) -> Result<EngineConfig, Failure> {
        let cargo = json!({"slug": "x", "runtime_type": "container", "engine": engine});
        EngineConfig::of(&serde_json::from_value(cargo).expect("a Cargo"))
    }

    #[test]
    fn a_command_is_not_interpreted() {
        let read = table(&json!({"command": ["/bin/sh", "-c", "echo $HOME; *"]})).expect("a table");
        assert_eq!(read.command, ["/bin/sh", "-c", "echo $HOME; *"]);
        assert_eq!(table(&Value::Null).expect("none"), EngineConfig::default());
    }

    #[test]
    fn other_settings_of_docker_are_rejected() {
        for engine in [
            json!({"HostConfig": {"Privileged": true}}),
            json!({"privileged": true}),
            json!({"command": ["x"], "binds": ["/:/host"]}),
            json!({"command": "sh"}),
            json!({"command": [""]}),
            json!({"command": ["a\u{0}b"]}),
            json!({"command": vec!["x"; MAX_WORDS + 1]}),
            json!({"command": ["x".repeat(MAX_BYTES + 1)]}),
            json!({"egress": [1]}),
            json!({"egress": ["example.org"]}),
            json!({"egress": ["127.0.0.1:80"]}),
            json!({"egress": vec!["example.org:80"; MAX_PLACES + 1]}),
            json!([]),
        ] {
            let failure = table(&engine).expect_err("refused");
            assert_eq!(failure.fault, island_protocol::job::Fault::Job, "{engine}");
        }
    }
}
