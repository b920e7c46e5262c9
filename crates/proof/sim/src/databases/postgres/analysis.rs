//! What is known of a statement before it is carried out: the types of its parameters, and the columns of its answer.

use super::{
    failure::{Failure, in_failed_transaction, no_relation},
    functions::Analysis,
    session::{Block, Session},
    sql::{Expression, Name, Node, Read, Statement, What},
    values::{Column, Type, Value},
};

/// The numbers of the tables in descriptions of columns.
const LEDGER: u32 = 16_385;
const TEMPORARY: u32 = 16_999;

/// A table that a statement names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Ledger,
    Temporary,
}

impl Table {
    pub(super) fn columns(self) -> Vec<Column> {
        let column = |name: &str, of, kind| Column { name: name.into(), of, kind };
        match self {
            Self::Ledger => vec![column("who", (LEDGER, 1), Type::Text), column("n", (LEDGER, 2), Type::Int8)],
            Self::Temporary => vec![column("v", (TEMPORARY, 1), Type::Text)],
        }
    }
}

/// Types of parameters, and columns if there are any.
pub(super) type Known = (Vec<Type>, Option<Vec<Column>>);

impl Session {
    /// The table of this name.
    pub(super) fn table(&self, sql: &str, name: &Name) -> Result<Table, Failure> {
        match &*name.text {
            text if self.temps.contains_key(text) => Ok(Table::Temporary),
            "ledger" if self.sees_public() => Ok(Table::Ledger),
            text => Err(no_relation(text).at(sql, name.at)),
        }
    }

    /// What every database has is found without the name of its schema.
    pub(super) fn sees_public(&self) -> bool {
        let path = self.settings.show("search_path").unwrap_or_default();
        path.split(',').any(|schema| schema.trim() == "public")
    }

    /// Looks at a statement. `declared` are types of parameters that its client has named.
    pub(super) fn analyse(&self, statement: &Statement, declared: &[Option<Type>]) -> Result<Known, Failure> {
        let mut types = declared.to_vec();
        let columns = self.columns(
            statement,
            &mut Analysis { sql: &statement.text, sees_public: self.sees_public(), types: &mut types },
        )?;
        let undetermined =
            |place| Failure::new("42P18", format!("could not determine data type of parameter ${place}"));
        let types = types.into_iter().enumerate().map(|(place, kind)| kind.ok_or_else(|| undetermined(place + 1)));
        Ok((types.collect::<Result<_, _>>()?, columns))
    }

    /// The same where there can be no parameters, with all that can be foreseen.
    pub(super) fn analyse_alone(&self, statement: &Statement) -> Result<Option<Vec<Column>>, Failure> {
        if self.block == Block::Failed && !statement.node.leaves_failed() {
            return Err(in_failed_transaction());
        }
        let (types, columns) = self.analyse(statement, &[])?;
        if !types.is_empty() {
            return Err(Failure::new("42P02", "there is no parameter $1"));
        }
        foresee(statement, &[])?;
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
                if values.len() > columns.len() {
                    return Err(Failure::new("42601", "INSERT has more expressions than target columns"));
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
            Node::Execute { name, .. } => self.statements.get(name).and_then(|prepared| prepared.columns.clone()),
            Node::Fetch { name, .. } => self.portals.get(name).and_then(|portal| portal.columns.clone()),
            Node::Declare { statement, .. } | Node::CopyOut(statement) => {
                self.columns(statement, analysis)?;
                None
            }
            Node::Survey { .. } | Node::Guarded { .. } | Node::Sources => {
                Some(vec![Column::new("text", Type::Text); 3])
            }
            Node::Fixed(count, _) => Some(vec![Column::new("?column?", Type::Text); *count]),
            _ => None,
        })
    }

    fn columns_of_table(
        &self,
        statement: &Statement,
        read: &Read,
        analysis: &mut Analysis<'_>,
    ) -> Result<Vec<Column>, Failure> {
        let all = self.table(&statement.text, &read.table)?.columns();
        let find = |name: &str, at: usize| {
            let found = all.iter().find(|column| column.name == name).cloned();
            let missing = || Failure::new("42703", format!("column \"{name}\" does not exist")).at(&statement.text, at);
            found.ok_or_else(missing)
        };
        let columns = match &read.what {
            What::Count => vec![Column::new("count", Type::Int8)],
            What::All => all.clone(),
            What::Columns(names) => names.iter().map(|(name, at)| find(name, *at)).collect::<Result<_, _>>()?,
        };
        if let Some((name, at, expression)) = &read.filter {
            analysis.type_of(expression, Some(find(name, *at)?.kind))?;
        }
        Ok(columns)
    }
}

/// What fails as soon as its values are known, before it is carried out.
pub(super) fn foresee(statement: &Statement, arguments: &[Value]) -> Result<(), Failure> {
    let mut outcome = Ok(());
    statement.node.expressions(&mut |expression: &Expression| {
        if outcome.is_ok() {
            outcome = Session::foresee(expression, arguments);
        }
    });
    outcome
}

/// A parameter's name, as PostgreSQL spells it.
fn spelt(name: &str) -> String {
    super::parameters::find(name).map_or(name, |parameter| parameter.name).to_owned()
}
