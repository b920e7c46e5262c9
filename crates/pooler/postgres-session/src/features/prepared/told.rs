//! What clients were told of their named statements holds until they parse anew, whichever server they get. Where a
//! server has to parse a text again, it is told the types of parameters that clients know. Where they know the columns,
//! it is asked for those before anything is executed: one more round trip, once for each server and statement. If they
//! differ, since a table, a type or a view was changed, the client gets PostgreSQL's own error for that, at every Bind
//! and Describe until it parses the text anew. Who is told the columns of each portal relies on nothing. An unnamed
//! statement that is parsed again is asked for each time, unless it has no columns.
//!
//! What was told is with the statement, which all have that were told the same (`session::descriptions`).

use std::{ops::Range, sync::Arc};

use seam::Standing;

use crate::{
    exchange::Note,
    features::rejection::refuse,
    session::{
        Arrived, Client, Likeness, Link, Need, Postgres, Reliance, Server, Statement,
        descriptions::{Description, Fit, ToldDescription, hash_columns},
        our_statements::BoundLast,
        request::Step,
    },
    wire::{Failure, HEADER, Header, back, code, front, message::write, take_text},
};

/// SQL that fails with the code of the client's error.
const STALE: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', \
    MESSAGE = 'cached plan must not change result type'; END $poolhouse$";

/// PostgreSQL's error for a statement whose columns have changed; drivers prepare anew because of its routine or text.
const CHANGED: &[u8] =
    b"SERROR\0VERROR\0C0A000\0Mcached plan must not change result type\0Fplancache.c\0RRevalidateCachedQuery\0\0";

/// Asks the server for the columns of a statement; the request waits for the answer.
pub(crate) fn probe(link: &mut Link<'_>, (name, note): (&str, Note)) -> Step {
    link.write_to_server(|to| {
        write(to, front::DESCRIBE, |to| to.extend_from_slice(format!("S{name}\0").as_bytes()));
        write(to, front::FLUSH, |_| {});
    });
    link.server.exchange.note(note);
    link.server.exchange.enter_flush();
    link.server.lease_mut().mid_pipeline = true;
    link.stand(Standing::Active);
    link.client.awaits_answers = true;
    Step::Wait
}

/// Has a request fail whose statement is not what the client was told.
pub(crate) fn refuse_changed(link: &mut Link<'_>, kind: u8) {
    refuse(link, kind, STALE, Some(Note::Stale));
}

/// Whether a Describe of its portal follows a Bind.
pub(crate) fn is_described_next(message: &Arrived<'_>) -> bool {
    let next = message.bytes.get(message.end()..).unwrap_or_default();
    let (Some(header), true) = (Header::read(next), message.header.kind == front::BIND) else { return false };
    let mut described = next.get(HEADER + 1..header.total()).unwrap_or_default();
    let of_portal = header.kind == front::DESCRIBE && next.get(HEADER) == Some(&b'P');
    of_portal && take_text(&mut described).is_some_and(|portal| take_text(&mut message.body()) == Some(portal))
}

/// A Bind or Describe is forwarded. True if its answer is looked at.
pub(crate) fn follow(
    client: &mut Client,
    server: &mut Server,
    (message, name): (&Arrived<'_>, &Range<usize>),
    (statement, likeness, reliance): (&Arc<Statement>, Likeness, Reliance),
) -> bool {
    let name = &message.bytes[name.clone()];
    let prepared = server.statements.ours_mut().expect("it has the statement");
    let known = likeness == Likeness::Same && statement.told.is_some();
    if message.header.kind == front::DESCRIBE {
        client.named.as_mut().expect("it has the statement").describe(name);
        let looked_at = !(known && statement.told.is_complete());
        if looked_at {
            prepared.describe(statement, Some(name));
        }
        return looked_at;
    }
    prepared.bind(statement);
    if let Some(portal) = take_text(&mut message.body())
        && !(known && reliance == Reliance::Told)
    {
        let (portal, name, statement) = (portal.into(), name.into(), statement.clone());
        server.statements.note_bound_last(BoundLast { portal, name, statement });
    }
    false
}

/// A Describe of a portal is about to be forwarded. True if it was entered into the exchange.
pub(crate) fn describe_portal(client: &mut Client, server: &mut Server, message: &Arrived<'_>) -> bool {
    let Some(named) = &mut client.named else { return false };
    let mut body = message.body().get(1..).unwrap_or_default();
    let portal = take_text(&mut body);
    let Some(last) = server.statements.take_bound_last(portal) else { return false };
    let prepared = server.statements.ours_mut().expect("it has the statement that was bound");
    if prepared.need(&last.statement) != Need::Nothing {
        return false;
    }
    named.describe(&last.name);
    if prepared.likeness(&last.statement) == Likeness::Same && last.statement.told.is_some() {
        return false;
    }
    prepared.describe(&last.statement, Some(&last.name));
    server.exchange.note(Note::Described);
    true
}

impl Postgres {
    /// Takes a part of the answer to a Describe that is looked at: the arrived part of its body, and the length of the
    /// whole. True if it is for the client.
    pub(crate) fn take_description(
        &self,
        client: Option<&mut Client>,
        server: &mut Server,
        (kind, body, length): (u8, &[u8], usize),
    ) -> bool {
        let note = server.exchange.describing().expect("a Describe is answered");
        let unnamed = matches!(note, Note::DescribedUnnamed(_) | Note::ProbeUnnamed);
        let forward = matches!(note, Note::Described | Note::DescribedUnnamed(_));
        if kind == back::PARAMETER_DESCRIPTION {
            let parameters = if body.len() == length { Box::from(body) } else { Box::default() };
            if unnamed {
                server.unnamed.parameters = Some(parameters);
            } else {
                server.statements.ours_mut().expect("it was asked").describe_parameters(parameters);
            }
            return forward;
        }
        server.exchange.answered(kind);
        let columns = Some(hash_columns((kind == back::ROW_DESCRIPTION).then_some(body), length));
        if unnamed {
            describe_unnamed(client, server, note, columns);
            return forward;
        }
        let described = server.statements.ours_mut().expect("it was asked").settle_describe(columns);
        let statement = &described.statement;
        let Some(name) = described.name else { return false };
        if !statement.told.tell(&described.description) {
            // Other clients were told something else. A client that prepares the text from now on is told this.
            statement.retire();
            let context = (!statement.is_of_one_client()).then_some(statement.context);
            let told = ToldDescription::new(&Description {
                parameters: described.description.parameters.or(statement.told.parameters().map(Box::from)),
                ..described.description
            });
            let other = self.statements.intern(context, statement.schema_version, &statement.body, Some(&told));
            if let Some(named) = client.and_then(|client| client.named.as_mut()) {
                named.part(&name, statement.id, &other);
            }
        }
        true
    }
}

/// A server has described a client's unnamed statement.
fn describe_unnamed(client: Option<&mut Client>, server: &mut Server, note: Note, columns: Option<u64>) {
    let description = Description { columns, parameters: server.unnamed.parameters.take() };
    let Some((client, text)) = client.and_then(|client| Some((client.unnamed.version(), client.unnamed.parse()?)))
    else {
        return;
    };
    match note {
        Note::DescribedUnnamed(version) if version == client => _ = text.told.tell(&description),
        Note::ProbeUnnamed => {
            server.unnamed.likeness = match text.told.fit(&description) {
                Fit::Same => Likeness::Same,
                Fit::Different | Fit::Unknown => Likeness::Different,
            };
        }
        _ => {}
    }
}

/// The body of the error that a client receives for a statement that has changed, if this error is of that kind.
pub(crate) fn translate_stale_error(server: &Server, body: &[u8]) -> Option<Vec<u8>> {
    let ours = server.exchange.discarded().first() == Some(&Note::Stale);
    (ours && Failure::read(body).code == code::FEATURE_NOT_SUPPORTED).then(|| CHANGED.to_vec())
}
