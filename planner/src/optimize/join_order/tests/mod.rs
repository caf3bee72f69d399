//! Orders of random join graphs against all that there are, and of queries as people write them.

mod queries;
mod random;
