//! What a text of SQL may do to the session that runs it: suspicions, and the names that go with them. Finding them is
//! up to `scan`.

/// What a text may do to a session, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Suspects(u32);

impl Suspects {
    pub(crate) const NONE: Self = Self(0);
    /// Changes run-time parameters beyond the transaction.
    pub(crate) const SETTINGS: Self = Self(1);
    /// Changes, perhaps only for the transaction, what the text of a statement parsed later means.
    pub(crate) const MEANING: Self = Self(1 << 1);
    /// Creates temporary objects.
    pub(crate) const TEMPORARY: Self = Self(1 << 2);
    /// Opens a cursor that outlives its transaction.
    pub(crate) const CURSOR: Self = Self(1 << 3);
    /// Takes or gives back an advisory lock of the session.
    pub(crate) const LOCK: Self = Self(1 << 4);
    pub(crate) const LISTEN: Self = Self(1 << 5);
    /// Prepares a statement in SQL.
    pub(crate) const PREPARE: Self = Self(1 << 6);
    /// Asks for the last value of a sequence in this session.
    pub(crate) const LAST_VALUE: Self = Self(1 << 7);
    /// May advance a sequence.
    pub(crate) const SEQUENCE: Self = Self(1 << 8);
    /// May end something that ties a client to its server.
    pub(crate) const UNPIN: Self = Self(1 << 9);
    /// Forgets prepared statements.
    pub(crate) const DEALLOCATE: Self = Self(1 << 10);
    /// Sets a parameter whose name cannot be seen.
    pub(crate) const UNKNOWN_NAME: Self = Self(1 << 11);
    /// Sets a parameter whose name is bound to it.
    pub(crate) const BOUND_NAME: Self = Self(1 << 12);
    /// Resets parameters to what they were when the session began.
    pub(crate) const RESET: Self = Self(1 << 13);
    /// The same for the transaction only.
    pub(crate) const LOCAL_RESET: Self = Self(1 << 14);
    /// Not of a text: what was forwarded is not what the client has sent.
    pub(crate) const AMENDED: Self = Self(1 << 15);

    /// Runs something whose text is not seen, or not understood: it may have left anything behind.
    pub(crate) const OPAQUE: Self = Self(1 << 16);
    /// May leave something behind that no SQL takes back.
    pub(crate) const IRREVERSIBLE: Self = Self(1 << 17);
    /// Changes what the database consists of.
    pub(crate) const DDL: Self = Self(1 << 18);

    /// Makes a temporary object: it may act behind texts while it exists, and no other session knows of it.
    pub(crate) const TEMPORARY_CODE: Self = Self(1 << 22);
    /// Sets a parameter that the view pg_settings names, if that is PostgreSQL's own.
    pub(crate) const NAME_FROM_VIEW: Self = Self(1 << 23);
    /// Changes who acts, perhaps only for the transaction.
    pub(crate) const ROLE: Self = Self(1 << 24);
    /// Changes who acts, as the text says, or may say.
    pub(crate) const NAMES_ROLE: Self = Self(Self::ROLE.0 | Self::UNKNOWN_NAME.0 | Self::BOUND_NAME.0);
    /// What may change who acts, seen in the text or not.
    pub(crate) const MAY_CHANGE_ROLE: Self = Self(Self::NAMES_ROLE.0 | Self::OPAQUE.0 | Self::DDL.0);
    /// What may make it another's.
    pub(crate) const MAY_HIDE_VIEWS: Self = Self(
        Self::MEANING.0 | Self::TEMPORARY.0 | Self::TEMPORARY_CODE.0 | Self::OPAQUE.0 | Self::DDL.0 | Self::UNPIN.0,
    );

    /// Changes, perhaps only for the transaction, how constants in functions are read.
    pub(crate) const CONSTANTS: Self = Self(1 << 19);
    /// Changes how text constants are written.
    pub(crate) const STRING_SYNTAX: Self = Self(1 << 20);
    /// Changes, perhaps only for the transaction, which bytes are letters.
    pub(crate) const ENCODING: Self = Self(1 << 21);

    /// Resets parameters, for the transaction or longer.
    pub(crate) const RESETS: Self = Self(Self::RESET.0 | Self::LOCAL_RESET.0);
    /// What the next CommandCompletes have to be looked at for.
    pub(crate) const WATCHED_COMPLETIONS: Self = Self(Self::DEALLOCATE.0 | Self::AMENDED.0 | Self::RESET.0);
    /// What the next messages have to be looked at for.
    pub(crate) const WATCHED_MESSAGES: Self =
        Self(Self::RESET.0 | Self::AMENDED.0 | Self::UNPIN.0 | Self::DEALLOCATE.0);

    /// All that may leave something behind in a session, or take it away.
    pub(crate) const LASTING_OR_UNPIN: Self = Self(Self::LASTING.0 | Self::UNPIN.0);
    /// All that may leave something behind in a session, seen in the text or not.
    pub(crate) const LASTING: Self = Self(Self::VISIBLY_LASTING.0 | Self::OPAQUE.0 | Self::DDL.0);
    /// All that leaves something behind in a session as the text says.
    pub(crate) const VISIBLY_LASTING: Self = Self(
        1 | Self::TEMPORARY.0 | Self::CURSOR.0 | Self::LOCK.0 | Self::LISTEN.0 | Self::PREPARE.0 | Self::UNKNOWN_NAME.0,
    );
    /// What is supposed of a text that cannot be read.
    pub(crate) const ANYTHING: Self = Self(((1 << 15) - 1) | Self::OPAQUE.0 | Self::DDL.0 | Self::CONSTANTS.0);
    /// What has to be asked of the server's settings for.
    pub(crate) const NEEDS_SETTINGS: Self = Self(Self::SETTINGS.0 | Self::OPAQUE.0 | Self::DDL.0);

    /// Whether any of `others` is in it.
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

/// What was found in a text.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Findings {
    pub(crate) suspects: Suspects,
    /// Names of functions that it calls, in lower case, unless they are known to leave nothing behind.
    pub(crate) calls: Vec<Box<[u8]>>,
    /// It means something else with standard_conforming_strings off.
    pub(crate) backslash: bool,
    /// It means something else in some of the encodings.
    pub(crate) wide: bool,
    /// Where it may be read otherwise, it may set something back.
    pub(crate) may_reset: bool,
    /// Likewise, it may leave behind what no SQL takes back.
    pub(crate) may_be_irreversible: bool,
    /// It has more than one statement.
    pub(crate) several: bool,
    /// Its first statement ends a transaction.
    pub(crate) exits: bool,
    /// Names with a dot of parameters that it sets: the server does not list these.
    pub(crate) custom: Vec<Box<[u8]>>,
    /// Names of parameters that it sets back, in lower case; `*` for all.
    pub(crate) resets: Vec<Box<[u8]>>,
    /// Channels that it stops listening to, as PostgreSQL spells them; `*` for all.
    pub(crate) unlistens: Vec<Box<[u8]>>,
}

impl Findings {
    /// What is supposed of a FunctionCall, whose function is known by number only.
    pub(crate) fn of_call() -> Self {
        let suspects = Suspects(
            Suspects::LASTING.0 & !Suspects::UNKNOWN_NAME.0
                | Suspects::SEQUENCE.0
                | Suspects::MEANING.0
                | Suspects::CONSTANTS.0,
        );
        Self { suspects, ..Self::default() }
    }

    /// Nothing at all was found.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.suspects == Suspects::NONE && self.calls.is_empty() && !self.backslash && !self.wide
    }

    /// Nothing is known of it.
    pub(crate) fn is_unread(&self) -> bool {
        self.suspects.0 & UNREAD == UNREAD
    }

    /// What it sets back needs no attention.
    pub(crate) fn settle_resets(&mut self) {
        self.suspects.remove(Suspects::RESETS);
        self.resets.clear();
    }

    /// What is supposed of a text that is read otherwise by the server. The names that were found in it are as good as
    /// any.
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

    /// What is supposed of a text that is too long to be read.
    pub(crate) fn unreadable() -> Self {
        Self { suspects: Suspects(UNREAD), resets: vec![Box::from(*ALL_PARAMETERS)], exits: true, ..Self::default() }
    }
}

/// What is supposed of a text that was not read.
const UNREAD: u32 =
    Suspects::ANYTHING.0 & !(Suspects::UNKNOWN_NAME.0 | Suspects::BOUND_NAME.0 | Suspects::LAST_VALUE.0);

/// Stands for all names in [`Findings::resets`].
pub(crate) const ALL_PARAMETERS: &[u8; 1] = b"*";

/// Stands for all names in [`Findings::unlistens`].
pub(crate) const ALL_CHANNELS: &[u8; 1] = b"*";
