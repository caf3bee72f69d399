use std::time::Duration;

use super::*;

/// One of so many deltas with rows of so many bytes.
fn changed(deltas: usize, rows: u64, bytes: u64) -> Changed {
    Changed { deltas, rows, bytes }
}

#[test]
fn a_transaction_waits_for_its_interval_from_the_first_row_on() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut gathering = Gathering { interval: Duration::from_millis(1000), since: None };
    assert_eq!(gathering.next(changed(0, 0, 0), false, at(0)), Next::Wait(None));
    assert_eq!(gathering.next(changed(1, 0, 8), false, at(50)), Next::Wait(None), "a watermark alone is not worth a file");
    assert_eq!(gathering.next(changed(2, 5, 80), false, at(100)), Next::Wait(Some(at(1100))));
    assert_eq!(gathering.next(changed(9, 50, 800), false, at(1099)), Next::Wait(Some(at(1100))));
    assert_eq!(gathering.next(changed(10, 51, 808), false, at(1100)), Next::Write);
    assert_eq!(
        gathering.next(changed(1, 1, 8), false, at(1200)),
        Next::Wait(Some(at(2200))),
        "the next interval begins with what comes next"
    );
    assert_eq!(gathering.next(changed(2, 1, MANY_BYTES), false, at(1300)), Next::Write, "much is written early");
    assert_eq!(gathering.next(changed(1, 1, 8), true, at(1400)), Next::Write, "and so is the end");
    assert_eq!(gathering.next(changed(MANY_WITHOUT_ROWS, 0, 8), false, at(1500)), Next::Write, "what is held is bounded");
    let mut at_once = Gathering { interval: Duration::ZERO, since: None };
    assert_eq!(at_once.next(changed(1, 1, 8), false, at(0)), Next::Write);
}
