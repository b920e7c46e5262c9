//! Keys and their values, in numbered databases. It knows no commands and no connections.

use std::collections::{BTreeMap, VecDeque};

use super::reply::Refusal;

/// Number of databases.
pub const DATABASES: usize = 16;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

pub type Text = Vec<u8>;
pub type List = VecDeque<Vec<u8>>;

pub enum Value {
    Text(Text),
    List(List),
}

/// A type of value.
pub trait Kind: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
}

impl Kind for Text {
    fn of(value: &Value) -> Option<&Self> {
        if let Value::Text(text) = value { Some(text) } else { None }
    }

    fn of_mut(value: &mut Value) -> Option<&mut Self> {
        if let Value::Text(text) = value { Some(text) } else { None }
    }

    fn wrap(self) -> Value {
        Value::Text(self)
    }
}

impl Kind for List {
    fn of(value: &Value) -> Option<&Self> {
        if let Value::List(list) = value { Some(list) } else { None }
    }

    fn of_mut(value: &mut Value) -> Option<&mut Self> {
        if let Value::List(list) = value { Some(list) } else { None }
    }

    fn wrap(self) -> Value {
        Value::List(self)
    }
}

#[derive(Default)]
pub struct Keyspace {
    databases: [BTreeMap<Vec<u8>, Value>; DATABASES],
}

impl Keyspace {
    pub fn contains(&self, database: usize, key: &[u8]) -> bool {
        self.databases[database].contains_key(key)
    }

    /// A value of this kind; a value of another kind is an error.
    pub fn find<K: Kind>(&self, database: usize, key: &[u8]) -> Result<Option<&K>, Refusal> {
        let value = self.databases[database].get(key);
        value.map(|value| K::of(value).ok_or(WRONG_TYPE.into())).transpose()
    }

    pub fn find_mut<K: Kind>(&mut self, database: usize, key: &[u8]) -> Result<Option<&mut K>, Refusal> {
        let value = self.databases[database].get_mut(key);
        value.map(|value| K::of_mut(value).ok_or(WRONG_TYPE.into())).transpose()
    }

    /// A value of this kind, which is added empty if the key has none; a value of another kind is an error.
    pub fn find_or_add<K: Kind>(&mut self, database: usize, key: &[u8]) -> Result<&mut K, Refusal> {
        let value = self.databases[database].entry(key.to_vec()).or_insert_with(|| K::default().wrap());
        K::of_mut(value).ok_or(WRONG_TYPE.into())
    }

    pub fn put(&mut self, database: usize, key: &[u8], value: Value) {
        self.databases[database].insert(key.to_vec(), value);
    }

    /// Removes a key. Returns whether there was one.
    pub fn remove(&mut self, database: usize, key: &[u8]) -> bool {
        self.databases[database].remove(key).is_some()
    }
}
