//! What statements there are: the part of SQL that the model understands. How they are read is told in `reading`, what
//! they do in `execute`.

use std::rc::Rc;

use super::values::Type;

/// One statement of a text.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Statement {
    pub(super) node: Node,
    /// The text in which it stands, for the places of errors.
    pub(super) text: Rc<str>,
}

impl Statement {
    /// One that stands in this text.
    pub(super) fn in_text(node: Node, text: &str) -> Self {
        Self { node, text: text.into() }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Begin {
        word: &'static str,
        modes: Modes,
    },
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Set {
        name: String,
        /// `None`: its default.
        value: Option<Assigned>,
        local: bool,
    },
    /// How the transaction is to be.
    SetTransaction(Modes),
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
    Drop {
        table: String,
        if_exists: bool,
    },
    Listen(String),
    /// `None`: all.
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
    Prepare {
        name: String,
        types: Vec<Type>,
        statement: Box<Statement>,
    },
    Execute {
        name: String,
        arguments: Vec<Expression>,
    },
    /// `None`: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        hold: bool,
        statement: Box<Statement>,
    },
    Fetch {
        name: String,
        /// `None`: all.
        count: Option<usize>,
    },
    /// `None`: all.
    Close(Option<String>),
    CopyIn(Name),
    CopyOut(Box<Statement>),
    Do(Vec<Procedural>),
    /// A survey of Poolhouse's: whether it asks for settings, which custom ones, and which prepared statements.
    Survey {
        settings: bool,
        names: Vec<String>,
        statements: Statements,
    },
    /// What these settings are, asked before a survey that changes them for itself.
    Guarded {
        mark: &'static str,
        names: Vec<String>,
    },
    /// Where the values of what is reported come from.
    Sources,
    /// Rows that are the same whatever happens: so many columns each.
    Fixed(usize, Vec<Vec<String>>),
}

/// Which prepared statements a survey asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Statements {
    None,
    OfSql,
    /// Also those whose names are no pooler's.
    OfClients,
}

/// How a transaction is to be, as far as that is said.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Modes {
    pub(super) level: Option<&'static str>,
    pub(super) read_only: Option<bool>,
    /// Something is said about being deferrable.
    pub(super) deferrable: bool,
}

/// What a parameter is set to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Assigned(pub(super) Vec<String>);

/// A table's name, and where it stands.
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

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Read {
    pub(super) table: Name,
    pub(super) what: What,
    /// A column, where it stands, and what it is compared with.
    pub(super) filter: Option<(String, usize, Expression)>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum What {
    Count,
    All,
    Columns(Vec<(String, usize)>),
}

/// Something that has a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expression {
    /// With the place where it stands.
    Text(String, usize),
    Integer(i64),
    Decimal(f64),
    Bool(bool),
    Null,
    Parameter(usize),
    Call {
        name: String,
        at: usize,
        arguments: Vec<Expression>,
    },
    Divide(Box<Expression>, Box<Expression>),
    Cast(Box<Expression>, Type),
}

/// A statement within procedural code.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Procedural {
    Run(Statement),
    Raise { code: String, message: String, hint: Option<String> },
}

impl Node {
    /// It begins or ends a transaction, or a part of it.
    pub(super) fn is_of_transactions(&self) -> bool {
        let parts = matches!(self, Self::Savepoint(_) | Self::RollbackTo(_) | Self::Release(_));
        parts || matches!(self, Self::Begin { .. } | Self::Commit | Self::Rollback)
    }

    /// It is carried out in a transaction that has failed.
    pub(super) fn leaves_failed(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// It is a query, and not only something that has rows to tell.
    pub(super) fn is_query(&self) -> bool {
        let ours = matches!(self, Self::Survey { .. } | Self::Guarded { .. } | Self::Sources | Self::Fixed(..));
        ours || matches!(self, Self::Select(_) | Self::Read(_))
    }

    /// It needs to know what was committed: when it is read, if `early`, or when it is carried out.
    pub(super) fn takes_snapshot(&self, early: bool) -> bool {
        let query = self.is_query() || matches!(self, Self::Insert { .. } | Self::Declare { .. });
        let settings = matches!(
            self,
            Self::Set { .. } | Self::SetTransaction(_) | Self::Show(_) | Self::Reset(_) | Self::Fetch { .. }
        );
        let channels = matches!(self, Self::Listen(_) | Self::Unlisten(_) | Self::Notify { .. });
        query || !(early || settings || channels || self.is_of_transactions())
    }

    /// As what a transaction that only reads refuses it.
    pub(super) fn writes_as(&self) -> Option<&'static str> {
        match self {
            Self::CreateTemp(_) => Some("CREATE TABLE"),
            Self::Drop { .. } => Some("DROP TABLE"),
            _ => None,
        }
    }

    /// Calls `visit` with each expression in it.
    pub(super) fn expressions<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        match self {
            Self::Select(items) => items.iter().for_each(|item| item.expression.visit(visit)),
            Self::Read(Read { filter: Some((_, _, expression)), .. }) => expression.visit(visit),
            Self::Insert { values, .. } => values.iter().for_each(|value| value.visit(visit)),
            Self::Execute { arguments, .. } => arguments.iter().for_each(|value| value.visit(visit)),
            Self::Declare { statement, .. } | Self::CopyOut(statement) => statement.node.expressions(visit),
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
            Self::Cast(inner, _) => inner.visit(visit),
            _ => {}
        }
    }
}
