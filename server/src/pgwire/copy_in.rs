//! COPY FROM STDIN: the client's data on its way to the table.

use super::attend::{Failure, Line};
use super::message::{Request, violation};
use crate::answer::{Column, CopyFormat, CopySink};
use crate::error::SqlError;

/// Asks for the data and hands it on until the client ends it.
///
/// # Errors
/// 57014 when the client gives up or the statement is cancelled, 08P01 for another message in between, else what the sink says.
pub(super) async fn copy_in(line: &mut Line, columns: &[Column], format: &CopyFormat, mut sink: Box<dyn CopySink>) -> Result<(), Failure> {
    line.outbox.copy_in_response(matches!(format, CopyFormat::Binary), columns.len());
    line.flush().await?;
    loop {
        let frame = line.next_frame().await?;
        let kind = frame.kind;
        match Request::decode(frame)? {
            Request::CopyData(bytes) => line.attend(sink.push(&bytes)).await??,
            Request::CopyDone => {
                let tag = line.attend(sink.finish()).await??;
                line.outbox.complete(tag);
                return Ok(());
            }
            Request::CopyFail(reason) => {
                let error: SqlError = line.attend(sink.abort(reason)).await?;
                return Err(error.into());
            }
            // Clients may have sent these right behind the statement.
            Request::Flush | Request::Sync => {}
            Request::Terminate => return Err(Failure::Gone),
            _ => return Err(violation(format!("unexpected message type 0x{kind:02X} during COPY from stdin")).into()),
        }
    }
}
