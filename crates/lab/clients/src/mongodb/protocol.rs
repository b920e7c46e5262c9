//! MongoDB as a [`ClientProtocol`]: OP_MSG, which has no goodbye.

use driver::TlsConnector;
use seam::Secured;

use super::{
    options::ConnectOptions,
    requester::{self, CommandError, Requester, Verdict},
};
use crate::{
    Endpoint, ErrorKind,
    client::{ClientProtocol, Disconnect, Failure, LoginPhase, Step, VIOLATION_KIND},
};

impl ClientProtocol for Requester {
    type Options = ConnectOptions;

    fn hosts(options: &ConnectOptions) -> &[Endpoint] {
        std::slice::from_ref(&options.endpoint)
    }

    fn connector(options: &ConnectOptions) -> Option<&TlsConnector> {
        options.connector.as_ref()
    }

    fn begin(options: &ConnectOptions, _: &mut Vec<u8>) -> Self {
        Self::new(options.login.clone())
    }

    fn take(&mut self, options: &ConnectOptions, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Failure> {
        let taken = self.take(&options.keys, input, out);
        Ok(match taken.map_err(|fault| self.describe(fault))? {
            Verdict::More => Step::More,
            Verdict::StartTls => Step::StartTls,
            // The hello before the login counts as getting ready, not as authentication.
            Verdict::Greeted => Step::Passed(LoginPhase::Ready),
            Verdict::Ready if self.logs_in() => Step::Ready(Some(LoginPhase::Auth)),
            Verdict::Ready => Step::Ready(Some(LoginPhase::Ready)),
            Verdict::Answered => Step::Answered,
        })
    }

    fn secured(&mut self, _: &ConnectOptions, _: Secured, _: &mut Vec<u8>) -> Result<(), Failure> {
        self.secured();
        Ok(())
    }
}

impl Requester {
    fn describe(&self, fault: requester::Fault) -> Failure {
        let kind = match (fault.refused, self.is_greeted()) {
            (false, _) => VIOLATION_KIND,
            (true, true) => "login refused",
            (true, false) => "refused",
        };
        let disconnect =
            Disconnect { kind: ErrorKind(kind.into()), permanent: fault.permanent, message: fault.message };
        Failure { disconnect, detour: false }
    }
}

/// The kind of an error that a server gave: its name in MongoDB's list where the server says it, its number otherwise.
pub fn kind_of(error: &CommandError) -> ErrorKind {
    const MAX_NAME: usize = 64;
    let is_name = |name: &&str| name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let kind = match error.name.as_deref().filter(is_name) {
        Some(name) => format!("error {name}"),
        None => format!("error {}", error.code),
    };
    ErrorKind(kind.into())
}
