//! Requests, as a connection's owner gets them.

use std::borrow::Cow;

use crate::{Method, Target};

/// Identifies a request of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream(pub(crate) u32);

/// A complete request of an admitted caller. It has to be answered once.
#[derive(Debug)]
pub struct Request<'b, C> {
    pub stream: Stream,
    pub method: Method,
    pub target: Target,
    /// The header fields that the [`Service`](crate::Service) names, in order, without surrounding white space.
    pub fields: Vec<(&'static str, Vec<u8>)>,
    /// The body without its framing.
    pub body: Cow<'b, [u8]>,
    pub caller: C,
}

/// A request of a known caller, whose head has come.
#[derive(Debug)]
pub(crate) struct AdmittedRequest<C> {
    pub method: Method,
    pub target: Target,
    pub fields: Vec<(&'static str, Vec<u8>)>,
    pub caller: C,
}

impl<C> AdmittedRequest<C> {
    /// Adds the body.
    pub(crate) fn with_body(self, stream: Stream, body: Cow<'_, [u8]>) -> Request<'_, C> {
        let Self { method, target, fields, caller } = self;
        Request { stream, method, target, fields, body, caller }
    }
}
