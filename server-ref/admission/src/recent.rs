//! A table of what was seen lately, of a fixed size.
//!
//! Whoever can invent names can fill a map. This table has a place for so many entries and no more: a hash chooses a
//! row of eight, and in a full row the one that was not used for longest makes room. Losing an entry only makes the
//! server forget, so a flood of names buys nothing but forgetting.

use crate::slots::Nanos;

/// Entries a row.
const WAYS: usize = 8;

#[derive(Clone, Debug)]
struct Entry<V> {
    hash: u64,
    used: Nanos,
    value: V,
}

/// Values by 64-bit hash; takes no memory before its first entry.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    rows: usize,
    entries: Vec<Option<Entry<V>>>,
    swept: usize,
}

impl<V: Clone + Default> Recent<V> {
    /// A table for `size` entries, rounded up to whole rows.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            rows: size.div_ceil(WAYS).max(1),
            entries: Vec::new(),
            swept: 0,
        }
    }

    fn row(&self, hash: u64) -> std::ops::Range<usize> {
        // The high half chooses: the low one may be what a caller's map already sorted by.
        let first = ((hash >> 32) as usize % self.rows) * WAYS;
        first..first + WAYS
    }

    /// The value of this hash, if it is remembered.
    pub(crate) fn find(&mut self, hash: u64, now: Nanos) -> Option<&mut V> {
        let row = self.row(hash);
        let entry = self
            .entries
            .get_mut(row)?
            .iter_mut()
            .flatten()
            .find(|entry| entry.hash == hash)?;
        entry.used = now;
        Some(&mut entry.value)
    }

    /// The value of this hash, without counting as a use.
    pub(crate) fn peek(&mut self, hash: u64) -> Option<&mut V> {
        let row = self.row(hash);
        let entry = self
            .entries
            .get_mut(row)?
            .iter_mut()
            .flatten()
            .find(|entry| entry.hash == hash)?;
        Some(&mut entry.value)
    }

    /// The value of this hash, a new one where it is not remembered.
    pub(crate) fn enter(&mut self, hash: u64, now: Nanos) -> &mut V {
        if self.entries.is_empty() {
            self.entries.resize(self.rows * WAYS, None);
        }
        let row = self.row(hash);
        let row = &mut self.entries[row];
        let known = row
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.hash == hash));
        let place = known.unwrap_or_else(|| {
            // An empty place counts as the oldest; a row has WAYS of them, so there is a least one.
            let age = |at: &usize| row[*at].as_ref().map_or(0, |entry| entry.used.saturating_add(1));
            (0..WAYS).min_by_key(age).unwrap_or(0)
        });
        if known.is_none() {
            row[place] = None;
        }
        let entry = row[place].get_or_insert_with(|| Entry {
            hash,
            used: now,
            value: V::default(),
        });
        entry.used = now;
        &mut entry.value
    }

    /// Looks at the next `share`-th part of the table; the whole of it after `share` calls.
    pub(crate) fn sweep(&mut self, share: usize, mut look: impl FnMut(&mut V)) {
        let part = self.entries.len().div_ceil(share.max(1));
        if self.swept >= self.entries.len() {
            self.swept = 0;
        }
        let end = (self.swept + part).min(self.entries.len());
        self.entries[self.swept..end]
            .iter_mut()
            .flatten()
            .for_each(|entry| look(&mut entry.value));
        self.swept = end;
    }

    /// Everything that is remembered, with its hash.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries
            .iter()
            .flatten()
            .map(|entry| (entry.hash, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn a_flood_of_names_stays_within_the_table_and_pushes_out_what_was_unused_for_longest() {
        let mut table: Recent<u64> = Recent::new(64);
        assert_eq!(table.entries.capacity(), 0, "nothing before the first entry");
        *table.enter(1, 0) = 7;
        for n in 2..10_000 {
            *table.enter(spread(n), n) = n;
            if n % 4 == 0 {
                assert_eq!(table.find(1, n).copied(), Some(7), "what is used stays");
            }
        }
        assert_eq!(table.iter().count(), 64);
        assert_eq!(table.find(spread(3), 10_000), None);
    }

    #[test]
    fn a_sweep_sees_every_entry_once_a_round() {
        let mut table: Recent<u32> = Recent::new(128);
        for n in 0..40 {
            table.enter(spread(n), 0);
        }
        for _ in 0..10 {
            table.sweep(10, |seen| *seen += 1);
        }
        assert!(table.iter().all(|(_, seen)| *seen == 1));
    }
}
