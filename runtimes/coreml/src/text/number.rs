//! Printed numbers: real ones in hexadecimal, which is exact.

/// A real number.
pub fn real(text: &str) -> Option<f32> {
    let (sign, size) = match text.strip_prefix('-') {
        Some(size) => (-1.0, size),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if size.starts_with(['-', '+']) {
        return None;
    }
    let number = match size {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => match size.strip_prefix("0x").or(size.strip_prefix("0X")) {
            Some(digits) => hexadecimal(digits)?,
            None if size.starts_with(['+', '-']) => return None,
            None => size.parse().ok()?,
        },
    };
    Some((sign * number) as f32)
}

fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok().filter(|exponent| (-4999..=4999).contains(exponent))?;
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && behind.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(behind.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(behind.len()).ok()?.checked_mul(4)?;
    Some(number * 2.0_f64.powi(exponent.saturating_sub(places)))
}

/// An integer.
pub fn whole(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(u64::cast_signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_are_exact() {
        let known =
            [("0x1p+1", 2.0), ("-0x1.8p-1", -0.75), ("0x0p+0", 0.0), ("0x1.99999ap-4", 0.1), ("1e-5", 1e-5)];
        for (text, number) in known {
            assert_eq!(real(text), Some(number), "{text}");
        }
        assert_eq!(real("-inf"), Some(f32::NEG_INFINITY));
        assert!(real("nan").is_some_and(f32::is_nan));
        for text in ["", "-", "0x", "0x1p", "0x1p99999999999", "0x1p-2147483648", "1x", "--1"] {
            assert_eq!(real(text), None, "{text}");
        }
    }
}
