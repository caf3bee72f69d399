//! Errors and notices as the fields of their messages.

use millpond_planner::pg_text::TextError;

use crate::error::{Notice, SqlError};

/// S, V, C, M, D, H, P, W: severity twice (V is never translated), SQLSTATE, message, detail, hint, position, context.
pub(super) fn error_fields(error: &SqlError) -> Vec<(u8, String)> {
    let severity = error.severity.as_str();
    let mut fields =
        vec![(b'S', severity.to_string()), (b'V', severity.to_string()), (b'C', clean(&error.sqlstate)), (b'M', clean(&error.message))];
    fields.extend(error.detail.as_ref().map(|detail| (b'D', clean(detail))));
    fields.extend(error.hint.as_ref().map(|hint| (b'H', clean(hint))));
    fields.extend(error.position.map(|position| (b'P', position.to_string())));
    fields.extend(error.context.as_ref().map(|context| (b'W', clean(context))));
    fields
}

/// As for errors.
pub(super) fn notice_fields(notice: &Notice) -> Vec<(u8, String)> {
    let severity = notice.severity.as_str();
    let mut fields =
        vec![(b'S', severity.to_string()), (b'V', severity.to_string()), (b'C', clean(&notice.sqlstate)), (b'M', clean(&notice.message))];
    fields.extend(notice.hint.as_ref().map(|hint| (b'H', clean(hint))));
    fields
}

/// A zero byte would end the field early.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

impl From<TextError> for SqlError {
    fn from(error: TextError) -> Self {
        Self { detail: error.detail, hint: error.hint, ..Self::new(error.sqlstate, error.message) }
    }
}
