//! Values of the script language: what expressions give and variables hold. Knows how pgbench writes them into SQL;
//! knows no expression.

use std::io::Write;

/// What an expression gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Unset,
    Scalar(Scalar),
    /// From the command line or from a query: sent as it is, read as a number when an expression asks for it.
    Text(Box<str>),
}

impl Scalar {
    /// The value as `\if` and CASE see it: nothing is true of NULL, and of numbers 0 is false.
    pub(super) fn truth(self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(b) => b,
            Self::Int(i) => i != 0,
            Self::Double(d) => d != 0.0,
        }
    }

    /// Appends it as it stands in SQL.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let written = match self {
            Self::Null => out.write_all(b"NULL"),
            Self::Bool(b) => write!(out, "{b}"),
            Self::Int(i) => write!(out, "{i}"),
            Self::Double(d) => write!(out, "{}", shortest_g(d)),
        };
        written.expect("writing to memory cannot fail");
    }

    /// A text as an expression reads it: a number, a truth value or null. `None`: it is none of these.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(i) = text.parse() {
            return Some(Self::Int(i));
        }
        match text.to_ascii_lowercase().as_str() {
            "null" => Some(Self::Null),
            "t" | "true" | "yes" | "on" => Some(Self::Bool(true)),
            "f" | "false" | "no" | "off" => Some(Self::Bool(false)),
            // Rust reads more words than that, "infinity" for one.
            lower if lower.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
                lower.parse().ok().map(Self::Double)
            }
            _ => None,
        }
    }
}

/// A number as C's `%.15g` writes it, with PostgreSQL's words for what is no number: that is what pgbench sends.
fn shortest_g(d: f64) -> String {
    const DIGITS: i32 = 15;
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if d == 0.0 {
        return if d.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{d:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("this format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..DIGITS => trimmed(&format!("{d:.*}", (DIGITS - 1 - exponent) as usize)),
        _ => format!("{}e{}{:02}", trimmed(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scalar: Scalar) -> String {
        let mut out = Vec::new();
        scalar.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, expected) in [
            (1024.0, "1024"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.333333333333333"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-300, "-2.5e-300"),
            (std::f64::consts::PI, "3.14159265358979"),
            (f64::INFINITY, "Infinity"),
            (-0.0, "-0"),
        ] {
            assert_eq!(written(Scalar::Double(number)), expected);
        }
        assert_eq!(written(Scalar::Int(i64::MIN)), "-9223372036854775808");
        assert_eq!(written(Scalar::Bool(true)) + &written(Scalar::Null), "trueNULL");
    }

    #[test]
    fn texts_are_read_as_numbers_and_truth_values() {
        assert_eq!(Scalar::read(" 42 "), Some(Scalar::Int(42)));
        assert_eq!(Scalar::read("-1.5e1"), Some(Scalar::Double(-15.0)));
        assert_eq!(Scalar::read("ON"), Some(Scalar::Bool(true)));
        assert_eq!(Scalar::read("null"), Some(Scalar::Null));
        assert_eq!(Scalar::read("infinity"), None);
        assert_eq!(Scalar::read("x"), None);
    }
}
