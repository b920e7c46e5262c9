//! Statements: the part of SQL that the model knows.

use std::rc::Rc;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Statement {
    pub(super) node: Node,
    /// The text that contains it, for positions of errors.
    pub(super) text: Rc<str>,
}

impl Statement {
    pub(super) fn in_text(node: Node, text: &str) -> Self {
        Self { node, text: text.into() }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Set {
        name: String,
        /// `None` is DEFAULT.
        value: Option<Vec<String>>,
        local: bool,
    },
    Show(String),
    /// `None`: all.
    Reset(Option<String>),
    Discard(Discard),
    Select(Vec<Item>),
    Read(Read),
    Insert {
        table: Name,
        values: Vec<Expression>,
    },
    CreateTemp(String),
    Drop(String),
    Listen(String),
    /// `None`: all.
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
    Prepare {
        name: String,
        statement: Box<Statement>,
    },
    Execute(String),
    /// `None`: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        hold: bool,
        statement: Box<Statement>,
    },
    /// Of one row.
    Fetch(String),
    /// `None`: all.
    Close(Option<String>),
    CopyIn(Name),
    CopyOut(Box<Statement>),
    Do(Vec<Statement>),
    /// A survey by the pooler: whether it asks for settings, which custom ones, and which prepared statements.
    Survey {
        settings: bool,
        names: Vec<String>,
        statements: SurveyedStatements,
    },
    /// The values of settings that a survey then changes for itself.
    Guarded {
        mark: &'static str,
        names: Vec<String>,
    },
    /// The sources of the values of reported parameters.
    Sources,
}

/// Which prepared statements a survey asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SurveyedStatements {
    None,
    OfSql,
    /// Also statements without a name of the pooler.
    OfClients,
}

/// A table's name, and its position.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Discard {
    All,
    Temp,
    Plans,
    Sequences,
}

/// A column of a SELECT without a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Item {
    pub(super) expression: Expression,
    pub(super) name: String,
}

/// `SELECT count(*)` from a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Read {
    pub(super) table: Name,
    /// A column, its place in the text, and the value that it has to equal.
    pub(super) filter: Option<(String, usize, Expression)>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expression {
    /// With its position.
    Text(String, usize),
    Integer(i64),
    Decimal(f64),
    Bool(bool),
    Parameter(usize),
    Call {
        name: String,
        at: usize,
        arguments: Vec<Expression>,
    },
    Divide(Box<Expression>, Box<Expression>),
}

impl Node {
    /// Whether it begins or ends a transaction.
    pub(super) fn is_of_transactions(&self) -> bool {
        matches!(self, Self::Begin | Self::Commit | Self::Rollback)
    }

    /// Whether it is run in a transaction that has failed.
    pub(super) fn ends_transaction(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback)
    }

    /// Whether it is a query, and not only a statement that returns rows.
    pub(super) fn is_query(&self) -> bool {
        let of_pooler = matches!(self, Self::Survey { .. } | Self::Guarded { .. } | Self::Sources);
        of_pooler || matches!(self, Self::Select(_) | Self::Read(_))
    }

    /// Calls `visit` with each expression in it.
    pub(super) fn visit_expressions<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        match self {
            Self::Select(items) => items.iter().for_each(|item| item.expression.visit(visit)),
            Self::Read(Read { filter: Some((_, _, expression)), .. }) => expression.visit(visit),
            Self::Insert { values, .. } => values.iter().for_each(|value| value.visit(visit)),
            Self::Declare { statement, .. } | Self::CopyOut(statement) => statement.node.visit_expressions(visit),
            _ => {}
        }
    }
}

impl Expression {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        visit(self);
        match self {
            Self::Call { arguments, .. } => arguments.iter().for_each(|argument| argument.visit(visit)),
            Self::Divide(left, right) => {
                left.visit(visit);
                right.visit(visit);
            }
            _ => {}
        }
    }
}
