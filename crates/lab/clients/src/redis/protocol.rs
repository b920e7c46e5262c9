//! Redis as a [`ClientProtocol`]: RESP2.

use driver::TlsConnector;
use seam::Secured;

use super::{
    options::ConnectOptions,
    requester::{self, ErrorReply, Requester, Verdict},
};
use crate::{
    Endpoint, ErrorKind,
    client::{ClientProtocol, Disconnect, Failure, Goodbye, LoginPhase, Step, VIOLATION_KIND},
};

impl ClientProtocol for Requester {
    type Options = ConnectOptions;

    fn hosts(options: &ConnectOptions) -> &[Endpoint] {
        std::slice::from_ref(&options.endpoint)
    }

    fn connector(options: &ConnectOptions) -> Option<&TlsConnector> {
        options.connector.as_ref()
    }

    fn begin(_: &ConnectOptions, _: &mut Vec<u8>) -> Self {
        Self::new()
    }

    fn take(&mut self, options: &ConnectOptions, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Failure> {
        Ok(match self.take(&options.login, input, out).map_err(fault)? {
            Verdict::More => Step::More,
            Verdict::StartTls => Step::StartTls,
            Verdict::Authenticated => Step::Passed(LoginPhase::Auth),
            // Without a SELECT of a database the connection was ready at once.
            Verdict::Ready => Step::Ready((options.login.database > 0).then_some(LoginPhase::Ready)),
            Verdict::Answered => Step::Answered,
        })
    }

    fn secured(&mut self, _: &ConnectOptions, _: Secured, _: &mut Vec<u8>) -> Result<(), Failure> {
        self.secured();
        Ok(())
    }

    fn farewell(&self) -> Option<(ErrorKind, String)> {
        self.farewell().map(|error| (kind_of(error), error.to_string()))
    }

    /// A server that closes for a reason has sent it before, however the connection then ended.
    const FAREWELL_BEFORE_BREAK: bool = true;

    fn goodbye(&mut self) -> Goodbye {
        let mut out = Vec::new();
        if !self.awaits_answer() {
            self.quit(&mut out);
        }
        Goodbye::Send(out)
    }
}

fn fault(fault: requester::Fault) -> Failure {
    let kind = fault.reply.as_ref().map_or_else(|| ErrorKind(VIOLATION_KIND.into()), kind_of);
    let disconnect = Disconnect { kind, permanent: fault.permanent, message: fault.message };
    Failure { disconnect, detour: false }
}

/// The kind of an error that a server gave.
pub fn kind_of(error: &ErrorReply) -> ErrorKind {
    let kind = error.kind();
    let is_code = kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    ErrorKind(if is_code { format!("error {kind}") } else { kind.to_owned() }.into())
}
