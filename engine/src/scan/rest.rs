//! For how long a split is left alone that had nothing to give.
//!
//! A reader may have thousands of splits, the files of a folder, and is woken at each epoch. It asks each for more when its source says that it
//! makes sense, not whenever it is awake. One that stands still is asked ever more seldom, the more so the more splits there are: so a reader asks
//! no more than some hundred of them a second, while a file that grows, and a few files in any case, are looked at in time.

use std::time::Duration;

use tokio::time::Instant;

/// Of so long a silence,
const SILENCE_DIVISOR: u32 = 8;
/// this part is waited for, or so long for each split of the reader,
const PER_SPLIT: Duration = Duration::from_millis(5);
/// and never longer.
const LONGEST: Duration = Duration::from_secs(10);

/// The rest of one split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// When it had given rows last.
    silent_since: Instant,
    until: Instant,
}

impl Rest {
    /// Of a split that has just given rows, or was opened.
    pub(super) fn new(now: Instant) -> Self {
        Self { silent_since: now, until: now }
    }

    /// How long it is still to be left alone.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        (now < self.until).then(|| self.until - now)
    }

    /// It has nothing now, and its source says when to ask again; `standing_among` so many splits of the reader if it may well have nothing
    /// for long. Answers for how long it is left alone.
    pub(super) fn begin(&mut self, now: Instant, asked: Duration, standing_among: Option<usize>) -> Duration {
        let pause = standing_among.map_or(asked, |splits| {
            let most = (PER_SPLIT * u32::try_from(splits).unwrap_or(u32::MAX)).clamp(asked, LONGEST.max(asked));
            ((now - self.silent_since) / SILENCE_DIVISOR).clamp(asked, most)
        });
        self.until = now + pause;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Duration = Duration::from_millis(100);

    #[test]
    fn of_many_splits_that_stand_still_each_is_asked_seldom() {
        let start = Instant::now();
        let mut rest = Rest::new(start);
        assert_eq!(rest.left(start), None);
        assert_eq!(rest.begin(start, ASKED, Some(1000)), ASKED, "it was busy just now");
        assert_eq!(rest.left(start + ASKED / 2), Some(ASKED / 2));
        assert_eq!(rest.left(start + ASKED), None);
        let later = start + Duration::from_secs(16);
        assert_eq!(rest.begin(later, ASKED, Some(1000)), Duration::from_secs(2));
        let much_later = start + Duration::from_secs(1000);
        assert_eq!(rest.begin(much_later, ASKED, Some(1000)), PER_SPLIT * 1000);
        assert_eq!(rest.begin(much_later, ASKED, Some(100_000)), LONGEST);
        assert_eq!(rest.begin(much_later, ASKED, Some(3)), ASKED, "a few are looked at in time");
        assert_eq!(rest.begin(much_later, ASKED, None), ASKED, "a pace is kept");
    }
}
