//! Parameters and columns of a statement before it is run.

use super::{
    failure::{Failure, in_failed_transaction, no_relation},
    functions::{Analysis, check_constants},
    session::{Block, Session},
    sql::{Name, Node, Read, Statement},
    values::{Column, Type},
};

/// OIDs of tables.
const LEDGER: u32 = 16_385;
const TEMPORARY: u32 = 16_999;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Ledger,
    Temporary,
}

impl Table {
    pub(super) fn columns(self) -> Vec<Column> {
        let column = |name: &str, source, kind| Column { name: name.into(), source, kind };
        match self {
            Self::Ledger => vec![column("who", (LEDGER, 1), Type::Text), column("n", (LEDGER, 2), Type::Int8)],
            Self::Temporary => vec![column("v", (TEMPORARY, 1), Type::Text)],
        }
    }
}

pub(super) type Known = (Vec<Type>, Option<Vec<Column>>);

impl Session {
    pub(super) fn table(&self, sql: &str, name: &Name) -> Result<Table, Failure> {
        match &*name.text {
            text if self.temps.contains_key(text) => Ok(Table::Temporary),
            "ledger" => Ok(Table::Ledger),
            text => Err(no_relation(text).at(sql, name.at)),
        }
    }

    /// Analyses a statement. `declared`: types of parameters that its client has named.
    pub(super) fn analyse(&self, statement: &Statement, declared: &[Option<Type>]) -> Result<Known, Failure> {
        let mut types = declared.to_vec();
        let columns = self.columns(statement, &mut Analysis { sql: &statement.text, types: &mut types })?;
        let undetermined =
            |place| Failure::new("42P18", format!("could not determine data type of parameter ${place}"));
        let types = types.into_iter().enumerate().map(|(place, kind)| kind.ok_or_else(|| undetermined(place + 1)));
        Ok((types.collect::<Result<_, _>>()?, columns))
    }

    /// Analyses and plans a statement without parameters.
    pub(super) fn analyse_alone(&self, statement: &Statement) -> Result<Option<Vec<Column>>, Failure> {
        if self.block == Block::Failed && !statement.node.ends_transaction() {
            return Err(in_failed_transaction());
        }
        let (types, columns) = self.analyse(statement, &[])?;
        if !types.is_empty() {
            return Err(Failure::new("42P02", "there is no parameter $1"));
        }
        check_plan(statement)?;
        Ok(columns)
    }

    fn columns(&self, statement: &Statement, analysis: &mut Analysis<'_>) -> Result<Option<Vec<Column>>, Failure> {
        Ok(match &statement.node {
            Node::Select(items) => {
                let mut columns = Vec::new();
                for item in items {
                    columns.push(Column::new(&*item.name, analysis.type_of(&item.expression, None)?));
                }
                Some(columns)
            }
            Node::Read(read) => Some(self.columns_of_table(statement, read, analysis)?),
            Node::Insert { table, values } => {
                let columns = self.table(&statement.text, table)?.columns();
                if values.len() != columns.len() {
                    return Err(Failure::new("42601", "INSERT has more or fewer expressions than target columns"));
                }
                for (value, column) in values.iter().zip(&columns) {
                    analysis.type_of(value, Some(column.kind))?;
                }
                None
            }
            Node::Show(name) => {
                self.settings.show(name)?;
                Some(vec![Column::new(spelt(name), Type::Text)])
            }
            Node::Execute(name) => self.statements.get(name).and_then(|prepared| prepared.columns.clone()),
            Node::Fetch(name) => self.portals.get(name).and_then(|portal| portal.columns.clone()),
            Node::Declare { statement, .. } | Node::CopyOut(statement) => {
                self.columns(statement, analysis)?;
                None
            }
            Node::Survey { .. } | Node::Guarded { .. } | Node::Sources => {
                Some(vec![Column::new("text", Type::Text); 3])
            }
            _ => None,
        })
    }

    fn columns_of_table(
        &self,
        statement: &Statement,
        read: &Read,
        analysis: &mut Analysis<'_>,
    ) -> Result<Vec<Column>, Failure> {
        let columns = self.table(&statement.text, &read.table)?.columns();
        if let Some((name, at, expression)) = &read.filter {
            let column = columns.iter().find(|column| column.name == *name);
            let missing =
                || Failure::new("42703", format!("column \"{name}\" does not exist")).at(&statement.text, *at);
            analysis.type_of(expression, Some(column.ok_or_else(missing)?.kind))?;
        }
        Ok(vec![Column::new("count", Type::Int8)])
    }
}

/// Fails if a statement cannot be planned.
pub(super) fn check_plan(statement: &Statement) -> Result<(), Failure> {
    let mut outcome = Ok(());
    statement.node.visit_expressions(&mut |expression| {
        if outcome.is_ok() {
            outcome = check_constants(expression);
        }
    });
    outcome
}

/// A parameter's name, as PostgreSQL spells it.
fn spelt(name: &str) -> String {
    super::parameters::find(name).map_or(name, |parameter| parameter.name).to_owned()
}
