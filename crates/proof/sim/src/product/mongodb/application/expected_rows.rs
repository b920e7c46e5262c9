//! Which rows of an application must be in the database, which may be, and which must not.

use crate::databases::mongodb::{MongoDb, RowState};

/// A collection and what is written there.
pub type Row = (String, String);

#[derive(Default)]
pub struct ExpectedRows {
    /// Acknowledged by a majority, so never lost.
    sure: Vec<Row>,
    /// Acknowledged by the primary alone, so an election may lose them.
    quick: Vec<Row>,
    /// Groups of which all rows were written, or none.
    maybe: Vec<Vec<Row>>,
    never: Vec<Row>,
}

impl ExpectedRows {
    pub fn acknowledge(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.sure.extend(rows);
    }

    pub fn acknowledge_quickly(&mut self, row: Row) {
        self.quick.push(row);
    }

    /// Notes rows of which all were written, or none.
    pub fn doubt(&mut self, rows: Vec<Row>) {
        self.maybe.push(rows);
    }

    /// Notes rows that were not written, and never will be.
    pub fn rule_out(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.never.extend(rows);
    }

    /// Checks the rows that a transaction has read, which has written `own` itself.
    pub fn check_read(&self, collection: &str, found: &[String], own: &[Row]) {
        let of = |rows: &[Row]| -> Vec<String> {
            rows.iter().filter(|(of, _)| of == collection).map(|(_, row)| row.clone()).collect()
        };
        let missing = of(&self.sure).into_iter().chain(of(own)).find(|row| !found.contains(row));
        assert!(missing.is_none(), "a transaction reads {found:?} of {collection}, without {missing:?}");
        let too_many = of(&self.never).into_iter().find(|row| found.contains(row));
        assert!(too_many.is_none(), "a transaction reads {too_many:?} in {collection}, which were never written");
    }

    pub fn check(&self, product_database: &MongoDb) {
        let at = |(collection, row): &Row| product_database.row_state(collection, row);
        for row in &self.sure {
            assert_eq!(at(row), RowState::Kept(1), "{row:?} is acknowledged by a majority");
        }
        for row in &self.quick {
            let found = at(row);
            let right = matches!(found, RowState::Kept(1) | RowState::Recent | RowState::RolledBack);
            assert!(right, "{row:?} is acknowledged, no election has lost it, and it is {found:?}");
        }
        for row in &self.never {
            let found = at(row);
            assert_eq!(found, RowState::Absent, "{row:?} is there, though it was refused or taken back");
        }
        for group in &self.maybe {
            let found: Vec<RowState> = group.iter().map(at).collect();
            let kept = found.iter().filter(|found| **found == RowState::Kept(1)).count();
            let twice = found.iter().any(|found| matches!(found, RowState::Kept(2..)));
            assert!(!twice, "{group:?} is there twice: {found:?}");
            assert!(
                group.len() < 2 || kept == 0 || kept == group.len(),
                "a part of a transaction: {group:?} {found:?}"
            );
        }
    }
}
