//! Which rows of an application must be there, which may be, and which must not.

use crate::databases::mongodb::{MongoDb, Whereabouts};

/// A collection and what is written there.
pub type Row = (String, String);

#[derive(Default)]
pub struct Judge {
    /// Acknowledged by a majority: nothing may lose them.
    sure: Vec<Row>,
    /// Acknowledged by a primary alone: an election may lose them.
    quick: Vec<Row>,
    /// All of a group or none.
    maybe: Vec<Vec<Row>>,
    never: Vec<Row>,
}

impl Judge {
    /// A majority has all of these.
    pub fn acknowledge(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.sure.extend(rows);
    }

    pub fn acknowledge_quickly(&mut self, row: Row) {
        self.quick.push(row);
    }

    /// It is unknown whether these rows were written, but it was all of them or none.
    pub fn doubt(&mut self, rows: Vec<Row>) {
        self.maybe.push(rows);
    }

    /// They were not written, and never will be.
    pub fn rule_out(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.never.extend(rows);
    }

    /// What a read of a collection has found, in a transaction that has written these itself.
    pub fn check_read(&self, collection: &str, found: &[String], own: &[Row]) {
        let of = |rows: &[Row]| -> Vec<String> {
            rows.iter().filter(|(of, _)| of == collection).map(|(_, row)| row.clone()).collect()
        };
        let missing = of(&self.sure).into_iter().chain(of(own)).find(|row| !found.contains(row));
        assert!(missing.is_none(), "a transaction reads {found:?} of {collection}, without {missing:?}");
        let too_many = of(&self.never).into_iter().find(|row| found.contains(row));
        assert!(too_many.is_none(), "a transaction reads {too_many:?} in {collection}, which were never written");
    }

    pub fn check(&self, real: &MongoDb) {
        let at = |(collection, row): &Row| real.whereabouts(collection, row);
        for row in &self.sure {
            assert_eq!(at(row), Whereabouts::Kept(1), "{row:?} is acknowledged by a majority");
        }
        for row in &self.quick {
            let found = at(row);
            let right = matches!(found, Whereabouts::Kept(1) | Whereabouts::Recent | Whereabouts::RolledBack);
            assert!(right, "{row:?} is acknowledged, no election has lost it, and it is {found:?}");
        }
        for row in &self.never {
            let found = at(row);
            assert_eq!(found, Whereabouts::Nowhere, "{row:?} is there, though it was refused or taken back");
        }
        for group in &self.maybe {
            let found: Vec<Whereabouts> = group.iter().map(at).collect();
            let kept = found.iter().filter(|found| **found == Whereabouts::Kept(1)).count();
            let twice = found.iter().any(|found| matches!(found, Whereabouts::Kept(2..)));
            assert!(!twice, "{group:?} is there twice: {found:?}");
            assert!(
                group.len() < 2 || kept == 0 || kept == group.len(),
                "a part of a transaction: {group:?} {found:?}"
            );
        }
    }
}
