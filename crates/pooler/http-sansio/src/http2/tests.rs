use super::*;
use crate::answer::tests::SERVICE;

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of `POST /a?token=t` (RFC 7541: three fields of the static table, then the path as a literal).
fn head(stream: u32) -> Vec<u8> {
    let path = b"/a?token=t";
    let block = [&[0x83, 0x87, 0x41, 1, b'x', 0x04, path.len() as u8], &path[..]].concat();
    frame(1, 4, stream, &block)
}

fn data(stream: u32, length: usize, last: bool) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut left = length;
    while left > 0 || (last && frames.is_empty()) {
        let now = left.min(16384);
        left -= now;
        frames.extend(frame(0, u8::from(last && left == 0), stream, &vec![b'x'; now]));
    }
    frames
}

/// Admits every token.
struct Open(Rules);

impl Door for Open {
    type Caller = ();

    fn rules(&self) -> Option<Arc<Rules>> {
        Some(Arc::new(self.0.clone()))
    }

    fn recognise(&mut self, _token: &[u8]) -> Option<()> {
        Some(())
    }

    fn enter(&mut self, (): &()) -> Result<(), Denied> {
        Ok(())
    }
}

/// The requests that these bytes complete: the lengths of their bodies, or the status codes of refusals.
fn take(h2: &mut Http2<()>, bytes: &[u8], available: usize) -> Vec<Result<usize, u16>> {
    let rules = Rules { origins: Vec::new(), token_in_query: true, max_request: h2.max_request };
    h2.take(bytes, available, None, &Ok(Arc::new(rules.clone())), &mut Open(rules));
    assert_eq!(h2.end(), None, "what comes is HTTP/2");
    let of = |arrived: CompleteRequest<()>| arrived.request.map(|(_, body)| body.len()).map_err(|denied| denied.status);
    h2.arrived.drain(..).map(of).collect()
}

fn connection(max_request: usize) -> Http2<()> {
    let mut h2 = Http2::new(&SERVICE, max_request, Vec::new());
    assert_eq!(take(&mut h2, &[PREFACE, &frame(4, 0, 0, &[])].concat(), 0), []);
    h2
}

#[test]
fn all_bodies_on_their_way_share_one_bound() {
    let mut h2 = connection(50_000);
    let available = 100_000;
    for stream in [1, 3, 5] {
        let length = if stream == 5 { 20_000 } else { 40_000 };
        assert_eq!(take(&mut h2, &[head(stream), data(stream, length, false)].concat(), available), []);
    }
    assert_eq!(h2.holds(), available, "to the last byte");
    // One more byte of any stream is too much. The refused stream's memory is available to the others.
    assert_eq!(take(&mut h2, &data(3, 1, true), available), [Err(503)]);
    assert_eq!(h2.holds(), 60_000);
    assert_eq!(take(&mut h2, &data(1, 10_000, true), available), [Ok(50_000)]);
    assert_eq!(take(&mut h2, &data(5, 30_001, true), available), [Err(413)]);
    assert_eq!(h2.holds(), 0);
}

#[test]
fn without_room_for_its_body_a_request_is_refused_and_its_connection_goes_on() {
    let mut h2 = connection(50_000);
    assert_eq!(take(&mut h2, &[head(1), data(1, 1, true)].concat(), 0), [Err(503)]);
    assert_eq!(take(&mut h2, &[head(3), data(3, 1, true)].concat(), 1), [Ok(1)]);
    assert_eq!(take(&mut h2, &[head(5), data(5, 20_000, false)].concat(), 20_000), []);
    // The connection holds more than before.
    assert_eq!(take(&mut h2, &data(5, 1, true), 10), [Err(503)]);
    assert_eq!(h2.holds(), 0);
}

#[test]
fn the_body_of_a_question_for_permission_which_anybody_may_ask_is_not_kept() {
    let mut h2 = connection(1_000);
    let head = frame(1, 4, 1, &[&[0x42, 7], &b"OPTIONS"[..], &[0x87, 0x41, 1, b'x', 0x84]].concat());
    assert_eq!(take(&mut h2, &[head, data(1, 20_000, false)].concat(), 0), []);
    assert_eq!(h2.holds(), 0);
    assert_eq!(take(&mut h2, &data(1, 20_000, true), 0), [Ok(0)]);
}
