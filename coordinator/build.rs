//! Compiles anew when a migration is added: the macro that embeds them sees only those that were there.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
