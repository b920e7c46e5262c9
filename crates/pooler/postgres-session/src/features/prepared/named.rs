//! Named prepared statements of a client in the messages that it sends and gets: its names are replaced by
//! those of ours, and what the server at hand does not have is parsed before it is used.
//!
//! What need not be done by the server is still answered by it: in place of a Parse it has done before, it is sent a
//! Close of a statement that never exists. So every answer keeps its place, also among errors.

use std::{ops::Range, sync::Arc};

use seam::{Outbox, Peer, ServerTag};

use crate::{
    directory::OnState,
    exchange::{Exchange, Note},
    features::{
        plans,
        prepared::told,
        rejection::reject,
        sequences,
        settings::{bound_names::note_bound_names, reset},
    },
    session::{
        Arrived, Client, Likeness, Link, Need, PREFIX, Pin, Postgres, Reliance, Server, Soil, Statement, copy,
        our_statements::OurStatements,
        request::Step,
        statements::{Meaning, NOTHING, TAKEN},
    },
    sql::{Deallocate, Findings, Suspects, deallocates, deallocates_all},
    wire::{Failure, HEADER, code, front, message::write, take_text, write_parse},
};

pub(crate) fn follow(postgres: &Postgres, link: &mut Link<'_>, message: &Arrived<'_>, name: Range<usize>) -> Step {
    let takes_note = matches!(message.header.kind, front::PARSE | front::CLOSE);
    if takes_note && is_full(link.client) {
        return Step::TooMany;
    }
    match message.header.kind {
        front::PARSE => follow_parse(postgres, link, message, name),
        front::CLOSE => follow_close(link, message, name),
        _ => follow_bind_or_describe(postgres, link, message, name),
    }
}

/// No further request about statements may be noted for the client.
fn is_full(client: &Client) -> bool {
    client.named.as_ref().is_some_and(|named| named.is_full())
}

/// The statement that the client means, if there is one; or what to do until that is known.
fn meaning(client: &mut Client, server: &Server, name: &[u8]) -> Result<Option<Arc<Statement>>, Step> {
    let Some(named) = &mut client.named else { return Ok(None) };
    let pipeline = server.statements.ours().map_or(0, |prepared| prepared.pipeline());
    match named.meaning(name, pipeline) {
        Meaning::Statement(statement) => Ok(Some(statement)),
        Meaning::Nothing => Ok(None),
        // However full the input is: the answers to earlier pipelines come without more of it.
        Meaning::Undecided => {
            client.awaits_answers = true;
            Err(Step::Wait)
        }
    }
}

/// Sets pools apart: an odd number, whose multiples share few bits.
const POOL_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of what rules the meaning of a text parsed now; `None` if no other client may share the statement. Texts mean
/// other tables in other databases.
fn context(client: &Client, server: &Server) -> Option<u64> {
    if server.traces.may_have_any(Suspects::MEANING.union(Suspects::OPAQUE)) || may_hide_tables(client, server) {
        return None;
    }
    Some(client.settings().current().context() ^ u64::from(server.pool.0).wrapping_mul(POOL_FACTOR))
}

/// A temporary table of this client may hide one that a text names.
fn may_hide_tables(client: &Client, server: &Server) -> bool {
    // Who is pinned because of an unknown setting may have temporary tables, too.
    server.traces.may_have_any(Suspects::TEMPORARY) || matches!(client.pin, Some(Pin::Temporary | Pin::UnknownSetting))
}

fn follow_parse(postgres: &Postgres, link: &mut Link<'_>, message: &Arrived<'_>, name: Range<usize>) -> Step {
    if message.may_wait() {
        return Step::Wait;
    }
    let meaning = match meaning(link.client, link.server, &message.bytes[name.clone()]) {
        Ok(meaning) => meaning,
        Err(step) => return step,
    };
    if let Some(known) = meaning {
        // The server refuses it, since it gets one of that name first; but before that it reads the text.
        occupy_name(link);
        let (header, before) = renamed(message, &name, &TAKEN);
        link.write_to_server(|to| {
            [&header[..], before, TAKEN.as_bytes()].iter().for_each(|part| to.extend_from_slice(part))
        });
        let pipeline = link.server.statements.ours_or_new().pipeline();
        link.client.named.as_mut().expect("it has the statement").parse(&message.bytes[name.clone()], known, pipeline);
        link.server.exchange.note(Note::Taken);
        return Step::Replaced(name.end);
    }
    if !message.is_whole() || link.server.statements.may_have_holder_name(&message.bytes[name.clone()]) {
        // Too long to be kept: it stays with this server, under its own name. Where there was one like that, the server
        // tells whether it still is. A survey may not tell it from ours, or another pooler's.
        link.server.traces.insert(Suspects::PREPARE);
        link.server.statements.note_holder_name(&message.bytes[name]);
        link.server.soil.insert(Soil::ALL);
        return Step::Forward;
    }
    let text = &message.bytes[name.end + 1..message.end()];
    let name = &message.bytes[name];
    let amended = reset::amend_named_parse(link.client, link.server, text);
    let text = amended.as_deref().unwrap_or(text);
    let statement = postgres.statements.intern(
        context(link.client, link.server),
        link.server.catalogue.shared().schema_version(),
        text,
        None,
    );
    let named = link.client.named.get_or_insert_default();
    let prepared = link.server.statements.ours_or_new();
    named.parse(name, statement.clone(), prepared.pipeline());
    match prepared.need_as_written(&statement) {
        // A Parse fails in a transaction that has failed, and a Close does not.
        Need::Nothing if link.server.exchange.next_meets_no_failure() => {
            link.write_to_server(write_idle_close);
            link.server.exchange.note(Note::KnownParse);
        }
        need => {
            if need != Need::Parse {
                write_our_close(prepared, &mut link.server.exchange, link.server_tag, statement.id, link.out);
            }
            // It names no types that others were told: a client that prepares a text anew is told its types now.
            link.out.insert(Peer::Server(link.server_tag), |to| write_parse(to, statement.name.as_bytes(), text));
            prepared.parse_as_written(&statement);
            link.server.exchange.note(Note::Parse(statement.id));
            make_room(link);
        }
    }
    Step::Replaced(message.end())
}

/// Has the server prepare an empty statement under a name that is used for nothing else.
fn occupy_name(link: &mut Link<'_>) {
    link.out.insert(Peer::Server(link.server_tag), |to| {
        write(to, front::CLOSE, |to| to.extend_from_slice(format!("S{}\0", *TAKEN).as_bytes()));
        write_parse(to, TAKEN.as_bytes(), b"\0\0\0");
    });
    link.server.exchange.note(Note::Swallowed);
    link.server.exchange.note(Note::Swallowed);
}

/// The name of the client's statement that a Parse of DEALLOCATE is about, if any; the error says what to do first.
pub(crate) fn name_to_deallocate(
    client: &mut Client,
    server: &mut Server,
    message: &Arrived<'_>,
) -> Option<Result<Vec<u8>, Step>> {
    if client.named.is_none() || !message.is_whole() {
        return None;
    }
    let Some(Deallocate::One(name)) = deallocates(message.body().get(1..)?) else { return None };
    match meaning(client, server, &name) {
        Err(step) => return Some(Err(step)),
        Ok(found) => found?,
    };
    Some(if is_full(client) { Err(Step::TooMany) } else { Ok(name) })
}

/// Forwards the Parse of a DEALLOCATE as one of an empty statement: the server keeps the client's statement for others,
/// and to prepare a missing one first might fail.
pub(crate) fn deallocate(link: &mut Link<'_>, message: &Arrived<'_>, name: &[u8]) -> Step {
    let mut body = &message.body()[1..];
    take_text(&mut body).expect("its text was read");
    occupy_name(link);
    link.write_to_server(|to| {
        write(to, front::PARSE, |to| {
            to.extend_from_slice(format!("\0DEALLOCATE {}\0", *TAKEN).as_bytes());
            to.extend_from_slice(body);
        });
    });
    let prepared = link.server.statements.ours_or_new();
    link.client.named.as_mut().expect("it has the statement").close(name, prepared.pipeline());
    link.server.exchange.note(Note::Close);
    Step::Replaced(message.end())
}

fn follow_close(link: &mut Link<'_>, message: &Arrived<'_>, name: Range<usize>) -> Step {
    let name = &message.bytes[name];
    match meaning(link.client, link.server, name) {
        Err(step) => return step,
        Ok(None) if is_ours(name) => {
            link.write_to_server(write_idle_close);
            link.server.exchange.enter_extended();
            return Step::Replaced(message.end());
        }
        Ok(None) => {
            if link.server.stays_out_of_pool() {
                link.server.traces.insert(Suspects::UNPIN);
            }
            if link.server.exchange.is_settled() {
                link.server.statements.remove_holder_name(name);
            }
            return Step::Forward;
        }
        Ok(Some(_)) => {}
    }
    let named = link.client.named.as_mut().expect("it has the statement");
    // From here on the pipelines are counted: what stands behind the next Sync is not in this one.
    named.close(name, link.server.statements.ours_or_new().pipeline());
    link.write_to_server(write_idle_close);
    link.server.exchange.note(Note::Close);
    Step::Replaced(message.end())
}

fn follow_bind_or_describe(
    postgres: &Postgres,
    link: &mut Link<'_>,
    message: &Arrived<'_>,
    name: Range<usize>,
) -> Step {
    let text = &message.bytes[name.clone()];
    let mut statement = match meaning(link.client, link.server, text) {
        Err(step) => return step,
        // A statement of ours is not the client's. The server says that it does not exist.
        Ok(None) if is_ours(text) => {
            return forward_as_nothing(link, message, &name);
        }
        // The server says that there is none, or has one that was prepared by other means, and what that does is not
        // known here.
        Ok(None) => {
            if message.header.kind == front::BIND {
                link.server.note_bound(message, false);
                let findings = link.server.judge(Findings { suspects: Suspects::OPAQUE, ..Findings::default() }, b"");
                link.server.suspect(&findings);
            }
            return Step::Forward;
        }
        Ok(Some(statement)) => statement,
    };
    if message.header.kind == front::BIND
        && let Some(step) = follow_bind(link, message, &statement)
    {
        return step;
    }
    let reliance = link.client.named.as_ref().map_or(Reliance::New, |named| named.reliance(text));
    let now = context(link.client, link.server);
    let mut there =
        link.server.statements.ours_mut().is_some_and(|prepared| prepared.need(&statement) == Need::Nothing);
    let fits = match now {
        Some(now) => now == statement.context,
        // PostgreSQL looks at tables anew where the search_path is another, but not where a temporary one has come.
        None => {
            statement.is_of_one_client()
                || (there
                    && !may_hide_tables(link.client, link.server)
                    && !link.server.traces.may_have_any(Suspects::CONSTANTS))
        }
    };
    if !fits {
        // It would mean something else if it were parsed now, so it is another statement.
        let as_told = Some(&statement.told).filter(|told| told.is_some() && reliance == Reliance::Told);
        statement = postgres.statements.intern(now, statement.schema_version, &statement.body, as_told);
        link.client.named.as_mut().expect("it has the statement").replace(text, &statement);
        there = link.server.statements.ours_mut().is_some_and(|prepared| prepared.need(&statement) == Need::Nothing);
    }
    let prepared = link.server.statements.ours_or_new();
    let likeness = if there { prepared.likeness(&statement) } else { Likeness::Unknown };
    let learns = message.header.kind == front::BIND && told::is_described_next(message);
    // Who is about to be told the columns relies on the types of parameters only, which a Parse made now would name.
    let relied = match (learns, there) {
        (false, _) => likeness,
        (true, true) => prepared.likeness_of_parameters(&statement),
        (true, false) => Likeness::Same,
    };
    if reliance == Reliance::Told && statement.told.is_some() && relied != Likeness::Same {
        return compare(link, (message, &name), (&statement, relied));
    }
    ensure_prepared(link, &statement);
    let looked_at = told::follow(link.client, link.server, (message, &name), (&statement, likeness, reliance));
    let kept = message.header.kind == front::BIND && (learns || reliance == Reliance::Untold);
    forward_as(link, message, &name, &statement.name, (kept.then_some(&statement), looked_at))
}

/// A Bind is about to be forwarded. Returns what to do instead, if anything.
fn follow_bind(link: &mut Link<'_>, message: &Arrived<'_>, statement: &Statement) -> Option<Step> {
    link.server.lease_mut().may_copy |= copy::is_copy(&statement.body);
    let forgets = statement.findings.suspects.intersects(Suspects::DEALLOCATE);
    link.server.note_bound(message, forgets && deallocates_all(&statement.body));
    if link.server.policy.on_state != OnState::Allow
        && (!statement.findings.is_plain()
            || link.server.settings.has_nonconforming_strings()
            || !link.server.traces.is_none()
            || link.server.catalogue.shared().watches_names())
    {
        let findings = &link.server.judge(statement.findings.clone(), &statement.body);
        if let Some(step) = sequences::discard_first(link, findings, message) {
            return Some(step);
        }
        if let Some(step) = plans::discard_first(link, findings) {
            return Some(step);
        }
        if link.server.policy.on_state == OnState::Reject && findings.suspects.intersects(Suspects::VISIBLY_LASTING) {
            reject(link, message.header.kind);
        }
        link.server.suspect(findings);
        link.server.note_amended_bind(message.body(), &statement.body);
        if findings.suspects.intersects(Suspects::BOUND_NAME) {
            if message.may_wait() {
                return Some(Step::Wait);
            }
            note_bound_names(link.server, message);
        }
    } else if statement.findings.suspects.intersects(Suspects::DDL) {
        link.server.note_change(&statement.findings);
    }
    None
}

/// A Bind or Describe of a statement that may be something else on this server than the client was told.
#[cold]
fn compare(
    link: &mut Link<'_>,
    (message, name): (&Arrived<'_>, &Range<usize>),
    (statement, likeness): (&Arc<Statement>, Likeness),
) -> Step {
    match likeness {
        Likeness::Different => {
            statement.retire();
            told::refuse_changed(link, message.header.kind);
            forward_as_nothing(link, message, name)
        }
        // Its answers come with those to what goes ahead, but that has to be known first.
        Likeness::Unknown if link.server.is_prefaced() => Step::Wait,
        Likeness::Unknown => {
            ensure_prepared(link, statement);
            link.server.statements.ours_mut().expect("it has the statement").describe(statement, None);
            told::probe(link, (&statement.name, Note::Probe))
        }
        Likeness::Same | Likeness::Asked => {
            link.client.awaits_answers = true;
            Step::Wait
        }
    }
}

impl Server {
    /// A Bind is forwarded, perhaps of a statement that deallocates all statements.
    #[inline]
    pub(crate) fn note_bound(&mut self, message: &Arrived<'_>, forgets: bool) {
        self.statements.note_bound(|| take_text(&mut message.body()).unwrap_or_default().into(), forgets);
    }
}

/// An Execute, while portals are known that deallocate all statements.
pub(crate) fn follow_execute(client: &mut Client, server: &mut Server, message: &Arrived<'_>) {
    let portal = take_text(&mut message.body()).unwrap_or_default();
    if !server.statements.is_deallocating(portal) {
        return;
    }
    if let Some(named) = &mut client.named {
        named.forget_all();
    }
    server.statements.doubt_all();
}

/// Forwards a Bind or Describe with our name of the statement; a Bind that may have to be repeated is `kept`.
fn forward_as(
    link: &mut Link<'_>,
    message: &Arrived<'_>,
    name: &Range<usize>,
    ours: &str,
    (kept, looked_at): (Option<&Arc<Statement>>, bool),
) -> Step {
    let (header, before) = renamed(message, name, ours);
    let parts: [&[u8]; 3] = [&header, before, ours.as_bytes()];
    link.out.insert(Peer::Server(link.server_tag), |to| parts.iter().for_each(|part| to.extend_from_slice(part)));
    if let Some(statement) = kept
        && message.is_whole()
    {
        link.server.statements.keep_request(
            &link.server.exchange,
            statement,
            [parts[0], parts[1], parts[2], &message.bytes[name.end..message.end()]],
        );
    }
    if looked_at {
        link.server.exchange.note(Note::Described);
    } else {
        link.server.exchange.enter_extended();
    }
    Step::Replaced(name.end)
}

/// Forwards it with a name that no statement ever has.
pub(crate) fn forward_as_nothing(link: &mut Link<'_>, message: &Arrived<'_>, name: &Range<usize>) -> Step {
    forward_as(link, message, name, &NOTHING, (None, false))
}

/// The header and the bytes before the name of a statement in a message whose name is replaced by ours.
fn renamed<'a>(message: &Arrived<'a>, name: &Range<usize>, ours: &str) -> ([u8; HEADER], &'a [u8]) {
    let length = message.header.length as usize - name.len() + ours.len();
    let mut header = [message.header.kind, 0, 0, 0, 0];
    header[1..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    (header, &message.bytes[message.at + HEADER..name.start])
}

/// Has the server prepare the statement unless it has it.
pub(crate) fn ensure_prepared(link: &mut Link<'_>, statement: &Arc<Statement>) {
    let prepared = link.server.statements.ours_or_new();
    let need = prepared.need(statement);
    if need == Need::Nothing {
        return;
    }
    if need == Need::CloseAndParse {
        write_our_close(prepared, &mut link.server.exchange, link.server_tag, statement.id, link.out);
    }
    let body = statement.parse_body();
    link.out.insert(Peer::Server(link.server_tag), |to| write_parse(to, statement.name.as_bytes(), &body));
    prepared.parse(statement);
    link.server.exchange.note(Note::OurParse(statement.id));
    make_room(link);
}

/// Closes statements if the server has too many.
fn make_room(link: &mut Link<'_>) {
    let prepared = link.server.statements.ours_mut().expect("it has statements");
    while let Some(id) = prepared.find_surplus(link.server.policy.max_prepared as usize) {
        write_our_close(prepared, &mut link.server.exchange, link.server_tag, id, link.out);
    }
}

fn write_our_close(prepared: &mut OurStatements, exchange: &mut Exchange, tag: ServerTag, id: u32, out: &mut Outbox) {
    out.insert(Peer::Server(tag), |to| {
        write(to, front::CLOSE, |to| to.extend_from_slice(format!("S{}{id}\0", *PREFIX).as_bytes()));
    });
    prepared.close(id);
    exchange.note(Note::OurClose(id));
}

pub(crate) fn write_idle_close(to: &mut Vec<u8>) {
    write(to, front::CLOSE, |to| to.extend_from_slice(format!("S{}\0", *NOTHING).as_bytes()));
}

/// Whether a name could be one of ours. Known names of clients are replaced, whatever they are.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

/// What the client receives in place of an answer to a noted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientAnswer {
    Same,
    Nothing,
    ParseComplete,
    Deallocated { all: bool },
}

/// A request was answered, or (not `done`) discarded because of an error before it.
pub(crate) fn settle(note: Note, done: bool, client: Option<&mut Client>, server: &mut Server) -> ClientAnswer {
    if matches!(note, Note::Hidden | Note::Unnamed) {
        let holder = server.holder().zip(client);
        server.unnamed.settle(
            done,
            false,
            holder.map(|(tag, client)| (client.unnamed_owner(tag), client.unnamed.parse_mut())),
        );
        return if note == Note::Hidden { ClientAnswer::Nothing } else { ClientAnswer::Same };
    }
    let named = client.and_then(|client| client.named.as_mut());
    match note {
        Note::Hidden | Note::Unnamed => unreachable!("these are dealt with above"),
        Note::OurParse(id) => {
            server.statements.ours_mut().expect("it was asked").settle_parse(id, done);
            return ClientAnswer::Nothing;
        }
        Note::OurClose(id) => {
            server.statements.ours_mut().expect("it was asked").settle_close(id, done);
            return ClientAnswer::Nothing;
        }
        Note::Parse(id) => server.statements.ours_mut().expect("it was asked").settle_parse(id, done),
        Note::KnownParse | Note::Close | Note::Taken => {}
        Note::Deallocated { all } => return ClientAnswer::Deallocated { all },
        Note::Amended(_) => return ClientAnswer::Same,
        Note::Swallowed | Note::Stale => return ClientAnswer::Nothing,
        Note::DescribedUnnamed(_) => return ClientAnswer::Same,
        Note::ProbeUnnamed => {
            server.unnamed.likeness = Likeness::Unknown;
            return ClientAnswer::Nothing;
        }
        Note::Described | Note::Probe => {
            server.statements.ours_mut().expect("it was asked").settle_describe(None);
            return ClientAnswer::Same;
        }
    }
    if let Some(named) = named {
        named.settle(done);
    }
    if note == Note::KnownParse { ClientAnswer::ParseComplete } else { ClientAnswer::Same }
}

/// Undoes what was noted of requests that the server has discarded.
pub(crate) fn settle_discarded(client: &mut Client, server: &mut Server) {
    for (number, note) in server.exchange.take_discarded().into_iter().enumerate() {
        if note == Note::Unnamed && number == 0 {
            let holder = server.holder().map(|tag| (client.unnamed_owner(tag), client.unnamed.parse_mut()));
            server.unnamed.settle(false, true, holder);
        } else {
            settle(note, false, Some(client), server);
        }
    }
}

/// An error was answered, to a message of the extended protocol if `prepared`: discarded requests are undone, and a
/// stale statement is parsed anew everywhere. Returns the error with the client's name of a statement in place of ours,
/// if it has one.
pub(crate) fn error_answered(
    body: Option<&[u8]>,
    prepared: bool,
    client: &mut Client,
    server: &mut Server,
) -> Option<Vec<u8>> {
    let taken = server.exchange.discarded().first() == Some(&Note::Taken);
    let renamed =
        body.and_then(|body| told::translate_stale_error(server, body).or_else(|| rename(body, taken, client)));
    settle_discarded(client, server);
    if let (Some(statements), Some(body)) = (server.statements.ours_mut(), body)
        && prepared
        && (Failure::may_be_stale(body) || tells_ours_missing(body))
    {
        statements.outdated();
    }
    renamed
}

/// Whether an error says that a statement made by Poolhouse is missing. About other statements it says nothing.
fn tells_ours_missing(body: &[u8]) -> bool {
    body.windows(PREFIX.len()).any(|part| part == PREFIX.as_bytes())
        && Failure::read(body).code == code::INVALID_SQL_STATEMENT_NAME
}

/// The body of an error with the client's name of a statement; `taken` if it is about the oldest Parse without an
/// answer.
fn rename(body: &[u8], taken: bool, client: &Client) -> Option<Vec<u8>> {
    let named = client.named.as_ref()?;
    let at = body.windows(PREFIX.len()).position(|part| part == PREFIX.as_bytes())?;
    let digits = body[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = at + PREFIX.len() + digits;
    let id = std::str::from_utf8(&body[at + PREFIX.len()..end]).ok()?.parse().ok()?;
    let name = if taken { named.oldest_pending()? } else { named.name_of(id)? };
    Some([&body[..at], name, &body[end..]].concat())
}
