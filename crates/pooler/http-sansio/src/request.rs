//! A request as its owner gets it.

use std::borrow::Cow;

use crate::{Method, Target};

/// Which request of its connection an answer is for.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream(pub(crate) u32);

/// A request that has come whole, of a caller who was let in. It is to be answered once.
#[derive(Debug)]
pub struct Request<'b, C> {
    pub stream: Stream,
    pub method: Method,
    pub target: Target,
    /// The header fields that the [`Service`](crate::Service) names, in their order, without white space around the
    /// values.
    pub fields: Vec<(&'static str, Vec<u8>)>,
    /// Its body, without its framing.
    pub body: Cow<'b, [u8]>,
    pub caller: C,
}

/// A request whose head has come, of somebody who is known.
#[derive(Debug)]
pub(crate) struct Asked<C> {
    pub method: Method,
    pub target: Target,
    pub fields: Vec<(&'static str, Vec<u8>)>,
    pub caller: C,
}

impl<C> Asked<C> {
    /// Its body has come, too.
    pub(crate) fn with_body(self, stream: Stream, body: Cow<'_, [u8]>) -> Request<'_, C> {
        let Self { method, target, fields, caller } = self;
        Request { stream, method, target, fields, body, caller }
    }
}
