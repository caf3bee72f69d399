//! What is said to a client beside its answers.

use tokio::sync::mpsc::UnboundedSender;

use crate::error::{Notice, Severity};

/// Sends notices to one client, except those of a kind that it did not want to hear of when this was made.
#[derive(Clone)]
pub(crate) struct Notices {
    sender: UnboundedSender<Notice>,
    least: Least,
}

/// The least grave notices that the client wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    Any,
    Warning,
    None,
}

impl Notices {
    /// `client_min_messages` is the setting of that name.
    pub(crate) fn new(sender: UnboundedSender<Notice>, client_min_messages: Option<&str>) -> Self {
        let least = match client_min_messages {
            Some("error") => Least::None,
            Some("warning") => Least::Warning,
            _ => Least::Any,
        };
        Self { sender, least }
    }

    /// Sends one.
    pub(crate) fn send(&self, notice: Notice) {
        let wanted = match self.least {
            Least::Any => true,
            Least::Warning => notice.severity == Severity::Warning,
            Least::None => false,
        };
        if wanted {
            // A client that has gone does not miss it.
            let _ = self.sender.send(notice);
        }
    }
}
