//! Rows -> JSON lines. Times, dates, uuids and the like are strings in Postgres' form; NULL is `null`; infinities and NaN are strings.

use arrow::record_batch::RecordBatch;

use super::{jsonb, text::TextColumn};
use crate::error::Result;

/// Appends the rows of a batch, one object a line.
///
/// # Errors
/// 0A000 for a column whose type has no text form.
pub fn write_rows(batch: &RecordBatch, out: &mut String) -> Result<()> {
    let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = batch
        .schema_ref()
        .fields()
        .iter()
        .map(|field| {
            let mut quoted = Vec::new();
            jsonb::write_string(field.name().as_bytes(), &mut quoted);
            String::from_utf8_lossy(&quoted).into_owned()
        })
        .collect();
    for row in 0..batch.num_rows() {
        for (place, (column, name)) in columns.iter().zip(&names).enumerate() {
            out.push(if place == 0 { '{' } else { ',' });
            out.push_str(name);
            out.push(':');
            column.write_json(row, out);
        }
        out.push_str(if columns.is_empty() { "{}\n" } else { "}\n" });
    }
    Ok(())
}
