//! Statements and kinds of objects that Postgres and its like have and Millpond has not, each with what to do instead.

use super::grammar::Grammar;
use crate::error::PlanError;

const CODE: &str = "Write the expression where it is needed, or name a query with CREATE VIEW.";
const REACTION: &str = "What follows from changes is said by CREATE MATERIALIZED VIEW, and CREATE SINK hands changes on.";
const VALUES: &str = "Use a built-in type, with a CHECK constraint for the values that are allowed.";
const USER: &str = "There is one user, who may do everything.";
const DATABASE: &str = "There is one database; CREATE SCHEMA makes parts of it.";
const INPUT: &str = "Use CREATE SOURCE.";
const OUTPUT: &str = "Use CREATE SINK.";
const OPTIONS: &str = "Give the options to CREATE SOURCE and CREATE SINK.";
const BUILT_IN: &str = "Functions, operators and types are built in.";
const NUMBERS: &str = "Let the INSERT give the numbers, or declare a column as UUID DEFAULT gen_random_uuid().";
const FILES: &str = "All data is in the server's data directory and its object store.";
const SETTINGS: &str = "The server has command line flags and a configuration file, a session has SET.";
const OBJECTS: &str = "Objects are schemas, tables, sources, views, materialized views, sinks and indexes.";

/// Kinds of objects; those of two words come before those of one.
const KINDS: &[(&[&str], &str)] = &[
    (&["FOREIGN", "TABLE"], INPUT),
    (&["FOREIGN", "DATA"], INPUT),
    (&["EVENT", "TRIGGER"], REACTION),
    (&["CONSTRAINT", "TRIGGER"], REACTION),
    (&["DEFAULT", "PRIVILEGES"], USER),
    (&["OWNED", "BY"], USER),
    (&["USER", "MAPPING"], OPTIONS),
    (&["TEXT", "SEARCH"], OBJECTS),
    (&["ACCESS", "METHOD"], OBJECTS),
    (&["FUNCTION"], CODE),
    (&["PROCEDURE"], CODE),
    (&["ROUTINE"], CODE),
    (&["AGGREGATE"], CODE),
    (&["TRIGGER"], REACTION),
    (&["RULE"], REACTION),
    (&["TYPE"], VALUES),
    (&["DOMAIN"], VALUES),
    (&["SEQUENCE"], NUMBERS),
    (&["ROLE"], USER),
    (&["USER"], USER),
    (&["GROUP"], USER),
    (&["POLICY"], USER),
    (&["DATABASE"], DATABASE),
    (&["EXTENSION"], BUILT_IN),
    (&["LANGUAGE"], BUILT_IN),
    (&["OPERATOR"], BUILT_IN),
    (&["CAST"], BUILT_IN),
    (&["SERVER"], OPTIONS),
    (&["CONNECTION"], OPTIONS),
    (&["SECRET"], OPTIONS),
    (&["PUBLICATION"], OUTPUT),
    (&["SUBSCRIPTION"], INPUT),
    (&["STREAM"], INPUT),
    (&["TABLESPACE"], FILES),
    (&["SYSTEM"], SETTINGS),
    (&["FOREIGN"], INPUT),
    (&["COLLATION"], OBJECTS),
    (&["CONVERSION"], OBJECTS),
    (&["STATISTICS"], OBJECTS),
    (&["CLUSTER"], OBJECTS),
];

/// What to do instead of a statement with this first word.
fn instead_of(first: &str) -> Option<&'static str> {
    Some(match first {
        "SUBSCRIBE" => "Read the view again, or write its changes with CREATE SINK.",
        "GRANT" | "REVOKE" | "REASSIGN" | "SECURITY" => USER,
        "MERGE" => "Use INSERT .. ON CONFLICT, UPDATE and DELETE.",
        "CALL" | "DO" => "Send the statements themselves, in a transaction block if they belong together.",
        "LOAD" => BUILT_IN,
        "IMPORT" => INPUT,
        "CLUSTER" => "A table is kept in the order of its primary key.",
        "REINDEX" => "Indexes need no upkeep.",
        "CHECKPOINT" => "Each job makes its own checkpoints, as its option checkpoint_interval says.",
        _ => return None,
    })
}

impl Grammar<'_> {
    /// 0A000 if a statement with the first word (upper case), which is next, is known but not supported.
    pub(super) fn unsupported_statement(&self, first: &str) -> Option<PlanError> {
        Some(self.unsupported(first, instead_of(first)?))
    }

    /// 0A000 if a kind of object is next that is known but not supported.
    pub(super) fn unsupported_kind(&self, verb: &str) -> Option<PlanError> {
        let is_next = |words: &[&str]| words.iter().enumerate().all(|(ahead, word)| self.peeks_at(ahead, word));
        let (words, hint) = KINDS.iter().find(|(words, _)| is_next(words))?;
        Some(self.unsupported(&format!("{verb} {}", words.join(" ")), hint))
    }

    /// 0A000 for kinds of objects that are known but not supported, else a syntax error.
    pub(super) fn unknown_kind(&self, verb: &str) -> PlanError {
        self.unsupported_kind(verb).unwrap_or_else(|| self.unexpected())
    }

    fn unsupported(&self, what: &str, hint: &str) -> PlanError {
        PlanError::unsupported(format!("{what} is not supported")).with_hint(hint).at(self.parser.peek_token_ref().span)
    }
}
