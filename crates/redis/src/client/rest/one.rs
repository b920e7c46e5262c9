//! HTTP/1.1: one request after another, each with a head and a body.

use protocol::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, Standing};

use super::{Client, Request, Stage, Upload, has_token, manner, two::Two};
use crate::{
    Redis,
    rest::{
        Denied, MAX_DROPPED,
        answer::{Answer, Manner},
        body::Body,
        call::Target,
        h2::{H2, PREFACE},
        head::{self, Framing, MAX_HEAD, Method},
    },
};

impl Redis {
    /// Reads a request of HTTP/1.1 from its beginning. Returns what was consumed, and whether there is more to do.
    pub(super) fn begin(&self, me: ClientTag, client: &mut Client, bytes: &[u8], out: &mut Outbox) -> (usize, bool) {
        let plain = Manner::default();
        if PREFACE.starts_with(&bytes[..bytes.len().min(PREFACE.len())]) {
            let most = self.directory.http(client.http().listener).map_or(0, |rules| rules.max_request);
            if bytes.len() >= PREFACE.len() {
                client.set_stage(Stage::Two(Box::new(Two::new(H2::new(most)))));
            }
            return (0, bytes.len() >= PREFACE.len());
        }
        let head = match head::read(bytes) {
            Ok(Some(head)) => head,
            // The driver holds at least twice as much.
            Ok(None) if bytes.len() < MAX_HEAD => return (0, false),
            Ok(None) => return client.deny(me, &plain, &Denied::new(431, "the head has no end"), out),
            Err(denied) => return client.deny(me, &plain, &denied, out),
        };
        if let Some(denied) = client.http().refusal.take() {
            return client.deny(me, &plain, &denied, out);
        }
        let rules = match self.rules(client) {
            Ok(rules) => rules,
            Err(denied) => return client.deny(me, &plain, &denied, out),
        };
        let manner = manner(&head, &rules);
        if head.method == Method::Options {
            client.permit(me, &manner, head.framing, out);
            return (head.length, true);
        }
        let target = Target::read(&head.target);
        let access = match self.access(&head, &target, &rules) {
            Ok(access) => access,
            Err(denied) => {
                if has_token(&head, &target, &rules) {
                    out.push(Effect::AuthFailed { client: me });
                }
                return client.deny(me, &manner, &denied, out);
            }
        };
        if let Err(denied) = self.let_in(me, client, &access, out) {
            return client.deny(me, &manner, &denied, out);
        }
        let mut body = match Body::new(head.framing, rules.max_request) {
            Ok(body) => body,
            Err(denied) => {
                client.deny_and_drop(me, &manner, &denied, head.framing, out);
                return (head.length, true);
            }
        };
        let request = Request { method: head.method, target, form: head.form, manner, access };
        match head.framing {
            Framing::Length(length) if (bytes.len() - head.length) as u64 >= length => {
                let end = head.length + length as usize;
                self.plan(me, client, request, &bytes[head.length..end], out);
                (end, true)
            }
            _ => {
                if head.expects {
                    out.insert(Peer::Client(me), |to| to.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                }
                body.bytes.reserve(bytes.len() - head.length);
                // Nobody is idle who sends a request.
                out.push(Effect::Standing { client: me, standing: Standing::Active });
                client.set_stage(Stage::Body(Box::new(Upload { request, body })));
                (head.length, true)
            }
        }
    }

    /// Takes a piece of a body.
    pub(super) fn upload(
        &self,
        me: ClientTag,
        client: &mut Client,
        mut upload: Box<Upload>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> (usize, bool) {
        match upload.body.take(bytes) {
            Err(denied) if denied.status == 413 => {
                client.deny_and_drop(me, &upload.request.manner, &denied, Framing::Chunked, out);
                (0, true)
            }
            Err(denied) => client.deny(me, &upload.request.manner, &denied, out),
            Ok(used) if upload.body.is_whole() => {
                let Upload { request, body } = *upload;
                self.plan(me, client, request, &body.bytes, out);
                (used, true)
            }
            Ok(used) => {
                client.set_stage(Stage::Body(upload));
                (used, used > 0)
            }
        }
    }

    /// A request of HTTP/1.1 is there as a whole.
    fn plan(&self, me: ClientTag, client: &mut Client, request: Request, body: &[u8], out: &mut Outbox) {
        let manner = request.manner.clone();
        match self.work(request, body) {
            Ok(work) => client.http().works.push_back(work),
            Err(denied) => {
                out.insert(Peer::Client(me), |to| Answer::denied(&manner, &denied).write(to));
                out.push(Effect::Standing { client: me, standing: Standing::Idle });
                if !manner.keep_alive {
                    client.close(me, CloseReason::Done, out);
                }
            }
        }
    }
}

impl Client {
    /// Tells a browser that its pages may ask. Whatever body comes with the question is not read.
    fn permit(&mut self, me: ClientTag, manner: &Manner, framing: Framing, out: &mut Outbox) {
        let bare = framing == Framing::Length(0);
        let manner = Manner { keep_alive: manner.keep_alive && bare, ..manner.clone() };
        out.insert(Peer::Client(me), |to| Answer::permission(&manner).write(to));
        if !bare {
            self.drop_rest(framing);
        }
    }

    /// The rest of a request that was answered already.
    pub(super) fn drop_rest(&mut self, framing: Framing) {
        self.set_stage(Stage::Drop(match framing {
            Framing::Length(length) => length.min(MAX_DROPPED),
            Framing::Chunked => MAX_DROPPED,
        }));
    }

    /// Tells why a request of HTTP/1.1 is not carried out, when what follows cannot be told from the rest of it, or is not wanted: the
    /// connection ends.
    pub(super) fn deny(&mut self, me: ClientTag, manner: &Manner, denied: &Denied, out: &mut Outbox) -> (usize, bool) {
        let manner = Manner { keep_alive: false, ..manner.clone() };
        out.insert(Peer::Client(me), |to| Answer::denied(&manner, denied).write(to));
        let text = format!("HTTP {}: {}", denied.status, denied.error);
        self.close(me, CloseReason::Error(Blame::Client, text), out);
        (0, false)
    }

    /// The same, once the rest of the request has come.
    pub(super) fn deny_and_drop(
        &mut self,
        me: ClientTag,
        manner: &Manner,
        denied: &Denied,
        framing: Framing,
        out: &mut Outbox,
    ) {
        let manner = Manner { keep_alive: false, ..manner.clone() };
        out.insert(Peer::Client(me), |to| Answer::denied(&manner, denied).write(to));
        self.drop_rest(framing);
    }
}
