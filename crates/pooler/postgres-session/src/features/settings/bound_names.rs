//! Names of parameters that are bound values of the statements which set them: a survey asks for these parameters.

use crate::{
    session::{Arrived, Server, Soil},
    sql::{
        Suspects,
        parameter_names::{can_be_named, is_verbatim, may_be_name},
    },
    wire::{front, take_text, take_u16, take_value},
};

/// Notes values of a Bind that may be names of custom parameters, if its statement sets one.
pub(crate) fn note_bound_names(server: &mut Server, message: &Arrived<'_>) {
    if !server.traces.may_have_any(Suspects::BOUND_NAME) || message.header.kind != front::BIND {
        return;
    }
    if !message.is_whole() {
        return server.traces.insert(Suspects::UNKNOWN_NAME);
    }
    for value in bound_values(message.body()).into_iter().flatten() {
        note_bound_name(server, value);
    }
}

pub(crate) fn note_bound_name(server: &mut Server, value: &[u8]) {
    if value.eq_ignore_ascii_case(b"seed") {
        server.soil.insert(Soil::IRREVERSIBLE);
    }
    if !value.contains(&b'.') || !may_be_name(value) {
        return;
    }
    if is_verbatim(value) && can_be_named(value) {
        server.traces.note_custom(value);
    } else {
        server.traces.insert(Suspects::UNKNOWN_NAME);
    }
}

fn bound_values(mut body: &[u8]) -> Option<Vec<&[u8]>> {
    take_text(&mut body)?;
    take_text(&mut body)?;
    values(body)
}

/// The values behind format codes; `None` if the body is malformed.
pub(crate) fn values(mut body: &[u8]) -> Option<Vec<&[u8]>> {
    let formats = usize::from(take_u16(&mut body)?);
    body = body.get(2 * formats..)?;
    let mut values = Vec::new();
    for _ in 0..take_u16(&mut body)? {
        values.extend(take_value(&mut body)?);
    }
    Some(values)
}
