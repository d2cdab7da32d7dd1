//! A binary heap whose entries can be taken out of the middle.
//!
//! Work that is cancelled must leave every queue at once: a heap that only forgets lazily grows without bound under
//! a flood of admissions and cancellations. So each id knows its place.

const ABSENT: u32 = u32::MAX;

/// A min-heap of small ids, each at most once.
#[derive(Debug, Default)]
pub(crate) struct IndexedHeap {
    entries: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl IndexedHeap {
    /// The smallest key and its id.
    pub(crate) fn peek(&self) -> Option<(u64, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.place.get(id as usize).is_some_and(|place| *place != ABSENT)
    }

    /// Puts `id` in, or moves it where it is in already.
    pub(crate) fn push(&mut self, id: u32, key: u64) {
        self.remove(id);
        if self.place.len() <= id as usize {
            let more = id as usize + 1 - self.place.len();
            if self.place.capacity() <= id as usize {
                // By quarters: most ids of a table that is full once are never beyond it.
                self.place.reserve_exact(more.max(self.place.len() / 4));
            }
            self.place.resize(id as usize + 1, ABSENT);
        }
        self.entries.push((key, id));
        self.place[id as usize] = self.entries.len() as u32 - 1;
        self.up(self.entries.len() - 1);
    }

    /// Takes `id` out; nothing where it is not in.
    pub(crate) fn remove(&mut self, id: u32) {
        if !self.contains(id) {
            return;
        }
        let at = self.place[id as usize] as usize;
        self.place[id as usize] = ABSENT;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.place[self.entries[at].1 as usize] = at as u32;
            self.up(at);
            self.down(at);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.place[self.entries[a].1 as usize] = a as u32;
        self.place[self.entries[b].1 as usize] = b as u32;
    }

    fn up(&mut self, mut at: usize) {
        while at > 0 && self.entries[at] < self.entries[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn down(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2]
                .into_iter()
                .filter(|child| *child < self.entries.len());
            let Some(least) = children.min_by_key(|child| self.entries[*child]) else {
                return;
            };
            if self.entries[least] >= self.entries[at] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_set_whatever_is_pushed_and_removed(
            ops in proptest::collection::vec((0_u32..40, 0_u64..50, any::<bool>()), 0..300)
        ) {
            let mut heap = IndexedHeap::default();
            let mut model = std::collections::BTreeMap::new();
            for (id, key, push) in ops {
                if push {
                    heap.push(id, key);
                    model.insert(id, key);
                } else {
                    heap.remove(id);
                    model.remove(&id);
                }
                let least = model.iter().map(|(id, key)| (*key, *id)).min();
                prop_assert_eq!(heap.peek(), least);
                prop_assert_eq!(heap.contains(id), model.contains_key(&id));
            }
        }
    }
}
