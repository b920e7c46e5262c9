//! What the texts forwarded to a server since its grant, or its last survey, may have done to its session.

use crate::{
    session::reset::AmendedRequests,
    sql::{ALL_PARAMETERS, Suspects},
};

/// Most names of parameters noted of one transaction as set, and as reset.
const MAX_NAMES: usize = 256;

type Names = Vec<Box<[u8]>>;

/// What the forwarded texts may have left in a session.
#[derive(Default)]
pub(crate) struct Traces {
    suspects: Suspects,
    /// Custom parameters that the texts name.
    custom: Names,
    /// Custom parameters that texts since the last cleaning name.
    custom_since_cleaning: Names,
    /// Parameters that RESET or DISCARD in the texts may have reset.
    resets: Names,
    /// A COMMIT was answered since a parameter may have been reset.
    resets_committed: bool,
    /// An error followed: whether the resets hold is asked when no transaction is open.
    resets_in_doubt: bool,
    /// The holder has discarded everything since the last survey.
    discarded_all: bool,
    /// Requests that were forwarded in an amended form, if any were.
    amended: Option<Box<AmendedRequests>>,
}

impl Traces {
    /// A text may have done one of these.
    #[inline]
    pub(crate) fn may_have_any(&self, suspects: Suspects) -> bool {
        self.suspects.intersects(suspects)
    }

    /// All that the texts may have done.
    #[inline]
    pub(crate) fn suspects(&self) -> Suspects {
        self.suspects
    }

    /// The texts have done nothing that matters.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.suspects == Suspects::NONE
    }

    pub(crate) fn insert(&mut self, suspects: Suspects) {
        self.suspects.insert(suspects);
    }

    /// The transaction has ended and is dealt with.
    pub(crate) fn end_transaction(&mut self) {
        self.suspects = Suspects::NONE;
        (self.custom, self.resets, self.amended) = (Vec::new(), Vec::new(), None);
        (self.resets_committed, self.resets_in_doubt) = (false, false);
    }

    pub(crate) fn forget_cleaned(&mut self) {
        self.custom_since_cleaning = Vec::new();
    }
}

impl Traces {
    /// A text may set this custom parameter.
    pub(crate) fn note_custom(&mut self, name: &[u8]) {
        let since_cleaning = &mut self.custom_since_cleaning;
        if !since_cleaning.iter().any(|known| **known == *name) && since_cleaning.len() < MAX_NAMES {
            since_cleaning.push(name.into());
        }
        if self.custom.iter().any(|known| **known == *name) {
            return;
        }
        if self.custom.len() < MAX_NAMES {
            self.custom.push(name.into());
        } else {
            self.suspects.insert(Suspects::UNKNOWN_NAME);
        }
    }

    /// Custom parameters of the texts, and of all texts since the last cleaning.
    pub(crate) fn custom(&self) -> [&[Box<[u8]>]; 2] {
        [&self.custom, &self.custom_since_cleaning]
    }

    /// Whether a text since the last survey may have set this custom parameter.
    pub(crate) fn may_have_set_custom(&self, name: &[u8]) -> bool {
        self.custom.iter().any(|seen| seen.eq_ignore_ascii_case(name))
    }
}

impl Traces {
    /// A text resets this parameter.
    pub(crate) fn note_reset(&mut self, name: &[u8]) {
        let names = &mut self.resets;
        let name = if names.len() < MAX_NAMES { name } else { ALL_PARAMETERS };
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }

    pub(crate) fn resets(&self) -> &[Box<[u8]>] {
        &self.resets
    }

    pub(crate) fn note_commit(&mut self) {
        self.resets_committed |= self.suspects.intersects(Suspects::RESET);
    }

    /// The last request failed, and has reset nothing. A DISCARD ALL, by contrast, is committed at once.
    pub(crate) fn note_failure(&mut self) {
        self.suspects.remove(Suspects::RESET);
        if self.resets_committed {
            // A transaction that goes on, after AND CHAIN, must not be asked: a question would be its first statement,
            // and SET TRANSACTION too late.
            self.resets_in_doubt = true;
        } else {
            self.resets.clear();
        }
    }

    /// A survey looks for resets. If that is within a transaction, a rollback undoes what the survey finds, though the
    /// RESET may have been committed before.
    pub(crate) fn note_survey_for_resets(&mut self, in_transaction: bool) {
        self.suspects.remove(Suspects::RESET);
        self.resets_in_doubt |= in_transaction;
    }

    /// Such a survey of a client in session mode, which keeps its server, also settles what was noted as set and as
    /// discarded.
    pub(crate) fn note_survey_of_session(&mut self) {
        self.suspects.remove(Suspects::SETTINGS);
        if !self.resets_in_doubt {
            (self.custom, self.resets) = (Vec::new(), Vec::new());
        }
        (self.discarded_all, self.resets_committed) = (false, false);
    }

    /// No transaction is open: doubtful resets can be asked for now.
    #[inline]
    pub(crate) fn ask_doubted_resets(&mut self) {
        if std::mem::take(&mut self.resets_in_doubt) {
            self.suspects.insert(Suspects::RESET);
        }
    }

    /// Doubtful resets are not asked for.
    pub(crate) fn settle_doubted_resets(&mut self) {
        self.resets_in_doubt = false;
    }
}

impl Traces {
    /// DISCARD ALL was answered. What is noted of the texts stays until the survey.
    pub(crate) fn note_discard_all(&mut self) {
        self.discarded_all = true;
    }

    /// The holder has discarded everything since the last survey.
    pub(crate) fn has_discarded_all(&self) -> bool {
        self.discarded_all
    }

    /// The server was surveyed.
    pub(crate) fn forget_discard_all(&mut self) {
        self.discarded_all = false;
    }

    /// Requests in an amended form, if there are any.
    #[inline]
    pub(crate) fn amended(&mut self) -> Option<&mut AmendedRequests> {
        self.amended.as_deref_mut()
    }

    /// A request is forwarded in an amended form.
    pub(crate) fn begin_amended(&mut self) -> &mut AmendedRequests {
        self.suspects.insert(Suspects::AMENDED);
        self.amended.get_or_insert_default()
    }
}
