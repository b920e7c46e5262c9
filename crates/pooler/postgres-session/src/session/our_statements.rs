//! Statements that a server has under names of ours, and those that it has only been asked for: an error may yet
//! discard a forwarded request, so the request is believed within its pipeline only.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::session::{
    descriptions::{Description, Fit},
    statements::Statement,
};

/// Most statements of one server that one long transaction may keep bound; `max_prepared` may be more.
const MAX_BOUND_STATEMENTS: usize = 2048;

/// Most bytes of a server's statements, but for those that the open transaction has bound.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// The statements that a server has, or was asked for, under names of ours.
#[derive(Default)]
pub(crate) struct OurStatements {
    map: BTreeMap<u32, ServerStatement>,
    clock: u64,
    /// The clock when the present lease or transaction began.
    transaction_began: u64,
    pipeline: u32,
    /// Unanswered Describes that are looked at, oldest first.
    describing: VecDeque<Describing>,
    /// The statements that clean the server.
    pub(crate) cleaning: CleaningStatements,
    /// A client may have parsed a statement under its own name.
    pub(crate) has_clients: bool,
}

/// Most names of one holder that are told apart.
const MAX_HOLDER_NAMES: usize = 64;

/// Names under which the holder may have statements of its own on a server.
#[derive(Default)]
pub(crate) struct HolderNames {
    names: Vec<Box<[u8]>>,
    all: bool,
}

impl HolderNames {
    pub(crate) fn add(&mut self, name: &[u8]) {
        if self.may_have(name) {
            return;
        }
        if self.names.len() < MAX_HOLDER_NAMES {
            self.names.push(name.into());
        } else {
            self.all = true;
        }
    }

    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        self.all || self.names.iter().any(|known| **known == *name)
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.names.retain(|known| **known != *name);
    }
}

/// Whether a server has prepared the statements that clean it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CleaningStatements {
    #[default]
    Missing,
    There,
    /// One of them may have been deallocated.
    Doubtful,
}

struct ServerStatement {
    statement: Arc<Statement>,
    /// The edition that it was parsed from.
    edition: u32,
    /// The server has confirmed it.
    there: bool,
    /// Unanswered Parses.
    asked: u32,
    /// Unanswered Closes.
    closing: u32,
    /// The last request about it was a Close.
    closed: bool,
    /// A statement may have deallocated it.
    maybe_deallocated: bool,
    /// The last answered Parse was discarded: an older copy may be there.
    discarded: bool,
    /// The pipeline of the last Parse.
    pipeline: u32,
    used: u64,
    /// The clock at the last Bind.
    bound: u64,
    /// The clock at the last Parse.
    parsed: u64,
    /// The last Parse named the types that clients were told.
    names_told: bool,
    /// What the server is known to have made of the last Parse.
    description: Description,
    /// Unanswered Describes since then: the client's, and ours.
    describes: u32,
    probes: u32,
}

/// The portal that was bound last, and its statement.
pub(crate) struct BoundLast {
    pub(crate) portal: Box<[u8]>,
    /// The client's name of the statement.
    pub(crate) name: Box<[u8]>,
    pub(crate) statement: Arc<Statement>,
}

/// An unanswered Describe.
pub(crate) struct Describing {
    /// The client's name of the statement; `None` if the Describe is ours.
    pub(crate) name: Option<Box<[u8]>>,
    pub(crate) statement: Arc<Statement>,
    parsed: u64,
    /// The answer, as far as it has come.
    pub(crate) description: Description,
}

/// Whether a server's statement is what its client was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Likeness {
    /// The statement is the same, or the client will have been told by this server when it has read all answers.
    #[default]
    Same,
    Different,
    /// The server has to be asked.
    Unknown,
    /// The server was asked, and has not answered.
    Asked,
}

/// What a server needs before a statement can be used there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    Nothing,
    Parse,
    /// The statement may or may not be there.
    CloseAndParse,
}

impl OurStatements {
    /// Statements that are on the server.
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    /// A lease has begun, or a transaction has ended: no portal is open.
    pub(crate) fn begin_transaction(&mut self) {
        self.transaction_began = self.clock;
    }

    pub(crate) fn end_pipeline(&mut self) {
        self.pipeline = self.pipeline.wrapping_add(1);
    }

    /// Counts the Syncs that were forwarded.
    pub(crate) fn pipeline(&self) -> u32 {
        self.pipeline
    }

    pub(crate) fn need(&mut self, statement: &Arc<Statement>) -> Need {
        self.clock += 1;
        let Some(copy) = self.map.get_mut(&statement.id) else { return Need::Parse };
        copy.used = self.clock;
        let fits = !copy.maybe_deallocated && !copy.discarded && copy.edition == statement.edition.load(Relaxed);
        let asked = copy.asked > 0 && copy.pipeline == self.pipeline && !copy.closed;
        if fits && (asked || (copy.there && copy.closing == 0)) { Need::Nothing } else { Need::CloseAndParse }
    }

    /// What the server needs for a client that prepares the statement anew: a copy whose types were named as others
    /// were told them does not count, unless it may have open portals.
    pub(crate) fn need_as_written(&mut self, statement: &Arc<Statement>) -> Need {
        let need = self.need(statement);
        let names_told = |copy: &ServerStatement| copy.names_told && copy.bound <= self.transaction_began;
        match need {
            Need::Nothing if self.map.get(&statement.id).is_some_and(names_told) => Need::CloseAndParse,
            _ => need,
        }
    }

    /// A Parse is forwarded that names the types that clients were told.
    pub(crate) fn parse(&mut self, statement: &Arc<Statement>) {
        self.parse_with(statement, statement.told.parameters());
    }

    /// A Parse is forwarded as the client has written it.
    pub(crate) fn parse_as_written(&mut self, statement: &Arc<Statement>) {
        self.parse_with(statement, None);
    }

    fn parse_with(&mut self, statement: &Arc<Statement>, named: Option<&[u8]>) {
        self.clock += 1;
        let edition = statement.edition.load(Relaxed);
        let copy = self.map.entry(statement.id).or_insert_with(|| ServerStatement {
            statement: statement.clone(),
            edition,
            there: false,
            asked: 0,
            closing: 0,
            closed: false,
            maybe_deallocated: false,
            discarded: false,
            pipeline: 0,
            used: 0,
            bound: 0,
            parsed: 0,
            names_told: false,
            description: Description::default(),
            describes: 0,
            probes: 0,
        });
        copy.edition = edition;
        (copy.closed, copy.maybe_deallocated, copy.discarded) = (false, false, false);
        copy.names_told = named.is_some();
        copy.description = Description { columns: None, parameters: named.map(Box::from) };
        (copy.parsed, copy.describes, copy.probes) = (self.clock, 0, 0);
        copy.asked += 1;
        copy.pipeline = self.pipeline;
        copy.used = self.clock;
    }

    /// Whether the server's statement, which needs nothing more, is what clients were told.
    pub(crate) fn likeness(&self, statement: &Statement) -> Likeness {
        let Some(copy) = self.map.get(&statement.id) else { return Likeness::Unknown };
        match statement.told.fit(&copy.description) {
            _ if copy.probes > 0 => Likeness::Asked,
            _ if copy.describes > 0 => Likeness::Same,
            Fit::Same => Likeness::Same,
            Fit::Different => Likeness::Different,
            Fit::Unknown => Likeness::Unknown,
        }
    }

    /// Whether the parameters of the server's statement are what clients were told.
    pub(crate) fn likeness_of_parameters(&self, statement: &Statement) -> Likeness {
        let Some(copy) = self.map.get(&statement.id) else { return Likeness::Unknown };
        match statement.told.fit_of_parameters(&copy.description) {
            _ if copy.probes > 0 => Likeness::Asked,
            Fit::Same => Likeness::Same,
            Fit::Different => Likeness::Different,
            Fit::Unknown => Likeness::Unknown,
        }
    }

    /// A Describe is forwarded whose answer is looked at, under the client's `name` or for ourselves.
    pub(crate) fn describe(&mut self, statement: &Arc<Statement>, name: Option<&[u8]>) {
        let copy = self.map.get_mut(&statement.id).expect("it was parsed before it is described");
        *(if name.is_some() { &mut copy.describes } else { &mut copy.probes }) += 1;
        let (parsed, statement, description) = (copy.parsed, statement.clone(), Description::default());
        self.describing.push_back(Describing { name: name.map(Box::from), statement, parsed, description });
    }

    /// The answer to the oldest Describe noted by `describe` has begun.
    pub(crate) fn describe_parameters(&mut self, parameters: Box<[u8]>) {
        if let Some(describing) = self.describing.front_mut() {
            describing.description.parameters = Some(parameters);
        }
    }

    /// The oldest Describe noted by `describe` was answered, or (without `columns`) discarded. An answer tells what the
    /// server has.
    pub(crate) fn settle_describe(&mut self, columns: Option<u64>) -> Describing {
        let mut describing = self.describing.pop_front().expect("only what was asked is answered");
        describing.description.columns = columns;
        let copy = self.map.get_mut(&describing.statement.id);
        if let Some(copy) = copy.filter(|copy| copy.parsed == describing.parsed) {
            *(if describing.name.is_some() { &mut copy.describes } else { &mut copy.probes }) -= 1;
            if columns.is_some() {
                let Description { parameters, .. } = &describing.description;
                copy.description.columns = columns;
                copy.description.parameters = parameters.clone().or(copy.description.parameters.take());
            }
        }
        describing
    }

    pub(crate) fn close(&mut self, id: u32) {
        if let Some(copy) = self.map.get_mut(&id) {
            copy.closing += 1;
            copy.closed = true;
        }
    }

    pub(crate) fn bind(&mut self, statement: &Statement) {
        if let Some(copy) = self.map.get_mut(&statement.id) {
            copy.bound = self.clock;
        }
    }

    /// A statement was executed that deallocates one of unknown name.
    pub(crate) fn doubt_all(&mut self) {
        self.map.values_mut().for_each(|copy| copy.maybe_deallocated = true);
        if self.cleaning == CleaningStatements::There {
            self.cleaning = CleaningStatements::Doubtful;
        }
    }

    /// A statement that must go for another, if there are more than `max` or too many bytes. Statements bound in the
    /// open transaction stay for their portals, up to a limit.
    pub(crate) fn find_surplus(&self, max: usize) -> Option<u32> {
        let there = || self.map.iter().filter(|(_, copy)| !copy.closed);
        let (count, bytes) =
            there().fold((0, 0), |(count, bytes), (_, copy)| (count + 1, bytes + copy.statement.body.len()));
        if count <= max && bytes <= MAX_TEXT_BYTES {
            return None;
        }
        let any = count > MAX_BOUND_STATEMENTS.max(max);
        let may_go = |copy: &ServerStatement| (any || copy.bound <= self.transaction_began) && copy.used < self.clock;
        there().filter(|(_, copy)| may_go(copy)).min_by_key(|(_, copy)| copy.used).map(|(id, _)| *id)
    }

    /// A Parse of ours was answered, or discarded.
    pub(crate) fn settle_parse(&mut self, id: u32, done: bool) {
        if let Some(copy) = self.map.get_mut(&id) {
            copy.asked -= 1;
            copy.there |= done;
            copy.discarded = !done;
            self.forget_if_gone(id);
        }
    }

    /// A Close of ours was answered, or discarded.
    pub(crate) fn settle_close(&mut self, id: u32, done: bool) {
        if let Some(copy) = self.map.get_mut(&id) {
            copy.closing -= 1;
            copy.there &= !done;
            copy.closed &= done || copy.closing > 0;
            self.forget_if_gone(id);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.cleaning = CleaningStatements::Missing;
        for copy in self.map.values_mut() {
            copy.there = false;
        }
        self.map.retain(|_, copy| copy.asked > 0 || copy.closing > 0);
    }

    /// The server says that a statement no longer fits; it must be one that this lease has used.
    pub(crate) fn outdated(&mut self) {
        for copy in self.map.values().filter(|copy| copy.used > self.transaction_began) {
            // Raised once, however many servers notice.
            let seen = copy.edition;
            copy.statement.retire();
            let _ = copy.statement.edition.compare_exchange(seen, seen.wrapping_add(1), Relaxed, Relaxed);
        }
    }

    fn forget_if_gone(&mut self, id: u32) {
        let gone = |copy: &ServerStatement| !copy.there && copy.asked == 0 && copy.closing == 0;
        if self.map.get(&id).is_some_and(gone) {
            self.map.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::statements::{Statements, tests::statements};

    /// What the statement needs after these steps. P: a Parse is forwarded, p: one was answered, x: one was discarded;
    /// C, c, y: the same of a Close; S: a Sync is forwarded; D: a statement of unknown name is deallocated.
    fn need_after(steps: &str) -> Need {
        let statement = statements(1).remove(0);
        let mut server = OurStatements::default();
        for step in steps.chars() {
            match step {
                'P' => server.parse(&statement),
                'C' => server.close(statement.id),
                'p' | 'x' => server.settle_parse(statement.id, step == 'p'),
                'c' | 'y' => server.settle_close(statement.id, step == 'c'),
                'S' => server.end_pipeline(),
                'D' => server.doubt_all(),
                _ => panic!("{step}"),
            }
        }
        server.need(&statement)
    }

    #[test]
    fn a_request_is_believed_within_its_pipeline_and_once_it_is_answered() {
        for (need, all) in [
            (Need::Parse, &["", "Px", "PpCyCc"][..]),
            (Need::Nothing, &["P", "PSp", "PpDCP", "PpCy", "PCCP", "PCCPpccp"]),
            // A Parse that fell victim to an error confirms nothing, and a Parse behind which a Close stands neither.
            (Need::CloseAndParse, &["PS", "PpD", "PpDCPyxS", "PpC", "PC"]),
        ] {
            for steps in all {
                assert_eq!(need_after(steps), need, "{steps}");
            }
        }
    }

    fn with(all: &[Arc<Statement>]) -> OurStatements {
        let mut server = OurStatements::default();
        for s in all {
            server.parse(s);
            server.settle_parse(s.id, true);
        }
        server
    }

    #[test]
    fn the_least_recently_used_goes_unless_this_transaction_has_bound_it() {
        let all = statements(3);
        let mut server = with(&all);
        assert_eq!(server.find_surplus(2), Some(all[0].id));
        server.bind(&all[0]);
        server.bind(&all[1]);
        assert_eq!(server.find_surplus(2), None);
        server.begin_transaction();
        assert_eq!(server.find_surplus(2), Some(all[0].id));
        server.need(&all[0]);
        assert_eq!(server.find_surplus(2), Some(all[1].id));
        assert_eq!(server.find_surplus(3), None);
        server.close(all[1].id);
        assert_eq!(server.find_surplus(2), None);
    }

    #[test]
    fn long_texts_go_before_there_are_many() {
        let all = Statements::default();
        let text = |i: usize| [i.to_string().as_bytes(), &[b' '; 60_000]].concat();
        let mut server = OurStatements::default();
        for i in 0..1000 {
            let s = all.intern(Some(1), 0, &text(i), None);
            server.parse(&s);
            server.settle_parse(s.id, true);
            while let Some(id) = server.find_surplus(500) {
                server.close(id);
                server.settle_close(id, true);
            }
        }
        assert!(server.map.len() * 60_000 <= MAX_TEXT_BYTES, "{}", server.map.len());
    }

    #[test]
    fn a_plan_that_does_not_fit_is_parsed_again_by_every_server() {
        let s = statements(1).remove(0);
        let mut servers = [OurStatements::default(), OurStatements::default()];
        for server in &mut servers {
            server.parse(&s);
            server.settle_parse(s.id, true);
        }
        servers[0].outdated();
        servers[1].outdated();
        assert_eq!(s.edition.load(Relaxed), 1);
        assert_eq!(servers[0].need(&s), Need::CloseAndParse);
        assert_eq!(servers[1].need(&s), Need::CloseAndParse);
    }
}
