//! Attention, by the device's own operation or composed of products.

use island_runtimes_graph::onnx::Attr;

use super::{Lowering, Value};
use crate::{compute::Rows, weights::Element};

/// Added to scores that do not count: small enough that nothing remains of them, and in the range of f16.
const UNSEEN: f32 = -30_000.0;
/// Maximum width of a head for the device's own operation: devices fall back to others beyond it.
const MAX_FUSED_WIDTH: usize = 256;
/// ONNX Runtime's own operations.
pub(super) const OWN_DOMAIN: &str = "com.microsoft";

/// Rows that attend.
pub(super) fn lower(graph: &mut Lowering<'_>, rows: &Rows<'_, Value>) -> Value {
    let is_widened = rows.wide && graph.options.element == Element::F16;
    let cast = |graph: &mut Lowering<'_>, x: &Value| {
        if is_widened { graph.cast(x, Element::F32) } else { x.clone() }
    };
    let (query, key, value) = (cast(graph, rows.query), cast(graph, rows.key), cast(graph, rows.value));
    let element = if is_widened { Element::F32 } else { graph.options.element };
    let is_fused = graph.options.fused_attention && rows.width / rows.heads <= MAX_FUSED_WIDTH;
    let seen = if is_fused {
        fused(graph, rows, [&query, &key, &value], element)
    } else {
        composed(graph, rows, [&query, &key, &value], element)
    };
    if is_widened { graph.cast(&seen, Element::F16) } else { seen }
}

fn fused(graph: &mut Lowering<'_>, rows: &Rows<'_, Value>, parts: [&Value; 3], element: Element) -> Value {
    let mut inputs = parts.map(|part| graph.reshape_batch(part, &[-1, rows.width as i64])).to_vec();
    if rows.causal {
        let absent = Value("".into());
        inputs.extend([absent.clone(), absent, unseen(graph, element)]);
    }
    let heads = vec![Attr::Int("num_heads", rows.heads as i64)];
    let inputs: Vec<&Value> = inputs.iter().collect();
    let seen = graph.nodes_of(OWN_DOMAIN, "MultiHeadAttention", &inputs, heads, 1).remove(0);
    graph.flatten(&seen)
}

fn composed(
    graph: &mut Lowering<'_>,
    rows: &Rows<'_, Value>,
    [query, key, value]: [&Value; 3],
    element: Element,
) -> Value {
    let width = rows.width / rows.heads;
    let heads = [-1, rows.heads as i64, width as i64];
    let split = |graph: &mut Lowering<'_>, x: &Value, order: &[i64]| {
        let by_head = graph.reshape_batch(x, &heads);
        graph.transpose(&by_head, order)
    };
    let query = split(graph, query, &[0, 2, 1, 3]);
    let key = split(graph, key, &[0, 2, 3, 1]);
    let value = split(graph, value, &[0, 2, 1, 3]);
    // Scaled before the product, whose sums could exceed the range of f16.
    let factor = graph.numbers_as(element, 1.0 / (width as f32).sqrt(), &[]);
    let query = graph.binary("Mul", &query, &factor);
    let pieces = graph.options.pieces;
    let queries = if pieces == 1 || rows.causal {
        vec![query]
    } else {
        let attributes = vec![Attr::Int("axis", 2), Attr::Int("num_outputs", pieces as i64)];
        graph.nodes_of("", "Split", &[&query], attributes, pieces)
    };
    let seen = queries.iter().map(|query| {
        let mut scores = graph.binary("MatMul", query, &key);
        if rows.causal {
            let unseen = unseen(graph, element);
            scores = graph.binary("Add", &scores, &unseen);
        }
        let shares = graph.node("Softmax", &[&scores], vec![Attr::Int("axis", -1)]);
        graph.binary("MatMul", &shares, &value)
    });
    let seen: Vec<Value> = seen.collect();
    let seen = graph.join_all(seen, 2);
    let seen = graph.transpose(&seen, &[0, 2, 1, 3]);
    graph.flatten(&seen)
}

/// What is added to the scores of a causal attention, `[1, 1, rows, rows]`.
fn unseen(graph: &mut Lowering<'_>, element: Element) -> Value {
    let count = graph.count;
    let marks = (0..count * count).map(|at| if at % count > at / count { UNSEEN } else { 0.0 });
    graph.constant(element, marks, &[1, 1, count, count])
}
