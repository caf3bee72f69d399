//! Changes of objects that come to their end though the checkpoint that makes them is given up.
//!
//! A request that is cut off may still take effect, at any later time. A manifest that appeared after the job's next life had looked for the newest
//! one, or the deletion of a file of a materialization that this life has put again under the same name, would harm it. So these go on by
//! themselves, and the next life begins behind them. What else is cut off only leaves objects that nobody names.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::error::{Result, StorageError};

/// Of one life's checkpoints. Cloning shares it.
#[derive(Clone, Default)]
pub struct Settling {
    /// Held while something is under way.
    under_way: Arc<Mutex<()>>,
}

impl Settling {
    /// Does `work`, to its end even if the caller is dropped.
    pub(super) async fn to_its_end<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let under_way = self.under_way.clone().lock_owned().await;
        let work = tokio::spawn(async move {
            let _under_way = under_way;
            work.await
        });
        work.await.unwrap_or_else(|error| Err(StorageError::Internal(format!("a change of objects ended early: {error}"))))
    }

    /// Waits until nothing is under way: when the store does not answer, until it is given up.
    pub async fn settled(&self) {
        drop(self.under_way.lock().await);
    }
}
