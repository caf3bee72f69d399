//! Constant rows, emitted once: before the first barrier after the job's creation.
//!
//! No input; append-only output. State: table 0, `()` -> `()`, present once the rows have been emitted; it never dies, so a restarted job does
//! not emit them again. After the rows there is nothing: the watermark of every column is the end of time.
