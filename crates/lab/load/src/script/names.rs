//! The variables of all scripts of a run by name, so that each is found by a number while it runs.

use std::collections::HashMap;

/// Variables that the scripts of a run may have.
const MAX_VARIABLES: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct VarId(u32);

#[derive(Clone, Debug)]
pub(super) struct Names {
    numbers: HashMap<Box<str>, VarId>,
    names: Vec<Box<str>>,
}

impl Names {
    /// `:client_id`.
    pub(super) const CLIENT_ID: VarId = VarId(0);
    /// `:default_seed`, of the hash functions.
    pub(super) const DEFAULT_SEED: VarId = VarId(1);
    /// `:random_seed`.
    pub(super) const RANDOM_SEED: VarId = VarId(2);
    /// `:scale`.
    pub(super) const SCALE: VarId = VarId(3);

    /// With pgbench's automatic variables.
    pub(super) fn new() -> Self {
        let mut names = Self { numbers: HashMap::new(), names: Vec::new() };
        for (name, expected) in [
            ("client_id", Self::CLIENT_ID),
            ("default_seed", Self::DEFAULT_SEED),
            ("random_seed", Self::RANDOM_SEED),
            ("scale", Self::SCALE),
        ] {
            let number = names.intern(name);
            assert_eq!(number, Ok(expected), "the automatic variables come first");
        }
        names
    }

    /// The number of a variable, a new one for a new name.
    ///
    /// # Errors
    /// The text is no name, or there are too many.
    pub(super) fn intern(&mut self, name: &str) -> Result<VarId, String> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii());
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()) {
            return Err(format!("`{}` is no variable's name: letters, digits and `_`", name.escape_debug()));
        }
        if self.names.len() >= MAX_VARIABLES {
            return Err(format!("more than {MAX_VARIABLES} variables"));
        }
        let number = VarId(self.names.len() as u32);
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        Ok(number)
    }

    /// The number of a variable that some script mentions.
    pub(super) fn find(&self, name: &str) -> Option<VarId> {
        self.numbers.get(name).copied()
    }

    pub(super) fn name(&self, variable: VarId) -> &str {
        &self.names[variable.index()]
    }

    /// That of the variable with this [`VarId::index`].
    pub(super) fn name_at(&self, index: usize) -> &str {
        &self.names[index]
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

impl VarId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
