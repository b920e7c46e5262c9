//! Answers as messages.

use crate::{
    answer::{Answer, Failure, Notice},
    table::Column,
    wire::{Message, back, code, write_empty, write_report, write_text},
};

pub(crate) fn write_ready(out: &mut Vec<u8>) {
    let mut message = Message::begin(out, back::READY);
    message.u8(b'I');
    message.end();
}

/// The answer to a simple query, up to its tag.
pub(crate) fn write_answer(answer: &Answer, out: &mut Vec<u8>) {
    write_notice(answer.notice.as_ref(), out);
    if let Some(table) = &answer.table {
        write_columns(table.columns(), &[], out);
        table.encode(&[], 0, table.len(), out);
    }
    write_text(out, back::COMPLETE, &answer.tag);
}

pub(crate) fn write_notice(notice: Option<&Notice>, out: &mut Vec<u8>) {
    let Some(Notice { message, detail }) = notice else { return };
    let detail = detail.map(|detail| (b'D', detail));
    let fields: Vec<(u8, &str)> = [Some((b'M', *message)), detail].into_iter().flatten().collect();
    write_report(out, back::NOTICE, "NOTICE", code::NOTICE, &fields);
}

pub(crate) fn write_failure(failure: &Failure, out: &mut Vec<u8>) {
    let hint = failure.hint.as_deref().map(|hint| (b'H', hint));
    let fields: Vec<(u8, &str)> = [Some((b'M', failure.message.as_str())), hint].into_iter().flatten().collect();
    write_report(out, back::ERROR, "ERROR", failure.code, &fields);
}

/// A RowDescription; the columns are in text format, unless `formats` says otherwise. Without columns: NoData.
pub(crate) fn write_columns(columns: &[Column], formats: &[bool], out: &mut Vec<u8>) {
    if columns.is_empty() {
        return write_empty(out, back::NO_DATA);
    }
    let mut message = Message::begin(out, back::ROW_DESCRIPTION);
    message.u16(columns.len() as u16);
    for (index, (name, of)) in columns.iter().enumerate() {
        message.text(name);
        message.u32(0);
        message.u16(0);
        message.u32(of.oid());
        message.u16(of.length() as u16);
        message.i32(-1);
        message.u16(formats.get(index).copied().unwrap_or_default().into());
    }
    message.end();
}
