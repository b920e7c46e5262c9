//! What expressions are worth: integers of 64 bits whose overflow is an error, doubles, truth values and NULL, as
//! pgbench's manual describes them. Knows no syntax.

use super::{
    expression::{Expression, Function},
    names::VarId,
    value::{Scalar, Value},
};
use crate::random::{MIN_GAUSSIAN, Random, ZIPFIAN, permute};

/// Why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A variable that was never set.
    Undefined(VarId),
    Because(&'static str),
}

type Evaluated = Result<Scalar, Failure>;

/// What an expression may look at and change.
pub(super) struct Scope<'w> {
    pub(super) values: &'w [Value],
    pub(super) random: &'w mut Random,
}

/// The value of an expression.
///
/// # Errors
/// Overflow, division by zero, a value of the wrong type, a variable that is not set.
pub(super) fn evaluate(expression: &Expression, scope: &mut Scope<'_>) -> Evaluated {
    match expression {
        Expression::Constant(scalar) => Ok(*scalar),
        Expression::Variable(id) => match &scope.values[id.index()] {
            Value::Unset => Err(Failure::Undefined(*id)),
            Value::Scalar(scalar) => Ok(*scalar),
            Value::Text(text) => Scalar::read(text).ok_or(Failure::Because("a text is used as a number")),
        },
        Expression::Not(inner) => match evaluate(inner, scope)? {
            Scalar::Null => Ok(Scalar::Null),
            value => Ok(Scalar::Bool(!boolean(value)?)),
        },
        Expression::And(operands) => joined(operands, false, scope),
        Expression::Or(operands) => joined(operands, true, scope),
        Expression::Is(inner, wanted, negated) => {
            let value = evaluate(inner, scope)?;
            Ok(Scalar::Bool((value == *wanted) != *negated))
        }
        Expression::Case(branches, otherwise) => {
            for (condition, result) in branches {
                if evaluate(condition, scope)?.truth() {
                    return evaluate(result, scope);
                }
            }
            evaluate(otherwise, scope)
        }
        Expression::Call(function, arguments) => call(*function, arguments, scope),
    }
}

/// AND and OR: the second operand is looked at only if the first leaves it open. `decisive`: the value that settles it.
fn joined(operands: &[Expression; 2], decisive: bool, scope: &mut Scope<'_>) -> Evaluated {
    let first = evaluate(&operands[0], scope)?;
    if first == Scalar::Null {
        return Ok(Scalar::Null);
    }
    if boolean(first)? == decisive {
        return Ok(Scalar::Bool(decisive));
    }
    match evaluate(&operands[1], scope)? {
        Scalar::Null => Ok(Scalar::Null),
        second => Ok(Scalar::Bool(boolean(second)?)),
    }
}

fn call(function: Function, arguments: &[Expression], scope: &mut Scope<'_>) -> Evaluated {
    if matches!(function, Function::Greatest | Function::Least) {
        return extreme(function, arguments, scope);
    }
    let mut values = [Scalar::Int(0); 3];
    let mut null = false;
    for (value, argument) in values.iter_mut().zip(arguments) {
        *value = evaluate(argument, scope)?;
        null |= *value == Scalar::Null;
    }
    if null {
        return Ok(Scalar::Null);
    }
    use Function::*;
    let [a, b, c] = values;
    match function {
        Add | Subtract | Multiply | Divide | Equal | Different | Less | LessOrEqual
            if matches!(a, Scalar::Double(_)) || matches!(b, Scalar::Double(_)) =>
        {
            Ok(double_operation(function, double(a)?, double(b)?))
        }
        Add | Subtract | Multiply | Divide | Modulo | Equal | Different | Less | LessOrEqual | BitAnd | BitOr
        | BitXor | ShiftLeft | ShiftRight => integer_operation(function, integer(a)?, integer(b)?),
        Absolute => match a {
            Scalar::Double(d) => Ok(Scalar::Double(d.abs())),
            other => integer(other)?.checked_abs().map(Scalar::Int).ok_or(OUT_OF_RANGE),
        },
        Int => Ok(Scalar::Int(integer(a)?)),
        Double => Ok(Scalar::Double(double(a)?)),
        Exp => Ok(Scalar::Double(double(a)?.exp())),
        Ln => Ok(Scalar::Double(double(a)?.ln())),
        Sqrt => Ok(Scalar::Double(double(a)?.sqrt())),
        Power => Ok(Scalar::Double(double(a)?.powf(double(b)?))),
        Pi => Ok(Scalar::Double(std::f64::consts::PI)),
        HashFnv1a => Ok(Scalar::Int(hash_fnv1a(integer(a)?, integer(b)?))),
        HashMurmur2 => Ok(Scalar::Int(hash_murmur2(integer(a)?, integer(b)?))),
        Permute => match integer(b)? {
            size @ 1.. => Ok(Scalar::Int(permute(integer(a)?, size, integer(c)?))),
            _ => Err(Failure::Because("permute needs a size above 0")),
        },
        Random => draw(function, a, b, Scalar::Double(0.0), scope),
        RandomExponential | RandomGaussian | RandomZipfian => draw(function, a, b, c, scope),
        Greatest | Least => unreachable!("these have any number of arguments"),
    }
}

fn extreme(function: Function, arguments: &[Expression], scope: &mut Scope<'_>) -> Evaluated {
    let mut best: Option<Scalar> = None;
    let mut null = false;
    for argument in arguments {
        let value = evaluate(argument, scope)?;
        if value == Scalar::Null {
            null = true;
            continue;
        }
        best = Some(match (best, value) {
            (None, Scalar::Double(_)) => value,
            (None, other) => Scalar::Int(integer(other)?),
            (Some(Scalar::Int(x)), Scalar::Int(y)) => {
                Scalar::Int(if function == Function::Greatest { x.max(y) } else { x.min(y) })
            }
            (Some(x), y) => {
                let (x, y) = (double(x)?, double(y)?);
                Scalar::Double(if function == Function::Greatest { x.max(y) } else { x.min(y) })
            }
        });
    }
    match best {
        Some(value) if !null => Ok(value),
        _ => Ok(Scalar::Null),
    }
}

const OUT_OF_RANGE: Failure = Failure::Because("integer out of range");
const DIVISION_BY_ZERO: Failure = Failure::Because("division by zero");

fn double_operation(function: Function, a: f64, b: f64) -> Scalar {
    match function {
        Function::Add => Scalar::Double(a + b),
        Function::Subtract => Scalar::Double(a - b),
        Function::Multiply => Scalar::Double(a * b),
        Function::Divide => Scalar::Double(a / b),
        Function::Equal => Scalar::Bool(a == b),
        Function::Different => Scalar::Bool(a != b),
        Function::Less => Scalar::Bool(a < b),
        Function::LessOrEqual => Scalar::Bool(a <= b),
        other => unreachable!("{other:?} is for integers"),
    }
}

fn integer_operation(function: Function, a: i64, b: i64) -> Evaluated {
    use Function::*;
    let checked = |result: Option<i64>| result.map(Scalar::Int).ok_or(OUT_OF_RANGE);
    match function {
        Add => checked(a.checked_add(b)),
        Subtract => checked(a.checked_sub(b)),
        Multiply => checked(a.checked_mul(b)),
        Divide | Modulo if b == 0 => Err(DIVISION_BY_ZERO),
        Divide => checked(a.checked_div(b)),
        // Wrapping: the least integer divided by -1 leaves nothing, though its quotient is out of range.
        Modulo => Ok(Scalar::Int(a.wrapping_rem(b))),
        Equal => Ok(Scalar::Bool(a == b)),
        Different => Ok(Scalar::Bool(a != b)),
        Less => Ok(Scalar::Bool(a < b)),
        LessOrEqual => Ok(Scalar::Bool(a <= b)),
        BitAnd => Ok(Scalar::Int(a & b)),
        BitOr => Ok(Scalar::Int(a | b)),
        BitXor => Ok(Scalar::Int(a ^ b)),
        // As processors do it: the distance modulo 64.
        ShiftLeft => Ok(Scalar::Int(a.wrapping_shl(b as u32))),
        ShiftRight => Ok(Scalar::Int(a.wrapping_shr(b as u32))),
        other => unreachable!("{other:?} is no operator"),
    }
}

fn draw(function: Function, min: Scalar, max: Scalar, parameter: Scalar, scope: &mut Scope<'_>) -> Evaluated {
    let (min, max, parameter) = (integer(min)?, integer(max)?, double(parameter)?);
    if min > max {
        return Err(Failure::Because("empty range given to random"));
    }
    if max.checked_sub(min).and_then(|range| range.checked_add(1)).is_none() {
        return Err(Failure::Because("random range is too large"));
    }
    let random = &mut *scope.random;
    Ok(Scalar::Int(match function {
        Function::Random => random.uniform(min, max),
        Function::RandomExponential if parameter > 0.0 => random.exponential(min, max, parameter),
        Function::RandomExponential => return Err(Failure::Because("random_exponential needs a parameter above 0")),
        Function::RandomGaussian if parameter >= MIN_GAUSSIAN => random.gaussian(min, max, parameter),
        Function::RandomGaussian => return Err(Failure::Because("random_gaussian needs a parameter of at least 2")),
        Function::RandomZipfian if ZIPFIAN.contains(&parameter) => random.zipfian(min, max, parameter),
        Function::RandomZipfian => {
            return Err(Failure::Because("random_zipfian needs a parameter from 1.001 to 1000"));
        }
        other => unreachable!("{other:?} is not by chance"),
    }))
}

/// Fowler, Noll and Vo's hash 1a of 64 bits over the number's eight bytes, the lowest first; the seed is mixed into its
/// offset.
fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed as u64;
    for byte in value.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash as i64
}

/// Appleby's MurmurHash2 of 64 bits (64A) over the number's eight bytes.
fn hash_murmur2(value: i64, seed: i64) -> i64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut k = (value as u64).wrapping_mul(M);
    k = (k ^ (k >> 47)).wrapping_mul(M);
    let mut hash = ((seed as u64 ^ M.wrapping_mul(8)) ^ k).wrapping_mul(M);
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    (hash ^ (hash >> 47)) as i64
}

fn boolean(value: Scalar) -> Result<bool, Failure> {
    match value {
        Scalar::Bool(b) => Ok(b),
        _ => Err(Failure::Because("a number is used as a truth value")),
    }
}

fn integer(value: Scalar) -> Result<i64, Failure> {
    match value {
        Scalar::Int(i) => Ok(i),
        Scalar::Double(d) => {
            let rounded = d.round_ties_even();
            // 2^63 as a double is exact, and the first that does not fit.
            match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                true => Ok(rounded as i64),
                false => Err(Failure::Because("a double does not fit into an integer")),
            }
        }
        Scalar::Bool(_) => Err(Failure::Because("a truth value is used as a number")),
        Scalar::Null => Err(Failure::Because("NULL is used as a number")),
    }
}

fn double(value: Scalar) -> Result<f64, Failure> {
    match value {
        Scalar::Double(d) => Ok(d),
        other => integer(other).map(|i| i as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{expression::parse, names::Names};
    use proptest::prelude::*;

    fn value(text: &str) -> Evaluated {
        let mut names = Names::new();
        let expression = parse(text, &mut names).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        let mut values = vec![Value::Unset; names.len()];
        values[Names::DEFAULT_SEED.index()] = Value::Scalar(Scalar::Int(1));
        evaluate(&expression, &mut Scope { values: &values, random: &mut Random::new(1, 1) })
    }

    fn int(text: &str) -> i64 {
        match value(text) {
            Ok(Scalar::Int(i)) => i,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn operators_bind_as_the_manual_says() {
        for (text, expected) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("10 - 3 - 2", 5),
            ("-7 / 2", -3),
            ("-7 % 3", -1),
            ("7 % -3", 1),
            ("- 2 * -3", 6),
            ("1 << 3 + 1", 16),
            ("6 & 3 | 8", 10),
            ("~5", -6),
            ("5 # 1", 4),
            ("case when 1 > 2 then 1 when 2 >= 2 then 2 else 3 end", 2),
            ("CASE WHEN null THEN 1 ELSE Abs(-4) END", 4),
            ("case when not 1 = 2 and 3 <> 4 or false then 1 end", 1),
            ("int(5.4 + 3.8)", 9),
            ("int(2.5)", 2),
            ("greatest(5, 4, 3, 2)", 5),
            ("least(5, -4)", -4),
            ("mod(54, 32)", 22),
            ("-9223372036854775808", i64::MIN),
            ("-9223372036854775808 % -1", 0),
        ] {
            assert_eq!(int(text), expected, "{text}");
        }
    }

    #[test]
    fn doubles_are_contagious_and_null_too() {
        assert_eq!(value("5 * 1.5"), Ok(Scalar::Double(7.5)));
        assert_eq!(value("pow(2.0, 10)"), Ok(Scalar::Double(1024.0)));
        assert_eq!(value("greatest(5, 4.0, 3)"), Ok(Scalar::Double(5.0)));
        assert_eq!(value("1 / 0.0"), Ok(Scalar::Double(f64::INFINITY)));
        assert_eq!(value("1 + null"), Ok(Scalar::Null));
        assert_eq!(value("null is null and 3 notnull"), Ok(Scalar::Bool(true)));
        assert_eq!(value("(1 < 2) is not true"), Ok(Scalar::Bool(false)));
        assert_eq!(value("null and 1 / 0 = 1"), Ok(Scalar::Null));
        assert_eq!(value("false and 1 / 0 = 1"), Ok(Scalar::Bool(false)));
    }

    #[test]
    fn what_has_no_value_is_an_error_that_says_why() {
        for (text, part) in [
            ("9223372036854775807 + 1", "out of range"),
            ("-9223372036854775808 / -1", "out of range"),
            ("4611686018427387904 * 2", "out of range"),
            ("1 / 0", "division by zero"),
            ("1 % 0", "division by zero"),
            ("random(2, 1)", "empty range"),
            ("random(-9223372036854775808, 9223372036854775807)", "too large"),
            ("random_gaussian(1, 2, 1.9)", "at least 2"),
            ("random_exponential(1, 2, 0)", "above 0"),
            ("random_zipfian(1, 2, 1)", "1.001"),
            ("permute(1, 0)", "above 0"),
            ("int(1e30)", "does not fit"),
            ("1 + (2 > 1)", "truth value"),
            ("not 1", "number"),
        ] {
            match value(text) {
                Err(Failure::Because(why)) => assert!(why.contains(part), "{text}: {why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(value(":unset"), Err(Failure::Undefined(_))));
    }

    #[test]
    fn hashes_are_those_of_the_manual() {
        assert_eq!(int("hash(10, 5432)"), -5817877081768721676);
        assert_eq!(int("hash_murmur2(10, 5432)"), -5817877081768721676);
        assert_eq!(int("hash_fnv1a(10, 5432)"), -7793829335365542153);
        assert_eq!(int("hash(10)"), int("hash(10, 1)"));
    }

    #[test]
    fn what_is_no_expression_is_refused_at_its_place() {
        let mistake = |text: &str| parse(text, &mut Names::new()).unwrap_err();
        for (text, offset, part) in [
            ("1 +", 3, "too early"),
            ("1 2", 2, "operator"),
            ("randon(1, 2)", 0, "`random`"),
            ("random(1)", 0, "takes 2"),
            ("debug(1)", 0, "not supported"),
            ("1 = 2 = 3", 6, "chained"),
            ("(1", 2, "`)`"),
            ("case 1 when", 5, "`when`"),
            ("1 + \"x\"", 4, "unexpected"),
            ("9223372036854775808", 0, "too large"),
            ("1e999", 0, "too large"),
            (":", 0, "name"),
        ] {
            let (at, message) = mistake(text);
            assert!(at == offset && message.contains(part), "{text}: {at} {message}");
        }
        assert!(mistake(&"(".repeat(500)).1.contains("100 levels"));
        assert!(mistake(&"1+".repeat(5000)).1.contains("1000 parts"));
    }

    proptest! {
        #[test]
        fn sums_and_products_of_integers_are_those_of_the_processor(
            a in -1_000_000i64..1_000_000,
            b in 1i64..1_000_000,
        ) {
            prop_assert_eq!(int(&format!("{a} * {b} - ({a} % {b})")), a * b - a % b);
            prop_assert_eq!(int(&format!("{a} / {b} * {b} + {a} % {b}")), a);
        }

        #[test]
        fn any_text_is_an_expression_or_a_mistake_within_it(text in "[-+*/%<>=!()~|&#:a-z0-9., ]{0,60}") {
            let mut names = Names::new();
            match parse(&text, &mut names) {
                Ok(expression) => {
                    let values = vec![Value::Scalar(Scalar::Int(3)); names.len()];
                    let _ = evaluate(&expression, &mut Scope { values: &values, random: &mut Random::new(1, 1) });
                }
                Err((at, _)) => prop_assert!(at <= text.len()),
            }
        }
    }
}
