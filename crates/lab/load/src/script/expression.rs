//! Expressions of `\set`, `\if` and `\elif`: their grammar (operators, CASE, functions; precedences as in pgbench's
//! manual) read into a tree. What a tree is worth is `evaluate`'s matter.

use super::{names::Names, names::VarId, value::Scalar};

/// Parts that an expression may have.
const MAX_PARTS: usize = 1_000;
/// Levels of brackets, CASE and prefix operators within one another.
const MAX_DEPTH: usize = 100;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expression {
    Constant(Scalar),
    Variable(VarId),
    Not(Box<Expression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    /// The other operand, and whether it is `is not`.
    Is(Box<Expression>, Scalar, bool),
    Case(Vec<(Expression, Expression)>, Box<Expression>),
    /// An operator is a function too.
    Call(Function, Vec<Expression>),
}

/// What is computed from values alone, or by chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    Different,
    Less,
    LessOrEqual,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Absolute,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// Functions by name, with the least and the most arguments.
const FUNCTIONS: &[(&str, Function, usize, usize)] = &[
    ("abs", Function::Absolute, 1, 1),
    ("double", Function::Double, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("greatest", Function::Greatest, 1, MAX_PARTS),
    ("hash", Function::HashMurmur2, 1, 2),
    ("hash_fnv1a", Function::HashFnv1a, 1, 2),
    ("hash_murmur2", Function::HashMurmur2, 1, 2),
    ("int", Function::Int, 1, 1),
    ("least", Function::Least, 1, MAX_PARTS),
    ("ln", Function::Ln, 1, 1),
    ("mod", Function::Modulo, 2, 2),
    ("permute", Function::Permute, 2, 3),
    ("pi", Function::Pi, 0, 0),
    ("pow", Function::Power, 2, 2),
    ("power", Function::Power, 2, 2),
    ("random", Function::Random, 2, 2),
    ("random_exponential", Function::RandomExponential, 3, 3),
    ("random_gaussian", Function::RandomGaussian, 3, 3),
    ("random_zipfian", Function::RandomZipfian, 3, 3),
    ("sqrt", Function::Sqrt, 1, 1),
];

/// A mistake: the byte of the text where it is, and what it is.
pub(super) type Mistake = (usize, String);

/// Reads a whole text as one expression; a backslash before a line's end goes on with the next line.
///
/// # Errors
/// The text is no expression; with the place of the mistake.
pub(super) fn parse(text: &str, names: &mut Names) -> Result<Expression, Mistake> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, end: text.len(), at: 0, depth: 0, names };
    let expression = parser.binary(0)?;
    match parser.peek() {
        None => Ok(expression),
        Some(token) => Err((parser.offset(), format!("expected an operator or the end of the line, not {token}"))),
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token<'t> {
    Number(&'t str),
    Variable(&'t str),
    /// A keyword or a function's name, in small letters.
    Word(String),
    Sign(&'static str),
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(text) => write!(f, "`{text}`"),
            Self::Variable(name) => write!(f, "`:{name}`"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// Longer signs stand before those they begin with.
const SIGNS: &[&str] =
    &["<=", ">=", "<>", "!=", "<<", ">>", "+", "-", "*", "/", "%", "=", "<", ">", "|", "&", "#", "~", "(", ")", ","];

fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, Mistake> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_ascii_whitespace() || rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
            at += 1;
            continue;
        }
        if found.len() >= MAX_PARTS {
            return Err((at, format!("an expression has at most {MAX_PARTS} parts")));
        }
        let (token, length) = if let Some(length) = number(rest) {
            (Token::Number(&rest[..length]), length)
        } else if let Some(name) = rest.strip_prefix(':') {
            let length = word(name);
            if length == 0 {
                return Err((at, "a `:` without a variable's name".to_owned()));
            }
            (Token::Variable(&name[..length]), length + 1)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            let length = word(rest);
            if length == 0 {
                return Err((at, format!("unexpected `{}` in an expression", c.escape_debug())));
            }
            (Token::Word(rest[..length].to_ascii_lowercase()), length)
        };
        found.push((at, token));
        at += length;
    }
    Ok(found)
}

/// The length of the number that the text begins with.
fn number(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(0);
    let mut length = whole;
    if bytes.get(length) == Some(&b'.') {
        let behind = digits(length + 1);
        if whole + behind == 0 {
            return None;
        }
        length += 1 + behind;
    } else if whole == 0 {
        return None;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    Some(length)
}

/// The length of the word that the text begins with.
fn word(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80).count()
}

struct Parser<'p> {
    tokens: &'p [(usize, Token<'p>)],
    /// Bytes of the text.
    end: usize,
    at: usize,
    depth: usize,
    names: &'p mut Names,
}

/// Precedences, the weakest first: or, and, not, is, comparisons, bits, sums, products, signs.
const NOT: u8 = 2;
const IS: u8 = 3;
const COMPARISON: u8 = 4;
const SIGN: u8 = 8;

impl<'p> Parser<'p> {
    fn peek(&self) -> Option<&'p Token<'p>> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(offset, _)| *offset)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(s)) if *s == sign);
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Mistake> {
        match self.take_word(word) {
            true => Ok(()),
            false => Err((self.offset(), format!("expected `{word}`"))),
        }
    }

    /// Operands joined by operators that bind at least as tightly as `least`.
    fn binary(&mut self, least: u8) -> Result<Expression, Mistake> {
        if self.depth >= MAX_DEPTH {
            return Err((self.offset(), format!("more than {MAX_DEPTH} levels within one another")));
        }
        self.depth += 1;
        let mut left = self.prefix()?;
        let mut compared = false;
        while let Some((strength, operator)) = self.operator().filter(|(strength, _)| *strength >= least) {
            if strength == COMPARISON && std::mem::replace(&mut compared, true) {
                return Err((self.offset(), "comparisons cannot be chained: use brackets".to_owned()));
            }
            self.at += 1;
            left = match operator {
                Operator::Is => self.is(left)?,
                Operator::Null(negated) => Expression::Is(Box::new(left), Scalar::Null, negated),
                Operator::And => Expression::And(Box::new([left, self.binary(strength + 1)?])),
                Operator::Or => Expression::Or(Box::new([left, self.binary(strength + 1)?])),
                Operator::Function(function) => Expression::Call(function, vec![left, self.binary(strength + 1)?]),
                Operator::Reversed(function) => Expression::Call(function, vec![self.binary(strength + 1)?, left]),
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&self) -> Option<(u8, Operator)> {
        use Function::*;
        Some(match self.peek()? {
            Token::Word(word) => match word.as_str() {
                "or" => (0, Operator::Or),
                "and" => (1, Operator::And),
                "is" => (IS, Operator::Is),
                "isnull" => (IS, Operator::Null(false)),
                "notnull" => (IS, Operator::Null(true)),
                _ => return None,
            },
            Token::Sign(sign) => match *sign {
                "=" => (COMPARISON, Operator::Function(Equal)),
                "<>" | "!=" => (COMPARISON, Operator::Function(Different)),
                "<" => (COMPARISON, Operator::Function(Less)),
                "<=" => (COMPARISON, Operator::Function(LessOrEqual)),
                ">" => (COMPARISON, Operator::Reversed(Less)),
                ">=" => (COMPARISON, Operator::Reversed(LessOrEqual)),
                "|" => (5, Operator::Function(BitOr)),
                "&" => (5, Operator::Function(BitAnd)),
                "#" => (5, Operator::Function(BitXor)),
                "<<" => (5, Operator::Function(ShiftLeft)),
                ">>" => (5, Operator::Function(ShiftRight)),
                "+" => (6, Operator::Function(Add)),
                "-" => (6, Operator::Function(Subtract)),
                "*" => (7, Operator::Function(Multiply)),
                "/" => (7, Operator::Function(Divide)),
                "%" => (7, Operator::Function(Modulo)),
                _ => return None,
            },
            Token::Number(_) | Token::Variable(_) => return None,
        })
    }

    /// What stands behind `is`.
    fn is(&mut self, left: Expression) -> Result<Expression, Mistake> {
        let negated = self.take_word("not");
        for (word, value) in [("null", Scalar::Null), ("true", Scalar::Bool(true)), ("false", Scalar::Bool(false))] {
            if self.take_word(word) {
                return Ok(Expression::Is(Box::new(left), value, negated));
            }
        }
        Err((self.offset(), "expected `null`, `true` or `false` behind `is`".to_owned()))
    }

    /// An operand with the signs before it.
    fn prefix(&mut self) -> Result<Expression, Mistake> {
        if self.take_word("not") {
            return Ok(Expression::Not(Box::new(self.binary(NOT)?)));
        }
        if self.take_sign("+") {
            return self.binary(SIGN);
        }
        if self.take_sign("-") {
            // The least integer has no positive counterpart.
            if let Some(Token::Number("9223372036854775808")) = self.peek() {
                self.at += 1;
                return Ok(Expression::Constant(Scalar::Int(i64::MIN)));
            }
            let zero = Expression::Constant(Scalar::Int(0));
            return Ok(Expression::Call(Function::Subtract, vec![zero, self.binary(SIGN)?]));
        }
        if self.take_sign("~") {
            let ones = Expression::Constant(Scalar::Int(-1));
            return Ok(Expression::Call(Function::BitXor, vec![ones, self.binary(SIGN)?]));
        }
        self.operand()
    }

    fn operand(&mut self) -> Result<Expression, Mistake> {
        let offset = self.offset();
        let Some(token) = self.peek() else { return Err((offset, "the expression ends too early".to_owned())) };
        self.at += 1;
        match token {
            Token::Number(text) => constant(text).map_err(|message| (offset, message)),
            Token::Variable(name) => {
                self.names.intern(name).map(Expression::Variable).map_err(|message| (offset, message))
            }
            Token::Sign("(") => {
                let inner = self.binary(0)?;
                match self.take_sign(")") {
                    true => Ok(inner),
                    false => Err((self.offset(), "expected `)`".to_owned())),
                }
            }
            Token::Word(word) => match word.as_str() {
                "true" => Ok(Expression::Constant(Scalar::Bool(true))),
                "false" => Ok(Expression::Constant(Scalar::Bool(false))),
                "null" => Ok(Expression::Constant(Scalar::Null)),
                "case" => self.case(),
                name => self.call(name, offset),
            },
            sign => Err((offset, format!("expected a value, not {sign}"))),
        }
    }

    fn case(&mut self) -> Result<Expression, Mistake> {
        let mut branches = Vec::new();
        self.expect_word("when")?;
        loop {
            let condition = self.binary(0)?;
            self.expect_word("then")?;
            branches.push((condition, self.binary(0)?));
            if !self.take_word("when") {
                break;
            }
        }
        let otherwise = if self.take_word("else") { self.binary(0)? } else { Expression::Constant(Scalar::Null) };
        self.expect_word("end")?;
        Ok(Expression::Case(branches, Box::new(otherwise)))
    }

    fn call(&mut self, name: &str, offset: usize) -> Result<Expression, Mistake> {
        if name == "debug" {
            return Err((offset, "the function `debug` is not supported: take it out".to_owned()));
        }
        let known = FUNCTIONS.iter().find(|(known, ..)| *known == name);
        let Some(&(_, function, least, most)) = known else {
            let names: Vec<&str> = FUNCTIONS.iter().map(|(name, ..)| *name).collect();
            let guess = settings::nearest(name, &names).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
            return Err((offset, format!("unknown function `{name}`{guess}")));
        };
        if !self.take_sign("(") {
            return Err((self.offset(), format!("expected `(` behind `{name}`")));
        }
        let mut arguments = Vec::new();
        if !self.take_sign(")") {
            loop {
                arguments.push(self.binary(0)?);
                if self.take_sign(")") {
                    break;
                }
                if !self.take_sign(",") {
                    return Err((self.offset(), "expected `,` or `)`".to_owned()));
                }
            }
        }
        if !(least..=most).contains(&arguments.len()) {
            let wanted = if least == most { least.to_string() } else { format!("at least {least}") };
            return Err((offset, format!("`{name}` takes {wanted} arguments, not {}", arguments.len())));
        }
        // Those that may be left out default to a variable.
        if arguments.len() < most && matches!(function, Function::HashFnv1a | Function::HashMurmur2 | Function::Permute)
        {
            arguments.push(Expression::Variable(Names::DEFAULT_SEED));
        }
        Ok(Expression::Call(function, arguments))
    }
}

enum Operator {
    Or,
    And,
    Is,
    Null(bool),
    Function(Function),
    Reversed(Function),
}

fn constant(text: &str) -> Result<Expression, String> {
    let scalar = match text.bytes().all(|b| b.is_ascii_digit()) {
        true => Scalar::Int(text.parse().map_err(|_| format!("`{text}` is too large for an integer of 64 bits"))?),
        false => Scalar::Double(
            text.parse().ok().filter(|d: &f64| d.is_finite()).ok_or(format!("`{text}` is too large for a double"))?,
        ),
    };
    Ok(Expression::Constant(scalar))
}
