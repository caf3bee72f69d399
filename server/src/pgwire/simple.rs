//! The simple protocol: a text with any number of statements.

use super::attend::Failure;
use super::connection::Connection;
use super::copy_in::copy_in;
use super::copy_out::copy_out;
use super::encode::Formats;
use super::rows::{Portion, RowsInFlight};
use crate::answer::Answer;

impl Connection {
    /// Runs a script and says ReadyForQuery.
    pub(super) async fn simple_query(&mut self, sql: &str) -> Result<(), Failure> {
        // As in Postgres, a simple query takes the unnamed statement and portal away.
        self.unnamed = None;
        self.portals.remove("");
        let outcome = self.run_script(sql).await;
        let outcome = match outcome {
            Err(Failure::Error(error)) => self.fail(&error),
            other => other,
        };
        outcome?;
        self.ready().await
    }

    async fn run_script(&mut self, sql: &str) -> Result<(), Failure> {
        let script = self.session.parse_script(sql)?;
        if script.is_empty() {
            self.line.outbox.empty_query();
            return Ok(());
        }
        let last = script.len() - 1;
        for (at, statement) in script.into_iter().enumerate() {
            let answer = self.line.attend(self.session.execute_simple(statement, at == last)).await??;
            self.answer_simple(answer).await?;
            self.after_statement();
        }
        Ok(())
    }

    async fn answer_simple(&mut self, answer: Answer) -> Result<(), Failure> {
        match answer {
            Answer::Empty => self.line.outbox.empty_query(),
            Answer::Done { tag } => self.line.outbox.complete(tag),
            Answer::Rows { columns, stream, tag } => {
                let settings = self.session.text_settings();
                self.line.outbox.row_description(&columns, |_| false);
                let mut rows = RowsInFlight::new(columns, stream, tag, Formats::default());
                if let Portion::End { rows: count } = rows.send(&mut self.line, &settings, None).await? {
                    self.line.outbox.complete(rows.tag(count));
                }
            }
            Answer::CopyIn { columns, format, sink } => copy_in(&mut self.line, &columns, &format, sink).await?,
            Answer::CopyOut { columns, format, stream } => {
                let settings = self.session.text_settings();
                copy_out(&mut self.line, &columns, &format, stream, &settings).await?;
            }
        }
        Ok(())
    }
}
