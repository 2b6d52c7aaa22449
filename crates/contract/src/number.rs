//! Exact comparison of JSON values. JSON has one kind of number: 1 and 1.0 are equal, and a float
//! never rounds an integer that it is compared with.

use crate::step_budget::StepBudget;
use serde_json::{Number, Value};
use std::cmp::Ordering;
use std::fmt::Write;

/// Whether two values are equal. The result means nothing if the budget is exhausted.
pub(crate) fn json_equal(one: &Value, other: &Value, budget: &mut StepBudget) -> bool {
    budget.spend_steps(1);
    match (one, other) {
        _ if budget.is_exhausted() => false,
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| json_equal(one, other, budget))
        }
        (Value::Object(one), Value::Object(other)) => {
            let mut equals = |(name, value): (&String, &Value)| {
                budget.spend_text(name);
                other.get(name).is_some_and(|other| json_equal(value, other, budget))
            };
            one.len() == other.len() && one.iter().all(&mut equals)
        }
        (Value::String(one), Value::String(other)) => {
            one.len() == other.len() && {
                budget.spend_text(one);
                one == other
            }
        }
        _ => one == other,
    }
}

pub(crate) fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (as_integer(one), as_integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (_, None) => compare_number(one, other.as_f64().unwrap_or(f64::NAN)),
        (None, _) => compare_number(other, one.as_f64().unwrap_or(f64::NAN)).reverse(),
    }
}

/// Compares without rounding: a float holds no more than 53 bits of an integer.
pub(crate) fn compare_number(number: &Number, bound: f64) -> Ordering {
    match as_integer(number) {
        Some(integer) => {
            let beyond = if bound.fract() == 0.0 { Ordering::Equal } else { Ordering::Less };
            integer.cmp(&(bound.floor() as i128)).then(beyond)
        }
        None => number.as_f64().and_then(|it| it.partial_cmp(&bound)).unwrap_or(Ordering::Equal),
    }
}

pub(crate) fn as_integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

pub(crate) fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Divides the numbers as they are written in decimal, so that 0.3 is a multiple of 0.1.
pub(crate) fn is_multiple_of(number: &Number, divisor: &Number) -> bool {
    let (Some((digits, exponent)), Some((divisor, divisor_exponent))) =
        (decimal(number), decimal(divisor))
    else {
        return false;
    };
    if divisor == 0 || digits == 0 {
        return digits == 0;
    }
    let shift = exponent - divisor_exponent;
    if shift >= 0 {
        return (digits % divisor * power_of_ten(shift, divisor)).is_multiple_of(divisor);
    }
    let scale =
        10u128.checked_pow(shift.unsigned_abs()).and_then(|scale| scale.checked_mul(divisor));
    scale.is_some_and(|divisor| digits.is_multiple_of(divisor))
}

/// A power of ten modulo a divisor, by squaring: a float has exponents of up to 632 here.
fn power_of_ten(mut exponent: i32, divisor: u128) -> u128 {
    // All factors are below the divisor, and so below 2^64.
    let (mut power, mut square) = (1 % divisor, 10 % divisor);
    while exponent > 0 {
        if exponent % 2 == 1 {
            power = power * square % divisor;
        }
        square = square * square % divisor;
        exponent /= 2;
    }
    power
}

/// The digits of a number without its sign, and the exponent of ten that they are multiplied by.
fn decimal(number: &Number) -> Option<(u128, i32)> {
    if let Some(integer) = as_integer(number) {
        return Some((integer.unsigned_abs(), 0));
    }
    // The shortest text that is read as this number, such as 7.5e-3; at most 17 digits.
    let text = format!("{:e}", number.as_f64()?.abs());
    let (mantissa, exponent) = text.split_once('e')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    Some((digits, exponent.parse::<i32>().ok()? - places))
}

/// A text that is the same for values that are equal, and for no others.
pub(crate) fn canonical_text(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in members {
                // Writing to a string cannot fail.
                let _ = write!(text, "{name:?}:");
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            let _ = match float.filter(|float| float.abs() < 2f64.powi(126)) {
                Some(float) => write!(text, "{}", float as i128),
                None => write!(text, "{number}"),
            };
        }
        Value::String(string) => {
            let _ = write!(text, "{string:?}");
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(text, "{value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn number(value: Value) -> Number {
        let Value::Number(number) = value else { panic!("{value}") };
        number
    }

    #[test]
    fn numbers_are_compared_without_rounding() {
        let ordered = [
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(5e-324),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
            json!(18_446_744_073_709_551_616.0),
            json!(1e40),
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (beside, other) in ordered.iter().enumerate() {
                let compared = compare_numbers(&number(one.clone()), &number(other.clone()));
                assert_eq!(compared, at.cmp(&beside), "{one} {other}");
                assert_eq!(canonical_text(one) == canonical_text(other), at == beside);
            }
        }
        for (one, other) in [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (json!([{"a": 1, "b": [2]}]), json!([{"b": [2.0], "a": 1.0}])),
            (json!(4_611_686_018_427_387_904_u64), json!(4.611686018427388e18)),
        ] {
            assert!(json_equal(&one, &other, &mut StepBudget::new()), "{one} {other}");
            assert_eq!(canonical_text(&one), canonical_text(&other));
        }
        for (one, other) in [
            (json!([1]), json!([1, 1])),
            (json!({"a": null}), json!({"b": null})),
            (json!(1), json!(true)),
            (json!("1"), json!(1)),
            (json!(["a", "b"]), json!(["a\",\"b"])),
        ] {
            assert!(!json_equal(&one, &other, &mut StepBudget::new()), "{one} {other}");
            assert_ne!(canonical_text(&one), canonical_text(&other));
        }
    }

    #[test]
    fn multiples_are_those_of_decimal_numbers() {
        for (one, divisor, expected) in [
            (json!(0.3), json!(0.1), true),
            (json!(0.0075), json!(0.0001), true),
            (json!(0.007_51), json!(0.0001), false),
            (json!(19.99), json!(0.01), true),
            (json!(4.5), json!(1.5), true),
            (json!(-6), json!(3), true),
            (json!(-7), json!(3), false),
            (json!(0), json!(5e-324), true),
            (json!(1e308), json!(0.5), true),
            (json!(1e308), json!(0.123456789), false),
            (json!(1e308), json!(5e-324), true),
            (json!(1e308), json!(7e-300), false),
            (json!(1.5e300), json!(7), false),
            (json!(5e-324), json!(1e308), false),
            (json!(u64::MAX), json!(u64::MAX), true),
            (json!(u64::MAX), json!(2), false),
        ] {
            let found = is_multiple_of(&number(one.clone()), &number(divisor.clone()));
            assert_eq!(found, expected, "{one} {divisor}");
        }
    }
}
