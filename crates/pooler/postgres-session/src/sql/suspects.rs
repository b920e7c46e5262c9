//! What a text of SQL may do to the session that runs it: suspicions, and the names that go with them. Finding them is
//! up to `scan`.

/// Effects that a text may have on a session, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Suspects(u32);

impl Suspects {
    pub(crate) const NONE: Self = Self(0);
    /// Changes run-time parameters beyond the transaction.
    pub(crate) const SETTINGS: Self = Self(1);
    /// Changes, perhaps only for the transaction, what a text parsed later means.
    pub(crate) const MEANING: Self = Self(1 << 1);
    pub(crate) const TEMPORARY: Self = Self(1 << 2);
    /// Opens a cursor that outlives its transaction.
    pub(crate) const CURSOR: Self = Self(1 << 3);
    /// Takes or gives back an advisory lock of the session.
    pub(crate) const LOCK: Self = Self(1 << 4);
    pub(crate) const LISTEN: Self = Self(1 << 5);
    pub(crate) const PREPARE: Self = Self(1 << 6);
    /// Asks for the last value of a sequence in this session.
    pub(crate) const LAST_VALUE: Self = Self(1 << 7);
    /// May advance a sequence.
    pub(crate) const SEQUENCE: Self = Self(1 << 8);
    /// May end what ties a client to its server.
    pub(crate) const UNPIN: Self = Self(1 << 9);
    /// Deallocates prepared statements.
    pub(crate) const DEALLOCATE: Self = Self(1 << 10);
    /// Sets a parameter whose name cannot be seen.
    pub(crate) const UNKNOWN_NAME: Self = Self(1 << 11);
    /// Sets a parameter whose name is a bound value.
    pub(crate) const BOUND_NAME: Self = Self(1 << 12);
    /// Resets parameters to their values at the start of the session.
    pub(crate) const RESET: Self = Self(1 << 13);
    /// Resets parameters for the transaction only.
    pub(crate) const LOCAL_RESET: Self = Self(1 << 14);
    /// Not of a text: a request was forwarded in an amended form.
    pub(crate) const AMENDED: Self = Self(1 << 15);

    /// Runs something unseen or not understood, which may have left anything behind.
    pub(crate) const OPAQUE: Self = Self(1 << 16);
    /// May leave behind what no SQL takes back.
    pub(crate) const IRREVERSIBLE: Self = Self(1 << 17);
    pub(crate) const DDL: Self = Self(1 << 18);

    /// Makes a temporary object whose code may run behind later texts, unknown to other sessions.
    pub(crate) const TEMPORARY_CODE: Self = Self(1 << 22);
    /// Sets a parameter that the view pg_settings names, if the view is the one of PostgreSQL.
    pub(crate) const NAME_FROM_VIEW: Self = Self(1 << 23);
    /// Changes who acts, perhaps only for the transaction.
    pub(crate) const ROLE: Self = Self(1 << 24);
    /// Changes who acts, as the text says or may say.
    pub(crate) const NAMES_ROLE: Self = Self(Self::ROLE.0 | Self::UNKNOWN_NAME.0 | Self::BOUND_NAME.0);
    /// May change who acts, seen in the text or not.
    pub(crate) const MAY_CHANGE_ROLE: Self = Self(Self::NAMES_ROLE.0 | Self::OPAQUE.0 | Self::DDL.0);
    /// May put another view in the place of PostgreSQL's own.
    pub(crate) const MAY_HIDE_VIEWS: Self = Self(
        Self::MEANING.0 | Self::TEMPORARY.0 | Self::TEMPORARY_CODE.0 | Self::OPAQUE.0 | Self::DDL.0 | Self::UNPIN.0,
    );

    /// Changes, perhaps only for the transaction, how constants in functions are read.
    pub(crate) const CONSTANTS: Self = Self(1 << 19);
    /// Changes how text constants are written.
    pub(crate) const STRING_SYNTAX: Self = Self(1 << 20);
    /// Changes, perhaps only for the transaction, which bytes are letters.
    pub(crate) const ENCODING: Self = Self(1 << 21);

    pub(crate) const RESETS: Self = Self(Self::RESET.0 | Self::LOCAL_RESET.0);
    /// Demands a look at the next CommandCompletes.
    pub(crate) const WATCHED_COMPLETIONS: Self = Self(Self::DEALLOCATE.0 | Self::AMENDED.0 | Self::RESET.0);
    /// Demands a look at the next messages.
    pub(crate) const WATCHED_MESSAGES: Self =
        Self(Self::RESET.0 | Self::AMENDED.0 | Self::UNPIN.0 | Self::DEALLOCATE.0);

    /// May leave state behind in a session, or take it away.
    pub(crate) const LASTING_OR_UNPIN: Self = Self(Self::LASTING.0 | Self::UNPIN.0);
    /// May leave state behind in a session, seen in the text or not.
    pub(crate) const LASTING: Self = Self(Self::VISIBLY_LASTING.0 | Self::OPAQUE.0 | Self::DDL.0);
    /// Leaves state behind in a session, as the text says.
    pub(crate) const VISIBLY_LASTING: Self = Self(
        Self::SETTINGS.0
            | Self::TEMPORARY.0
            | Self::CURSOR.0
            | Self::LOCK.0
            | Self::LISTEN.0
            | Self::PREPARE.0
            | Self::UNKNOWN_NAME.0,
    );
    /// What a text that cannot be read may do.
    pub(crate) const ANYTHING: Self = Self(((1 << 15) - 1) | Self::OPAQUE.0 | Self::DDL.0 | Self::CONSTANTS.0);
    /// Demands a survey of the server's settings.
    pub(crate) const NEEDS_SETTINGS: Self = Self(Self::SETTINGS.0 | Self::OPAQUE.0 | Self::DDL.0);

    /// Whether the sets have an element in common.
    #[inline]
    pub(crate) fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    #[inline]
    pub(crate) const fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(crate) fn intersection(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    pub(crate) fn remove(&mut self, others: Self) {
        self.0 &= !others.0;
    }

    #[inline]
    pub(crate) fn insert(&mut self, others: Self) {
        self.0 |= others.0;
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Findings {
    pub(crate) suspects: Suspects,
    /// Functions that the text calls, in lower case, unless they are known to leave nothing behind.
    pub(crate) calls: Vec<Box<[u8]>>,
    /// The text means something else with standard_conforming_strings off.
    pub(crate) backslash: bool,
    /// The text means something else in some encodings.
    pub(crate) wide: bool,
    /// If the server reads the text otherwise, it may reset parameters.
    pub(crate) may_reset: bool,
    /// If the server reads the text otherwise, it may leave behind what no SQL takes back.
    pub(crate) may_be_irreversible: bool,
    /// The text has more than one statement.
    pub(crate) several: bool,
    /// The first statement ends a transaction.
    pub(crate) exits: bool,
    /// Custom parameters that the text sets, which the server does not list.
    pub(crate) custom: Vec<Box<[u8]>>,
    /// Parameters that the text resets, in lower case; `*` for all.
    pub(crate) resets: Vec<Box<[u8]>>,
    /// Channels that the text stops listening to, in PostgreSQL's spelling; `*` for all.
    pub(crate) unlistens: Vec<Box<[u8]>>,
}

impl Findings {
    /// What a FunctionCall may do, whose function is known only by number.
    pub(crate) fn of_function_call() -> Self {
        let suspects = Suspects(
            Suspects::LASTING.0 & !Suspects::UNKNOWN_NAME.0
                | Suspects::SEQUENCE.0
                | Suspects::MEANING.0
                | Suspects::CONSTANTS.0,
        );
        Self { suspects, ..Self::default() }
    }

    /// Nothing was found.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.suspects == Suspects::NONE && self.calls.is_empty() && !self.backslash && !self.wide
    }

    /// The text was not read.
    pub(crate) fn is_unread(&self) -> bool {
        self.suspects.0 & UNREAD == UNREAD
    }

    /// The resets need no attention.
    pub(crate) fn settle_resets(&mut self) {
        self.suspects.remove(Suspects::RESETS);
        self.resets.clear();
    }

    /// What a text may do that the server reads otherwise. The names found in it are kept.
    pub(crate) fn misread(found: &Self) -> Self {
        let mut supposed = Self { custom: found.custom.clone(), ..Self::unreadable() };
        if !found.may_reset {
            supposed.settle_resets();
        }
        if found.may_be_irreversible {
            supposed.suspects.insert(Suspects::IRREVERSIBLE);
        }
        supposed
    }

    /// What a text may do that is too long to be read.
    pub(crate) fn unreadable() -> Self {
        Self { suspects: Suspects(UNREAD), resets: vec![Box::from(*ALL_PARAMETERS)], exits: true, ..Self::default() }
    }
}

/// What a text may do that was not read.
const UNREAD: u32 =
    Suspects::ANYTHING.0 & !(Suspects::UNKNOWN_NAME.0 | Suspects::BOUND_NAME.0 | Suspects::LAST_VALUE.0);

/// Stands for all names in [`Findings::resets`].
pub(crate) const ALL_PARAMETERS: &[u8; 1] = b"*";

/// Stands for all names in [`Findings::unlistens`].
pub(crate) const ALL_CHANNELS: &[u8; 1] = b"*";
