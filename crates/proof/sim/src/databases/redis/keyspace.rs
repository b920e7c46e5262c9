//! Keys and their values, in numbered databases. It knows no commands, and nobody who watches or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::reply::Refusal;

/// How many databases there are.
pub const DATABASES: usize = 16;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

pub type Text = Vec<u8>;
pub type List = VecDeque<Vec<u8>>;
/// In the order in which the fields came.
pub type Hash = Vec<(Vec<u8>, Vec<u8>)>;
pub type Set = BTreeSet<Vec<u8>>;

pub enum Value {
    Text(Text),
    List(List),
    Hash(Hash),
    Set(Set),
}

impl Value {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
        }
    }
}

pub trait Kind: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
}

macro_rules! kind {
    ($kind:ident) => {
        impl Kind for $kind {
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$kind(value) = value { Some(value) } else { None }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$kind(value) = value { Some(value) } else { None }
            }

            fn wrap(self) -> Value {
                Value::$kind(self)
            }
        }
    };
}

kind!(Text);
kind!(List);
kind!(Hash);
kind!(Set);

/// A value, and until when it holds: in milliseconds.
struct Entry {
    value: Value,
    deadline: Option<u64>,
}

pub struct Keyspace {
    databases: Vec<BTreeMap<Vec<u8>, Entry>>,
    /// What ends when.
    deadlines: BTreeSet<(u64, usize, Vec<u8>)>,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self { databases: (0..DATABASES).map(|_| BTreeMap::new()).collect(), deadlines: BTreeSet::new() }
    }
}

impl Keyspace {
    pub fn value(&self, database: usize, key: &[u8]) -> Option<&Value> {
        self.databases[database].get(key).map(|entry| &entry.value)
    }

    /// A value of this kind; it is an error if there is one of another.
    pub fn find<K: Kind>(&self, database: usize, key: &[u8]) -> Result<Option<&K>, Refusal> {
        match self.value(database, key) {
            Some(value) => K::of(value).map(Some).ok_or(WRONG_TYPE.into()),
            None => Ok(None),
        }
    }

    pub fn find_mut<K: Kind>(&mut self, database: usize, key: &[u8]) -> Result<Option<&mut K>, Refusal> {
        match self.databases[database].get_mut(key) {
            Some(entry) => K::of_mut(&mut entry.value).map(Some).ok_or(WRONG_TYPE.into()),
            None => Ok(None),
        }
    }

    /// The same, and an empty one where there is none.
    pub fn find_or_make<K: Kind>(&mut self, database: usize, key: &[u8]) -> Result<&mut K, Refusal> {
        let entry = self.databases[database]
            .entry(key.to_vec())
            .or_insert_with(|| Entry { value: K::default().wrap(), deadline: None });
        K::of_mut(&mut entry.value).ok_or(WRONG_TYPE.into())
    }

    /// Puts a value in the place of whatever there is.
    pub fn put(&mut self, database: usize, key: &[u8], value: Value, keeps_deadline: bool) {
        let deadline = self.deadline(database, key).filter(|_| keeps_deadline);
        self.set_deadline(database, key, deadline);
        self.databases[database].insert(key.to_vec(), Entry { value, deadline });
    }

    /// Whether there was anything.
    pub fn remove(&mut self, database: usize, key: &[u8]) -> bool {
        self.set_deadline(database, key, None);
        self.databases[database].remove(key).is_some()
    }

    pub fn deadline(&self, database: usize, key: &[u8]) -> Option<u64> {
        self.databases[database].get(key)?.deadline
    }

    pub fn set_deadline(&mut self, database: usize, key: &[u8], deadline: Option<u64>) {
        let Some(entry) = self.databases[database].get_mut(key) else { return };
        if let Some(before) = std::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(before, database, key.to_vec()));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, database, key.to_vec()));
        }
    }

    /// Removes what does not hold any more, and says what that was.
    pub fn expire(&mut self, now: u64) -> Vec<(usize, Vec<u8>)> {
        let mut expired = Vec::new();
        while let Some((deadline, database, key)) = self.deadlines.first().cloned()
            && deadline < now
        {
            self.remove(database, &key);
            expired.push((database, key));
        }
        expired
    }

    pub fn len(&self, database: usize) -> usize {
        self.databases[database].len()
    }

    pub fn names(&self, database: usize) -> Vec<Vec<u8>> {
        self.databases[database].keys().cloned().collect()
    }

    /// How many keys end by themselves.
    pub fn ending(&self, database: usize) -> usize {
        self.databases[database].values().filter(|entry| entry.deadline.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_kind_is_an_error_and_none_is_not() {
        let mut keys = Keyspace::default();
        keys.put(0, b"a", Value::Text(b"x".to_vec()), false);
        assert_eq!(keys.find::<Text>(0, b"a"), Ok(Some(&b"x".to_vec())));
        assert_eq!(keys.find::<List>(0, b"a"), Err(WRONG_TYPE.into()));
        assert_eq!(keys.find::<List>(1, b"a"), Ok(None));
    }

    #[test]
    fn what_has_a_deadline_ends_there_unless_it_was_put_anew() {
        let mut keys = Keyspace::default();
        for key in [b"a", b"b", b"c"] {
            keys.put(0, key, Value::Text(Vec::new()), false);
            keys.set_deadline(0, key, Some(5));
        }
        keys.put(0, b"b", Value::Text(Vec::new()), false);
        keys.put(0, b"c", Value::Text(Vec::new()), true);
        assert_eq!(keys.expire(5), []);
        assert_eq!(keys.expire(6), [(0, b"a".to_vec()), (0, b"c".to_vec())]);
        assert_eq!(keys.names(0), [b"b"]);
    }
}
