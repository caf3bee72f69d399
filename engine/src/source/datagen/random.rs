//! Random values that are a function of (seed, row): a fixed mixing function, not a library's generator, so that rows stay the same
//! when a library changes.

/// The random bits of one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RandomBits {
    seed: u64,
}

impl RandomBits {
    /// Bits for column `name` under a seed of the user's.
    pub(super) fn new(name: &str, seed: u64) -> Self {
        let mixed = name.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte)));
        Self { seed: mixed }
    }

    /// 64 bits for the `draw`th draw of row `row`.
    pub(super) fn bits(self, row: u64, draw: u64) -> u64 {
        mix(mix(self.seed.wrapping_add(row)) ^ draw.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number from 0 to below 1.
    pub(super) fn fraction(self, row: u64, draw: u64) -> f64 {
        (self.bits(row, draw) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An integer from `least` to `most`, both included.
    pub(super) fn between(self, row: u64, least: i64, most: i64) -> i64 {
        let span = (i128::from(most) - i128::from(least) + 1).unsigned_abs();
        let scaled = (u128::from(self.bits(row, 0)) * span) >> 64;
        (i128::from(least) + scaled as i128) as i64
    }
}

/// The finalizer of splitmix64.
fn mix(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
