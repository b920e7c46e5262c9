//! PostgreSQL as a [`ClientProtocol`]: the hosts of the URL are tried in turn.

use driver::TlsConnector;
use postgres_session as session;
use seam::Secured;

use super::{
    options::ConnectOptions,
    requester::{Requester, SqlError, Verdict},
};
use crate::{
    Endpoint, ErrorKind,
    client::{ClientProtocol, Disconnect, Failure, Goodbye, LoginPhase, Step, VIOLATION_KIND},
};

impl ClientProtocol for Requester {
    type Options = ConnectOptions;

    fn hosts(options: &ConnectOptions) -> &[Endpoint] {
        &options.hosts
    }

    fn connector(options: &ConnectOptions) -> Option<&TlsConnector> {
        options.connector.as_ref()
    }

    fn begin(options: &ConnectOptions, out: &mut Vec<u8>) -> Self {
        Self::begin(&options.login, out)
    }

    fn take(&mut self, options: &ConnectOptions, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Failure> {
        Ok(match self.take(&options.login, input, out).map_err(fault)? {
            Verdict::More => Step::More,
            Verdict::StartTls => Step::StartTls,
            Verdict::Authenticated => Step::Passed(LoginPhase::Auth),
            Verdict::Ready => Step::Ready(Some(LoginPhase::Ready)),
            Verdict::Answered => Step::Answered,
        })
    }

    fn secured(&mut self, options: &ConnectOptions, secured: Secured, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.secured(&options.login, secured, out).map_err(fault)
    }

    fn tls_failed(&mut self, options: &ConnectOptions, certificate: bool, message: String) -> Failure {
        let session::Fault { permanent, detour, message, .. } = self.tls_failed(&options.login, certificate, message);
        let kind = ErrorKind("tls failed".into());
        Failure { disconnect: Disconnect { kind, permanent, message }, detour }
    }

    fn farewell(&self) -> Option<(ErrorKind, String)> {
        self.farewell().map(|error| (kind_of(error), error.to_string()))
    }

    fn goodbye(&mut self) -> Goodbye {
        if self.awaits_answer() {
            return Goodbye::Cancel(self.cancel_request());
        }
        let mut out = Vec::new();
        self.terminate(&mut out);
        Goodbye::Send(out)
    }
}

fn fault(fault: session::Fault) -> Failure {
    let kind = match fault.code {
        Some(code) => sqlstate(std::str::from_utf8(&code).expect("only ASCII is taken")),
        None if fault.violation => ErrorKind(VIOLATION_KIND.into()),
        None => ErrorKind("login failed".into()),
    };
    let disconnect = Disconnect { kind, permanent: fault.permanent, message: fault.message };
    Failure { disconnect, detour: fault.detour }
}

/// The kind of an error that a server gave.
pub fn kind_of(error: &SqlError) -> ErrorKind {
    sqlstate(error.code())
}

fn sqlstate(code: &str) -> ErrorKind {
    ErrorKind(format!("sqlstate {code}").into())
}
