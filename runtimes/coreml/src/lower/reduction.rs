//! Reductions.

use island_runtimes_kit::error::EngineError;

use super::{
    Table,
    call::{Attr, Call, single},
};
use crate::program::types::Class;

pub(super) const OPERATIONS: Table = &[
    ("reduce_argmax", |call| position(call, "ArgMax")),
    ("reduce_argmin", |call| position(call, "ArgMin")),
    ("reduce_l1_norm", |call| reduce(call, "ReduceL1")),
    ("reduce_l2_norm", |call| reduce(call, "ReduceL2")),
    ("reduce_log_sum", |call| reduce(call, "ReduceLogSum")),
    ("reduce_log_sum_exp", |call| reduce(call, "ReduceLogSumExp")),
    ("reduce_max", |call| reduce(call, "ReduceMax")),
    ("reduce_mean", |call| reduce(call, "ReduceMean")),
    ("reduce_min", |call| reduce(call, "ReduceMin")),
    ("reduce_prod", |call| reduce(call, "ReduceProd")),
    ("reduce_sum", |call| reduce(call, "ReduceSum")),
    ("reduce_sum_square", |call| reduce(call, "ReduceSumSquare")),
];

fn reduce(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let keeps = Attr::Int("keepdims", i64::from(call.flag("keep_dims", false)?));
    // The library has the mean of real numbers only.
    let is_whole_mean = kind == "ReduceMean" && x.class() == Class::Int;
    let name = if is_whole_mean { call.cast(&x, Class::Float) } else { x.name };
    let reduced = match call.ints("axes")? {
        Some(axes) => {
            let axes = call.list(&axes)?;
            call.node(kind, &[&name, &axes], [keeps])
        }
        None => call.node(kind, &[&name], [keeps]),
    };
    single(if is_whole_mean { call.cast_name(&reduced, Class::Int) } else { reduced })
}

fn position(call: &mut Call<'_, '_>, kind: &str) -> Result<Vec<String>, EngineError> {
    let x = call.tensor("x")?;
    let set = [
        Attr::Int("axis", call.int("axis", -1)?),
        Attr::Int("keepdims", i64::from(call.flag("keep_dims", false)?)),
    ];
    single(call.node(kind, &[&x.name], set))
}
