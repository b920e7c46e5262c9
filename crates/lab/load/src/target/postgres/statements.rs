//! Statements of scripts, in the simple or the extended query protocol.

use clients::postgres::{Answer, Parameters, Requester, TransactionStatus, kind_of};

use crate::{
    plan::QueryProtocol,
    record::ErrorKind,
    script::{ScriptClient, Scripts, Step},
    target::run::{Refusal, ScriptExchange},
};

#[derive(Clone)]
pub(super) struct Statements {
    protocol: QueryProtocol,
    /// Memory for the parameters of the statement at hand.
    parameters: Parameters,
    /// Number of the statement at hand, if the script wants its row.
    wants_row: Option<u32>,
}

impl Statements {
    pub(super) fn new(protocol: QueryProtocol) -> Self {
        Self { protocol, parameters: Parameters::default(), wants_row: None }
    }
}

impl ScriptExchange for Statements {
    type Protocol = Requester;

    fn write_request(
        &mut self,
        requester: &mut Requester,
        step: &Step<'_>,
        (client, scripts): (&ScriptClient, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Send(statement) = step else { unreachable!("a script of SQL holds no commands") };
        if self.protocol == QueryProtocol::Simple {
            requester.query_written_by(out, |to| client.write_query(scripts, statement, to))?;
        } else {
            self.parameters.clear();
            for parameter in 0..statement.parameters() {
                self.parameters.push(|to| client.write_parameter(scripts, statement, parameter, to))?;
            }
            match self.protocol {
                QueryProtocol::Prepared => {
                    requester.prepared(statement.number(), statement.text(), &self.parameters, out);
                }
                _ => requester.extended(statement.text(), &self.parameters, out),
            }
        }
        self.wants_row = statement.gset().map(|_| statement.number());
        if self.wants_row.is_some() {
            requester.keep_row();
        }
        Ok(())
    }

    fn read_answer(
        &mut self,
        requester: &mut Requester,
        client: &mut ScriptClient,
        scripts: &Scripts,
    ) -> Result<(), Refusal> {
        let wants_row = self.wants_row.take();
        let answer = requester.answer();
        if let Some(error) = &answer.error {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        let Some(number) = wants_row else { return Ok(()) };
        take_row(answer, client, scripts, number).map_err(|kind| Refusal { kind, said: None })
    }

    fn in_transaction(&self, requester: &Requester) -> bool {
        requester.transaction() != TransactionStatus::Idle
    }

    fn roll_back(&self, requester: &mut Requester, out: &mut Vec<u8>) -> bool {
        requester.query("ROLLBACK", out);
        true
    }
}

/// Gives the row of a statement with `\gset` to the client's variables.
fn take_row(answer: &Answer, client: &mut ScriptClient, scripts: &Scripts, number: u32) -> Result<(), ErrorKind> {
    let row = match (answer.row(), answer.last_rows) {
        (Some(row), 1) => row,
        _ => return Err(ErrorKind("script: \\gset needs exactly one row".into())),
    };
    let mut statements = scripts.programs().iter().flat_map(|program| program.statements());
    let statement = statements.find(|statement| statement.number() == number).expect("the statement was just sent");
    for (name, value) in row {
        client.take_column(scripts, statement, name, value.as_deref().map(str::as_bytes))?;
    }
    Ok(())
}
