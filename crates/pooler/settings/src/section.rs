//! Reading one table of a TOML file key by key, with an error at the right place for every key that is unknown, of
//! the wrong type or out of range. Knows no particular key; collects all errors instead of stopping at the first.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::{Range, RangeInclusive},
    path::{Path, PathBuf},
    time::Duration,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Secret,
    problem::{Problem, Problems},
    value::{Variables, interpolate, interpolate_url, parse_duration, parse_duration_on},
};

/// Bytes that a file of settings may have.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes that a file named by a `*_file` key may have.
pub const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// Where the keys of a section stand in the file, for what is found out later.
pub type Spots = HashMap<&'static str, Range<usize>>;

/// A file being read, and what is wrong with it so far.
pub struct Document<'d> {
    pub path: &'d Path,
    pub text: &'d str,
    /// What `${NAME}` stands for.
    pub variables: Variables<'d>,
    /// What to do with a key that another program has, or another section.
    pub foreign: fn(&str) -> Option<String>,
    pub problems: RefCell<Vec<Problem>>,
}

impl Document<'_> {
    /// Notes an error at a place.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) {
        self.report(span, Problem::error(message));
    }

    /// Notes a problem at a place.
    pub fn report(&self, span: Range<usize>, problem: Problem) {
        self.problems.borrow_mut().push(problem.at(self.path, self.text, span));
    }

    /// A path of the file's own: relative ones start at the file's folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Reads a whole file of settings. `keys` are those of its outermost table, and `read` makes of it what is meant.
///
/// # Errors
/// All that is wrong with it, in the order of the text.
pub fn read_text<T>(
    path: &Path,
    text: &str,
    variables: Variables<'_>,
    keys: &'static [&'static [&'static str]],
    read: impl FnOnce(&Document<'_>, &Section<'_>) -> T,
) -> Result<T, Problems> {
    match read_in_part(path, text, variables, |_| None, keys, read) {
        (Some(result), problems) if problems.is_empty() => Ok(result),
        (_, problems) => Err(Problems(problems)),
    }
}

/// The same where what could be read is of use although something is wrong: what that is, and all that is wrong, in the
/// order of the text. Of a text that is no TOML nothing can be read. `foreign` tells what to do with a key of another
/// program or section.
pub fn read_in_part<T>(
    path: &Path,
    text: &str,
    variables: Variables<'_>,
    foreign: fn(&str) -> Option<String>,
    keys: &'static [&'static [&'static str]],
    read: impl FnOnce(&Document<'_>, &Section<'_>) -> T,
) -> (Option<T>, Vec<Problem>) {
    let document = Document { path, text, variables, foreign, problems: RefCell::default() };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut is_toml = true;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let name = text.get(span.clone()).filter(|_| error.message() == DUPLICATE_KEY);
        is_toml &= name.is_some();
        match name {
            Some(name) => document.report(span, written_twice(name)),
            None => document.report(span.clone(), no_toml(error.message(), line_at(text, span.start))),
        }
    }
    let result = is_toml.then(|| {
        let root = Section::new(&document, "the file", table.get_ref(), 0..0, keys);
        read(&document, &root)
    });
    let mut problems = document.problems.into_inner();
    problems.sort_by_key(Problem::position);
    (result, problems)
}

/// What the parser says of a key that a table has already. All else can still be read.
const DUPLICATE_KEY: &str = "duplicate key";

/// Quotes that word processors and chats put in the place of straight ones.
const CURLY_QUOTES: [char; 6] = ['“', '”', '„', '‘', '’', '‚'];

fn no_toml(message: &str, line: &str) -> Problem {
    let problem = Problem::error(format!("this is no TOML: {message}"));
    match line.contains(CURLY_QUOTES) {
        true => problem.hint("the quotes in this line are curly: write straight ones (\")"),
        false => problem,
    }
}

/// The line of a text in which this byte stands.
fn line_at(text: &str, at: usize) -> &str {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (before, after) = text.split_at(at);
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let end = after.find('\n').map_or(text.len(), |end| before.len() + end);
    &text[begin..end]
}

fn written_twice(name: &str) -> Problem {
    let name = name.trim_matches(['[', ']', ' ']);
    Problem::error(format!("`{}` is written twice here", name.escape_debug())).hint("keep one of the two")
}

/// The text of a file of settings.
///
/// # Errors
/// It cannot be read, or is far too large.
pub fn load_text(path: &Path) -> Result<String, Problems> {
    let text = std::fs::metadata(path).and_then(|meta| match meta.len() > MAX_FILE_BYTES {
        true => Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes"))),
        false => std::fs::read_to_string(path),
    });
    text.map_err(|error| Problem::error(format!("cannot read it: {error}")).in_file(path).into())
}

pub struct Section<'d> {
    document: &'d Document<'d>,
    title: &'static str,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    keys: &'static [&'static [&'static str]],
}

impl<'d> Section<'d> {
    /// Opens a table that may have these keys, and reports all others.
    pub fn new(
        document: &'d Document<'d>,
        title: &'static str,
        table: &'d DeTable<'d>,
        span: Range<usize>,
        keys: &'static [&'static [&'static str]],
    ) -> Self {
        let section = Self { document, title, table, span, keys };
        let mut unknown: Vec<_> = table.keys().filter(|key| !section.knows(key.get_ref())).collect();
        unknown.sort_by_key(|key| key.span().start);
        for key in unknown {
            document.report(key.span(), section.unknown_key(key.get_ref()));
        }
        section
    }

    fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|keys| keys.contains(&key))
    }

    fn unknown_key(&self, key: &str) -> Problem {
        let problem = Problem::error(format!("unknown key `{key}` in {}", self.title));
        if let Some(advice) = (self.document.foreign)(key) {
            return problem.hint(advice);
        }
        let known: Vec<&str> = self.keys.iter().flat_map(|keys| keys.iter().copied()).collect();
        match nearest(key, &known) {
            Some(nearest) => problem.hint(format!("did you mean `{nearest}`?")),
            None => problem.hint(format!("known keys: {}", known.join(", "))),
        }
    }

    /// Where the section begins.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The places of all its values, and of the section itself under the empty name.
    pub fn spots(&self) -> Spots {
        let known = self.keys.iter().flat_map(|keys| keys.iter().copied());
        let mut spots: Spots = known.filter_map(|key| Some((key, self.table.get(key)?.span()))).collect();
        spots.insert("", self.span());
        spots
    }

    /// Whether the key is there.
    pub fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Notes an error at the value of a key, or at the section when the key is not there.
    pub fn error(&self, key: &'static str, message: impl Into<String>) {
        self.report(key, Problem::error(message));
    }

    /// Notes a problem at the value of a key, or at the section when the key is not there.
    pub fn report(&self, key: &'static str, problem: Problem) {
        let span = self.get(key).map_or(self.span(), Spanned::span);
        self.document.report(span, problem);
    }

    fn get(&self, key: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        assert!(key.is_empty() || self.knows(key), "the key `{key}` is read but not listed for {}", self.title);
        self.table.get(key)
    }

    /// A value by whatever parser; its error is reported at the value.
    fn parse<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&'d DeValue<'d>) -> Option<Result<T, String>>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let message = match parse(value.get_ref()) {
            Some(Ok(parsed)) => return Some(parsed),
            Some(Err(message)) => format!("`{key}`: {message}"),
            None => format!("`{key}` must be {expected}, not {}", type_name(value.get_ref())),
        };
        self.document.error(value.span(), message);
        None
    }

    /// A text, `${ENV}` filled in.
    pub fn string(&self, key: &'static str) -> Option<String> {
        self.parse(key, "a text in quotes", |v| Some(interpolate(v.as_str()?, self.document.variables)))
    }

    /// The name of a file; relative ones start at the configuration's folder.
    pub fn path(&self, key: &'static str) -> Option<PathBuf> {
        self.string(key).map(|path| self.document.resolve(&path))
    }

    /// A text, parsed further.
    pub fn text<T>(&self, key: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.parse(key, "a text in quotes", |v| {
            Some(interpolate(v.as_str()?, self.document.variables).and_then(|text| parse(&text)))
        })
    }

    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        self.text(key, |text| choose(text, choices))
    }

    /// A secret, given as `key` or as the name of a file that holds it, `key_file`. A line end behind it is not
    /// part of it. `url`: fill in variables as for a URL.
    pub fn secret(&self, key: &'static str, file_key: &'static str, url: bool) -> Option<Secret> {
        if self.has(key) && self.has(file_key) {
            self.error(file_key, format!("give either `{key}` or `{file_key}`, not both"));
        }
        let fill = |text: &str| match url {
            true => interpolate_url(text, self.document.variables),
            false => interpolate(text, self.document.variables),
        };
        if self.has(file_key) {
            let path = self.string(file_key)?;
            let path = self.document.resolve(&path);
            return match read_small(&path) {
                Ok(text) if url => match fill(text.trim()) {
                    Ok(text) => Some(Secret::new(text)),
                    Err(message) => {
                        self.error(file_key, format!("{}: {message}", path.display()));
                        None
                    }
                },
                Ok(text) => Some(Secret::new(text.trim_end_matches(['\n', '\r']))),
                Err(error) => {
                    self.error(file_key, format!("cannot read {}: {error}", path.display()));
                    None
                }
            };
        }
        self.parse(key, "a text in quotes", |v| Some(fill(v.as_str()?))).map(Secret::new)
    }

    /// A path of the file's own: relative ones start at the file's folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.document.resolve(path)
    }

    /// Several secrets.
    pub fn secrets(&self, key: &'static str) -> Option<Vec<Secret>> {
        self.texts(key).map(|texts| texts.into_iter().map(Secret::new).collect())
    }

    /// A whole number within bounds.
    pub fn number(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.parse(key, &expected, |v| {
            let integer = v.as_integer()?;
            let parsed = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
            Some(parsed.filter(|n| range.contains(n)).ok_or_else(|| format!("this must be {expected}")))
        })
    }

    /// A whole number within bounds, or this word in quotes, which is `Some(None)`.
    pub fn number_or(&self, key: &'static str, range: RangeInclusive<u32>, word: &str) -> Option<Option<u32>> {
        let number = format!("a whole number from {} to {}", range.start(), range.end());
        self.parse(key, &format!("{number}, or \"{word}\""), |v| {
            if let Some(text) = v.as_str() {
                return Some(
                    (text == word).then_some(None).ok_or_else(|| format!("this must be {number}, or \"{word}\"")),
                );
            }
            let integer = v.as_integer()?;
            let parsed = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
            Some(parsed.filter(|n| range.contains(n)).map(Some).ok_or_else(|| format!("this must be {number}")))
        })
    }

    /// A number from 0 to 1.
    pub fn fraction(&self, key: &'static str) -> Option<f32> {
        self.parse(key, "a number from 0 to 1", |v| {
            let text = v.as_float().map(|f| f.as_str()).or_else(|| v.as_integer().map(|i| i.as_str()))?;
            let parsed = text.parse().ok().filter(|n| (0.0..=1.0).contains(n));
            Some(parsed.ok_or_else(|| "this must be a number from 0 to 1".to_owned()))
        })
    }

    /// A number, with a fraction or without, within bounds.
    pub fn decimal(&self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.parse(key, &expected, |v| {
            let text = v.as_float().map(|f| f.as_str()).or_else(|| v.as_integer().map(|i| i.as_str()))?;
            let parsed = text.replace('_', "").parse().ok().filter(|n| range.contains(n));
            Some(parsed.ok_or_else(|| format!("this must be {expected}")))
        })
    }

    /// An array of texts, `${ENV}` filled in.
    pub fn texts(&self, key: &'static str) -> Option<Vec<String>> {
        self.parse(key, "an array of texts in quotes", |v| {
            let texts: Option<Vec<&str>> = v.as_array()?.iter().map(|item| item.get_ref().as_str()).collect();
            Some(texts?.into_iter().map(|text| interpolate(text, self.document.variables)).collect())
        })
    }

    /// A text in quotes, or an array of such texts, of which there is one at least.
    pub fn one_or_more(&self, key: &'static str) -> Option<Vec<String>> {
        self.parse(key, "a text in quotes, or an array of them", |v| {
            let one = v.as_str().map(|text| vec![text]);
            let texts = one.or_else(|| v.as_array()?.iter().map(|item| item.get_ref().as_str()).collect())?;
            let texts: Result<Vec<_>, _> =
                texts.into_iter().map(|text| interpolate(text, self.document.variables)).collect();
            Some(texts.and_then(|texts| match texts.is_empty() {
                true => Err("the array is empty".to_owned()),
                false => Ok(texts),
            }))
        })
    }

    /// An array of whole numbers within bounds.
    pub fn numbers(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<Vec<u32>> {
        let expected = format!("an array of whole numbers from {} to {}", range.start(), range.end());
        self.parse(key, &expected, |v| {
            let integers: Option<Vec<_>> = v.as_array()?.iter().map(|item| item.get_ref().as_integer()).collect();
            let number = |integer: &toml::de::DeInteger<'_>| {
                let parsed = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
                parsed.filter(|n| range.contains(n)).ok_or_else(|| format!("this must be {expected}"))
            };
            Some(integers?.into_iter().map(number).collect())
        })
    }

    /// `true` or `false`.
    pub fn truth(&self, key: &'static str) -> Option<bool> {
        self.parse(key, "true or false", |v| v.as_bool().map(Ok))
    }

    /// A duration, or `Some(None)` for `off`.
    pub fn duration(&self, key: &'static str) -> Option<Option<Duration>> {
        self.duration_with(key, parse_duration)
    }

    /// A duration that cannot be off.
    pub fn duration_on(&self, key: &'static str) -> Option<Duration> {
        self.duration_with(key, parse_duration_on)
    }

    fn duration_with<T>(&self, key: &'static str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.parse(key, "a duration in quotes, with a unit (\"250ms\", \"310s\", \"5m\")", |v| {
            Some(interpolate(v.as_str()?, self.document.variables).and_then(|text| parse(&text)))
        })
    }

    /// A table within this one.
    pub fn table(&self, key: &'static str, keys: &'static [&'static [&'static str]]) -> Option<Section<'d>> {
        let value = self.get(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Section::new(self.document, title(key), table, value.span(), keys)),
            None => {
                self.error(key, format!("`{key}` must be a table: write [{key}]"));
                None
            }
        }
    }

    /// The tables of an array of tables.
    pub fn tables(&self, key: &'static str, keys: &'static [&'static [&'static str]]) -> Vec<Section<'d>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let items = value.get_ref().as_array().filter(|items| items.iter().all(|item| item.get_ref().is_table()));
        let Some(items) = items else {
            self.error(key, format!("`{key}` must be an array of tables: write [[{key}]], in two pairs of brackets"));
            return Vec::new();
        };
        let open = |item: &'d Spanned<DeValue<'d>>| {
            Some(Section::new(self.document, title(key), item.get_ref().as_table()?, item.span(), keys))
        };
        items.iter().filter_map(open).collect()
    }
}

/// The word's meaning; the error names all words and the nearest one.
pub fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*choice);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let guess = nearest(text, &names).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
    Err(format!("unknown value \"{}\"; it may be {}{guess}", text.escape_debug(), names.join(", ")))
}

/// The known word that was probably meant.
pub fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let score = |candidate: &&&str| (strsim::jaro_winkler(word, candidate) * 1000.0) as u32;
    known.iter().max_by_key(score).filter(|best| score(best) >= 750).copied()
}

/// Reads a file that must be small.
pub fn read_small(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_SECRET_FILE_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_SECRET_FILE_BYTES {
        true => Err(std::io::Error::other(format!("it has more than {MAX_SECRET_FILE_BYTES} bytes"))),
        false => Ok(text),
    }
}

fn title(key: &str) -> &'static str {
    match key {
        "admin" => "[admin]",
        "auth" => "[auth]",
        "limits" => "[limits]",
        "log" => "[log]",
        "pool" => "[pool]",
        "serve" => "[serve]",
        "console" => "[console]",
        "scenario" => "[scenario]",
        "target" => "[target]",
        "load" => "[load]",
        "full" => "[full]",
        "sweep" => "[sweep]",
        "stages" => "stages",
        "freeze" => "[freeze]",
        "plan" => "[plan]",
        "connect" => "connect",
        "platform" => "platform",
        "exclusive" => "exclusive",
        "poolhouse" => "[poolhouse]",
        "fault" => "[[fault]]",
        "variant" => "[[variant]]",
        "listener" => "[[listener]]",
        "database" => "[[database]]",
        "user" => "[[user]]",
        "token" => "[[token]]",
        "admin_token" => "[[admin_token]]",
        "peer" => "[[peer]]",
        "tcp" => "[tcp]",
        "dns" => "[dns]",
        _ => unreachable!("no section is called `{key}`"),
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
