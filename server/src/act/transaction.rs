//! BEGIN, COMMIT, ROLLBACK and savepoints.

use millpond_planner::{
    catalog::fold,
    parse::statement::{Transaction as Control, TransactionModes},
};

use crate::{
    answer::Answer,
    error::{Notice, Result, SqlError},
    session::{Session, cancel::Cancel, transaction::Phase},
};

/// Executes a transaction command.
pub(crate) async fn execute(session: &mut Session, control: &Control, cancel: &Cancel) -> Result<Answer> {
    match control {
        Control::Begin { modes, start } => {
            begin(session, *modes)?;
            Ok(Answer::done(if *start { "START TRANSACTION" } else { "BEGIN" }))
        }
        Control::Commit { chain } => commit(session, *chain, cancel).await,
        Control::Rollback { chain } => rollback(session, *chain).await,
        Control::Savepoint(name) => {
            require_block(session, "SAVEPOINT")?;
            session.transaction.savepoint(&fold(name), &session.variables)?;
            Ok(Answer::done("SAVEPOINT"))
        }
        Control::Release(name) => {
            require_block(session, "RELEASE SAVEPOINT")?;
            session.transaction.release(&fold(name))?;
            Ok(Answer::done("RELEASE"))
        }
        Control::RollbackTo(name) => {
            require_block(session, "ROLLBACK TO SAVEPOINT")?;
            let mark = session.transaction.rollback_to(&fold(name), &mut session.variables)?;
            let server = session.server.clone();
            session.transaction.definitions.undo_to(&server, mark).await;
            Ok(Answer::done("ROLLBACK"))
        }
    }
}

fn begin(session: &mut Session, modes: TransactionModes) -> Result<()> {
    match session.transaction.phase() {
        Phase::Block | Phase::Failed => session.notify(Notice::warning("25001", "there is already a transaction in progress")),
        Phase::Idle | Phase::Implicit => session.begin_transaction(Phase::Block),
    }
    session.transaction.set_modes(modes)
}

async fn commit(session: &mut Session, chain: bool, cancel: &Cancel) -> Result<Answer> {
    let (isolation, read_only) = (session.transaction.isolation, session.transaction.read_only);
    let tag = match session.transaction.phase() {
        Phase::Failed => {
            session.rollback().await;
            "ROLLBACK"
        }
        Phase::Block => {
            session.commit(cancel).await?;
            "COMMIT"
        }
        Phase::Idle | Phase::Implicit if chain => {
            return Err(SqlError::new("25P01", "COMMIT AND CHAIN can only be used in transaction blocks"));
        }
        Phase::Idle | Phase::Implicit => {
            session.notify(Notice::warning("25P01", "there is no transaction in progress"));
            session.commit(cancel).await?;
            "COMMIT"
        }
    };
    if chain {
        begin(session, TransactionModes { isolation: Some(isolation), read_only: Some(read_only), deferrable: None })?;
    }
    Ok(Answer::done(tag))
}

async fn rollback(session: &mut Session, chain: bool) -> Result<Answer> {
    let (isolation, read_only) = (session.transaction.isolation, session.transaction.read_only);
    let in_block = matches!(session.transaction.phase(), Phase::Block | Phase::Failed);
    if !in_block {
        if chain {
            return Err(SqlError::new("25P01", "ROLLBACK AND CHAIN can only be used in transaction blocks"));
        }
        session.notify(Notice::warning("25P01", "there is no transaction in progress"));
    }
    session.rollback().await;
    if chain {
        begin(session, TransactionModes { isolation: Some(isolation), read_only: Some(read_only), deferrable: None })?;
    }
    Ok(Answer::done("ROLLBACK"))
}

fn require_block(session: &Session, what: &str) -> Result<()> {
    match session.transaction.phase() {
        Phase::Block | Phase::Failed => Ok(()),
        Phase::Idle | Phase::Implicit => Err(SqlError::new("25P01", format!("{what} can only be used in transaction blocks"))),
    }
}
