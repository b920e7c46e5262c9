//! Authentication and CORS: tokens (RFC 6750), and the origins whose pages may read answers.

use std::sync::Arc;

use crate::{Denied, Method, Target, head::Head};

/// Default maximum size of a request body, in bytes.
pub const DEFAULT_MAX_REQUEST: usize = 10 * 1024 * 1024;

/// Rules for the clients of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Origins whose pages may read answers; `*` alone allows all.
    pub origins: Vec<String>,
    /// The URL may contain the token.
    pub token_in_query: bool,
    /// Maximum size of a request body, in bytes.
    pub max_request: usize,
}

/// Decides which callers are admitted. It is asked as soon as the head of a request is complete, so that a caller who
/// is refused sends no body.
pub trait Door {
    /// The owner of a token.
    type Caller;

    /// The current rules; `None` if HTTP is no longer served.
    fn rules(&self) -> Option<Arc<Rules>>;

    /// The owner of this token, if it is valid. Takes constant time for invalid tokens. After an invalid token, the
    /// connection ends once earlier requests have been answered.
    fn recognise(&mut self, token: &[u8]) -> Option<Self::Caller>;

    /// A request of this caller is about to be received (HTTP/1.1), or is complete (HTTP/2).
    ///
    /// # Errors
    ///
    /// The request is refused, for this reason.
    fn enter(&mut self, caller: &Self::Caller) -> Result<(), Denied>;
}

pub(crate) fn rules<D: Door>(door: &D) -> Result<Arc<Rules>, Denied> {
    door.rules().ok_or_else(|| Denied::new(503, "this address does not serve HTTP any more"))
}

/// The token of a request. The header has precedence over the query.
///
/// # Errors
///
/// The request has no token where one is allowed.
pub(crate) fn token<'t>(head: &'t Head, target: &'t Target, rules: &Rules) -> Result<&'t [u8], Denied> {
    match (&head.token, &target.token) {
        (Some(token), _) => Ok(token),
        (None, Some(_)) if !rules.token_in_query => Err(unauthorized(
            "a token in the URL ends up in logs and is not taken here: send `Authorization: Bearer TOKEN`",
        )),
        (None, Some(token)) => Ok(token),
        (None, None) => Err(unauthorized("send `Authorization: Bearer TOKEN`")),
    }
}

pub(crate) fn unauthorized(why: &str) -> Denied {
    Denied::new(401, format!("Unauthorized: {why}"))
}

/// The token is not valid.
pub(crate) fn unknown() -> Denied {
    unauthorized("this token is not known")
}

/// What the head of a request determines about its answer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct AnswerOptions {
    pub keep_alive: bool,
    /// The request's method is HEAD.
    pub head_only: bool,
    /// The origin that may read the answer.
    pub origin: Option<String>,
}

impl AnswerOptions {
    pub(crate) fn new(head: &Head, rules: &Rules) -> Self {
        let origin = head.origin.as_deref().and_then(|origin| match &*rules.origins {
            [any] if any == "*" => Some("*"),
            origins => origins.iter().any(|known| known == origin).then_some(origin),
        });
        Self { keep_alive: head.keep_alive, head_only: head.method == Method::Head, origin: origin.map(str::to_owned) }
    }

    /// The options of an answer after which the connection ends.
    pub(crate) fn last(self) -> Self {
        Self { keep_alive: false, ..self }
    }
}
