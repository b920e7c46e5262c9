//! Who asks, and which pages may read the answers: tokens (RFC 6750) and origins (CORS).

use std::sync::Arc;

use crate::{Denied, Method, Target, head::Head};

/// Largest request body that is taken unless an address says otherwise, in bytes.
pub const DEFAULT_MAX_REQUEST: usize = 10 * 1024 * 1024;

/// What holds for the clients of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The pages whose browsers may read answers, as origins; `*` alone is all of them.
    pub origins: Vec<String>,
    /// A token may stand in the URL.
    pub token_in_query: bool,
    /// Largest body of a request in bytes.
    pub max_request: usize,
}

/// Who is let in. It is asked as soon as the head of a request is there, so that who is not let in sends no body.
pub trait Door {
    /// Whose token something is.
    type Caller;

    /// The rules as they are now; `None` if HTTP is not served any more.
    fn rules(&self) -> Option<Arc<Rules>>;

    /// Whose token this is; `None` if it is nobody's. Takes the same time whatever is wrong with it. A connection on
    /// which this has failed ends once what was asked before has been answered.
    fn recognise(&mut self, token: &[u8]) -> Option<Self::Caller>;

    /// A request of this caller is about to be received (HTTP/1.1), or has come whole (HTTP/2).
    ///
    /// # Errors
    /// It is not let in, for this reason.
    fn enter(&mut self, caller: &Self::Caller) -> Result<(), Denied>;
}

/// The rules, or why there are none.
pub(crate) fn rules<D: Door>(door: &D) -> Result<Arc<Rules>, Denied> {
    door.rules().ok_or_else(|| Denied::new(503, "this address does not serve HTTP any more"))
}

/// The token that a request shows. The header goes before the query.
///
/// # Errors
/// It shows none where one may stand.
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

/// Nobody has the token that is shown.
pub(crate) fn unknown() -> Denied {
    unauthorized("this token is not known")
}

/// What a request's head says of the answer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct AnswerOptions {
    /// The connection stays open.
    pub keep_alive: bool,
    /// The head alone was asked for.
    pub head_only: bool,
    /// What is said to a browser: the origin that may read this.
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

    /// The same behind which the connection ends.
    pub(crate) fn last(self) -> Self {
        Self { keep_alive: false, ..self }
    }
}
