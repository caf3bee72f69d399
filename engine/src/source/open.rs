//! From a checked specification to a source that can be read.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millpond_storage::env::Clock;

use super::{
    Source,
    datagen::DatagenSource,
    file::{self, FileSource, FileSpec},
    nexmark::{NexmarkSource, NexmarkSpec},
    options::{ConnectorSpec, SourceOptions, SourceSpec, columns_missing},
};
use crate::error::Result;

/// Opens a source on the machine's clock.
///
/// # Errors
/// What the connector finds out when it looks at its target: a file that does not exist (58P01), a column it does not have (42703).
pub async fn open_source(spec: &SourceSpec) -> Result<Arc<dyn Source>> {
    open_source_with(spec, Clock::system()).await
}

/// Opens a source whose pace a clock of the caller's decides.
pub async fn open_source_with(spec: &SourceSpec, clock: Clock) -> Result<Arc<dyn Source>> {
    let schema = spec.schema.clone();
    Ok(match &spec.connector {
        ConnectorSpec::File(file) => Arc::new(FileSource::open(file.clone(), schema, clock).await?),
        ConnectorSpec::Nexmark(nexmark) => Arc::new(NexmarkSource::new(nexmark.clone(), schema, clock)),
        ConnectorSpec::Datagen(datagen) => Arc::new(DatagenSource::new(datagen.clone(), schema, clock)),
    })
}

/// The columns of a source that is declared without any: those of the first Parquet file, or of the Nexmark relation.
///
/// # Errors
/// 42601 for a connector or format whose columns must be declared; what the connector says about its target.
pub async fn infer_schema(options: &SourceOptions) -> Result<SchemaRef> {
    let (mut list, connector) = options.list()?;
    match connector.as_str() {
        "nexmark" => Ok(NexmarkSpec::from_options(&mut list)?.schema()),
        "file" => file::infer_schema(FileSpec::without_columns(&mut list)?).await,
        _ => Err(columns_missing(&connector)),
    }
}
