//! Commands of scripts for MongoDB.

use std::sync::Arc;

use clients::mongodb::{Requester, kind_of};

use crate::{
    record::ErrorKind,
    script::{ScriptClient, Scripts, Step},
    target::run::{Refusal, ScriptExchange},
};

#[derive(Clone)]
pub(in crate::target) struct Commands {
    /// The database of commands that name none.
    database: Arc<str>,
    /// Memory for the command at hand.
    command: Vec<u8>,
}

impl Commands {
    pub(in crate::target) fn new(database: Arc<str>) -> Self {
        Self { database, command: Vec::new() }
    }
}

impl ScriptExchange for Commands {
    type Protocol = Requester;

    fn write_request(
        &mut self,
        requester: &mut Requester,
        step: &Step<'_>,
        (client, scripts): (&ScriptClient, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Request(request) = step else { unreachable!("a script of commands holds no SQL") };
        self.command.clear();
        client.write_document(scripts, request, &self.database, &mut self.command)?;
        requester.request(&self.command, out);
        Ok(())
    }

    fn read_answer(&mut self, requester: &mut Requester, _: &mut ScriptClient, _: &Scripts) -> Result<(), Refusal> {
        let error = requester.error();
        error.map_or(Ok(()), |error| Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) }))
    }
}
