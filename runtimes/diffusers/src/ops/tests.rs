//! Each pass against the same layer composed of candle's operations, and functions against the standard library's.

use candle_core::{Device, Tensor};

use super::*;
use crate::noise::{Noise as _, Purpose, Seeded};

fn random(index: usize, shape: &[usize]) -> Tensor {
    let values = Seeded(1).draw(index, Purpose::Start, shape.iter().product());
    Tensor::from_vec(values, shape, &Device::Cpu).expect("a tensor")
}

fn apart(one: &Tensor, other: &Tensor) -> f32 {
    assert_eq!(one.dims(), other.dims());
    let apart = (one - other).and_then(|apart| apart.abs()?.flatten_all()?.max(0)?.to_scalar());
    apart.expect("numbers")
}

#[test]
fn exponential_is_accurate_to_the_last_bits() {
    for at in -8700..8800 {
        let x = at as f32 / 100.0;
        let wanted = f64::from(x).exp();
        assert!((f64::from(math::exp(x)) - wanted).abs() <= wanted * 2.5e-7, "exp({x})");
    }
    assert_eq!(math::exp(0.0), 1.0);
    assert!(math::exp(f32::NAN).is_nan());
    assert!(math::exp(f32::NEG_INFINITY) < 1e-37);
}

#[test]
fn gelu_is_exact() {
    let x =
        Tensor::arange(-12.0_f32, 12.0, &Device::Cpu).expect("numbers").affine(0.37, 0.01).expect("numbers");
    let apart = apart(&Activation::Gelu.of(&x).expect("gelu"), &x.gelu_erf().expect("gelu"));
    assert!(apart < 4e-7, "{apart}");
}

#[test]
fn activations_equal_candles() {
    let x = random(0, &[3, 7, 50]);
    for kind in [Activation::Silu, Activation::Gelu, Activation::QuickGelu] {
        let apart = apart(&kind.of(&x).expect("ours"), &composed::activation(kind, &x).expect("candle's"));
        assert!(apart < 1e-6, "{kind:?}: {apart}");
    }
    assert!(apart(&geglu(&x).expect("ours"), &composed::geglu(&x).expect("candle's")) < 2e-6);
}

#[test]
fn products_equal_candles_for_any_number_of_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    for (rows, columns, depth) in [(3, 333, 700), (333, 3, 700), (257, 257, 33), (1, 1, 1), (0, 5, 4)] {
        let (a, b) = (random(1, &[rows, depth]), random(2, &[depth, columns]));
        let before = random(3, &[rows, columns]);
        let wanted = a.matmul(&b).and_then(|product| product.affine(0.5, 0.0)? + &before).expect("candle's");
        let plain =
            |tensor: &Tensor| tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("numbers");
        let turned = product::turned(&b).expect("turned");
        assert_eq!(plain(&turned), plain(&b.t().and_then(|b| b.contiguous()).expect("candle's")));
        let (a, b, turned) = (plain(&a), plain(&b), plain(&turned));
        let factor = product::Matrix::rows(&a, depth);
        for other in [product::Matrix::rows(&b, columns), product::Matrix::rows(&turned, depth).transposed()]
        {
            let mut out = plain(&before);
            pool.install(|| {
                product::product(&mut out, columns, (rows, columns, depth), factor, other, true, 0.5, true);
            });
            let out = Tensor::from_vec(out, (rows, columns), &Device::Cpu).expect("a tensor");
            assert!(rows == 0 || apart(&out, &wanted) < 1e-4, "{rows} × {columns}: {}", apart(&out, &wanted));
        }
    }
}

#[test]
fn attention_equals_candles() {
    for (rows, others, heads, causal) in
        [(70, 70, 4, false), (70, 70, 4, true), (33, 7, 2, false), (1, 1, 1, true)]
    {
        let (query, key, value) =
            (random(1, &[2, rows, 48]), random(2, &[2, others, 48]), random(3, &[2, others, 48]));
        let ours = attention(&query, &key, &value, heads, causal).expect("ours");
        let theirs = composed::attention(&query, &key, &value, heads, causal).expect("candle's");
        assert!(apart(&ours, &theirs) < 3e-6, "{rows} × {others}, {heads} heads: {}", apart(&ours, &theirs));
    }
}
