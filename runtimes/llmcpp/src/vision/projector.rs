//! The file of a projector: what it is for, and whether llama.cpp can compute with its numbers. For some it ends the
//! process, and with it all jobs of the worker, at the first picture or sound.

use island_protocol::job::Failure;

use super::limits::MAX_RATIO;
use crate::{
    gguf::{Header, Value},
    model::rejected,
};

/// Frames of half a minute of sound, which a projector computes at once.
const FRAMES: u64 = 1_500;

/// Maximum number of tokens of a picture of Gemma 4's.
const OF_GEMMA_4: u64 = 280;

/// Patches in a row that the projectors of Gemma 3 and Gemma 4 join unless they state another number.
const JOINED_BY_GEMMA_3: u64 = 4;
const JOINED_BY_GEMMA_4: u64 = 3;

/// The number of patches in a row that are joined, in the projectors of Gemma.
const SCALE: &str = "clip.vision.projector.scale_factor";

/// The table of positions of a picture's patches: one for each column and one for each row.
const POSITIONS: &str = "v.position_embd.weight";

/// llama.cpp's name for what a projector does with pictures (`vision`) or sounds (`audio`).
fn kind<'header>(projector: &'header Header, medium: &str) -> Option<&'header str> {
    let of_medium = || projector.entry(&format!("clip.{medium}.projector_type"));
    match projector.entry("clip.projector_type").or_else(of_medium)? {
        Value::Text(kind) => Some(kind),
        _ => None,
    }
}

fn number(projector: &Header, key: &str) -> Option<u64> {
    match projector.entry(key) {
        Some(&Value::Unsigned(number)) => Some(number),
        _ => None,
    }
}

/// Maximum number of tokens of a picture; -1 for that of the model. Gemma 4's pictures have the number that is the
/// default of its authors' library, where llama.cpp gives large ones four times as many: the larger models must read a
/// picture in one batch, which has fewer. All of them may be in one row, for which there must be positions.
pub(super) fn most_tokens(projector: &Header) -> i32 {
    match kind(projector, "vision") {
        Some("gemma4v" | "gemma4uv") => {
            longest_row(projector).map_or(OF_GEMMA_4, |row| row.min(OF_GEMMA_4)) as i32
        }
        _ => -1,
    }
}

/// Number of embeddings in a row or a column of a picture for which the table of Gemma 4's projectors has positions;
/// `None` for other projectors. llama.cpp ends the process where it has none.
fn longest_row(projector: &Header) -> Option<u64> {
    // The smaller models join patches after each has got its position.
    let patches = match kind(projector, "vision")? {
        "gemma4v" => number(projector, SCALE).unwrap_or(JOINED_BY_GEMMA_4),
        "gemma4uv" => 1,
        _ => return None,
    };
    let table = projector.tensors.iter().find(|tensor| tensor.name == POSITIONS)?;
    table.shape.get(1)?.checked_div(patches)
}

/// Refuses a projector for whose numbers llama.cpp ends the process at the first picture or sound.
pub(super) fn check(projector: &Header) -> Result<(), Failure> {
    check_stacking(projector)?;
    check_merging(projector)?;
    check_pooling(projector)?;
    check_positions(projector)
}

/// Checks the number of frames of a sound that are joined.
fn check_stacking(projector: &Header) -> Result<(), Failure> {
    let Some(kind) = kind(projector, "audio") else { return Ok(()) };
    let Some(factor) = number(projector, "clip.audio.projector.stack_factor") else { return Ok(()) };
    let Some((computed, counted)) = embeddings(kind, factor) else { return Ok(()) };
    if factor == 0 || computed != counted {
        let counts = format!("it would compute {computed} embeddings for half a minute and count {counted}");
        return Err(unusable(kind, &format!("joins {factor} frames: {counts}")));
    }
    Ok(())
}

/// The numbers of embeddings that llama.cpp computes for half a minute of sound, and that it counts, for the types of
/// projectors that join `factor` frames; `None` for other types. It computes one for the last, shorter group of
/// frames, and does not count it. Voxtral's frames are halved before they are joined, which the model's authors do
/// not do (llama.cpp's issue 25496). GLM's have one embedding before and one after them.
fn embeddings(kind: &str, factor: u64) -> Option<(u64, u64)> {
    let divisor = factor.max(1);
    let halved = match kind {
        "ultravox" | "meralion" => 1,
        "voxtral" => 2,
        "glma" => return Some((FRAMES.div_ceil(divisor) + 2, FRAMES / divisor + 2)),
        _ => return None,
    };
    Some(((FRAMES / halved).div_ceil(divisor), (2 * FRAMES).div_ceil(divisor) / 2 / halved))
}

/// Checks the number of patches of a picture that are joined where llama.cpp joins 2 × 2 whatever the projector
/// states: with 1 × 1 it writes positions beyond the end of their memory.
fn check_merging(projector: &Header) -> Result<(), Failure> {
    let Some(kind) = kind(projector, "vision") else { return Ok(()) };
    let joins_four = matches!(
        kind,
        "qwen2vl_merger" | "qwen2.5vl_merger" | "qwen2.5o" | "qwen3vl_merger" | "ling3vl" | "glm4v" | "glm5v"
    );
    match number(projector, "clip.vision.spatial_merge_size") {
        Some(side) if joins_four && side != 2 => {
            Err(unusable(kind, &format!("joins {side} × {side} patches: it would join 2 × 2")))
        }
        _ => Ok(()),
    }
}

/// Checks the number of patches of a picture that Gemma 3's projectors join.
fn check_pooling(projector: &Header) -> Result<(), Failure> {
    let kind = kind(projector, "vision").filter(|&kind| kind == "gemma3");
    let size = number(projector, "clip.vision.image_size");
    let patch = number(projector, "clip.vision.patch_size");
    let (Some(kind), Some(size), Some(patch)) = (kind, size, patch) else { return Ok(()) };
    let side = number(projector, SCALE).unwrap_or(JOINED_BY_GEMMA_3);
    let Some((computed, counted)) = pooled(size, patch, side) else { return Ok(()) };
    if computed == 0 || computed != counted {
        let counts = format!("it would compute {computed} embeddings for a picture and count {counted}");
        let joined = format!("joins {side} × {side} of the patches of {patch} pixels in {size}");
        return Err(unusable(kind, &format!("{joined}: {counts}")));
    }
    Ok(())
}

/// The numbers of embeddings that llama.cpp computes for a square picture, and that it counts, where `side` × `side`
/// patches are one. It computes none for the patches that remain at the ends of rows and columns, and counts them.
fn pooled(size: u64, patch: u64, side: u64) -> Option<(u64, u64)> {
    let patches = size.checked_div(patch)?;
    let joined = patches.checked_div(side)?;
    let counted = patches.saturating_mul(patches).checked_div(side.saturating_mul(side))?;
    Some((joined.saturating_mul(joined), counted))
}

/// Checks the number of positions of Gemma 4's projectors. A picture with as many embeddings as there are positions has
/// no longer row if that number is at least the ratio of its sides.
fn check_positions(projector: &Header) -> Result<(), Failure> {
    let (Some(kind), Some(row)) = (kind(projector, "vision"), longest_row(projector)) else { return Ok(()) };
    if row < u64::from(MAX_RATIO) {
        let limit = format!("rows of pictures have up to {MAX_RATIO}");
        return Err(unusable(kind, &format!("has positions for {row} embeddings in a row: {limit}")));
    }
    Ok(())
}

fn unusable(kind: &str, why: &str) -> Failure {
    rejected(&format!("llama.cpp cannot use a projector of the type {kind} that {why}"))
}

#[cfg(test)]
mod tests {
    use island_protocol::job::FailureCode;

    use super::*;
    use crate::gguf::Tensor;

    fn projector(kind: &str, numbers: &[(&str, u64)]) -> Header {
        let kind = ("clip.projector_type".to_owned(), Value::Text(kind.to_owned()));
        let numbers = numbers.iter().map(|&(key, number)| (key.to_owned(), Value::Unsigned(number)));
        Header { entries: std::iter::once(kind).chain(numbers).collect(), tensors: Vec::new() }
    }

    #[test]
    fn projectors_for_which_llama_cpp_counts_wrongly_are_known() {
        for (kind, factor, agree) in [
            ("ultravox", 4, true),
            ("ultravox", 8, false),
            ("voxtral", 4, false),
            ("voxtral", 5, true),
            ("meralion", 15, true),
            ("glma", 4, true),
            ("glma", 8, false),
        ] {
            let (computed, counted) = embeddings(kind, factor).expect("a type that joins frames");
            assert_eq!(computed == counted, agree, "{kind} {factor}: {computed} {counted}");
        }
        assert_eq!(embeddings("gemma4a", 4), None);
    }

    #[test]
    fn projectors_whose_numbers_end_llama_cpp_are_refused() {
        const STACK: &str = "clip.audio.projector.stack_factor";
        const MERGE: &str = "clip.vision.spatial_merge_size";
        let gemma = |size: u64, patch: u64, side: u64| {
            let sizes = [("clip.vision.image_size", size), ("clip.vision.patch_size", patch)];
            projector("gemma3", &[&sizes[..], &[(SCALE, side)]].concat())
        };
        for usable in [
            projector("ultravox", &[(STACK, 4)]),
            projector("qwen3vl_merger", &[(MERGE, 2)]),
            projector("qwen3vl_merger", &[]),
            // Pixtral's first projectors join none, and llama.cpp computes with what they state.
            projector("pixtral", &[(MERGE, 1)]),
            gemma(896, 14, 4),
            projector("gemma3", &[("clip.vision.image_size", 896), ("clip.vision.patch_size", 14)]),
        ] {
            assert!(check(&usable).is_ok(), "{usable:?}");
        }
        for (unusable, problem) in [
            (projector("glma", &[(STACK, 0)]), "the type glma that joins 0 frames"),
            (projector("qwen2vl_merger", &[(MERGE, 1)]), "joins 1 × 1 patches: it would join 2 × 2"),
            (projector("qwen3vl_merger", &[(MERGE, 3)]), "joins 3 × 3 patches: it would join 2 × 2"),
            (gemma(910, 14, 4), "compute 256 embeddings for a picture and count 264"),
            (gemma(28, 14, 4), "compute 0 embeddings for a picture and count 0"),
        ] {
            let failure = check(&unusable).expect_err(problem);
            assert_eq!(failure.code, FailureCode::ModelRejected);
            assert!(failure.message.contains(problem), "{failure:?}");
        }
    }

    #[test]
    fn a_row_of_a_picture_has_no_more_tokens_than_positions() {
        for (kind, positions, most) in [
            ("gemma4uv", 1_120, Some(280)),
            ("gemma4uv", 256, Some(256)),
            ("gemma4uv", 199, None),
            ("gemma4v", 10_240, Some(280)),
            // Three patches are one token.
            ("gemma4v", 600, Some(200)),
            ("gemma4v", 599, None),
            ("gemma3", 4_096, Some(-1)),
        ] {
            let mut projector = projector(kind, &[]);
            let shape = vec![32, positions, 2];
            projector.tensors = vec![Tensor { name: POSITIONS.to_owned(), shape, offset: 0, bytes: 0 }];
            let found = check(&projector).map(|()| most_tokens(&projector));
            assert_eq!(found.ok(), most, "{kind} {positions}");
        }
    }
}
