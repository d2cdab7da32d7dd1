//! Where admitted work lives between its admission and its end: a slab with generations.
//!
//! A ticket that is finished twice, or after its place was given to other work, must release nothing. The
//! generation in the ticket tells.

use holdoff_contract::Tier;

use crate::{ClassId, Ticket};

/// Nanoseconds since the controller was made, or a length.
pub(crate) type Nanos = u64;

/// "No slot" in links.
pub(crate) const NONE: u32 = u32::MAX;

/// Where the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    /// In the queue of this lane.
    Queued(usize),
    /// On a worker, at this index of the pool's list.
    Running(usize),
}

/// One admitted task and its links. What it was charged stands here, and this is what is released.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) place: Place,
    pub(crate) tenant: u32,
    pub(crate) class: ClassId,
    pub(crate) tier: Tier,
    pub(crate) charge: Nanos,
    pub(crate) bytes: u64,
    pub(crate) admitted: Nanos,
    pub(crate) started: Nanos,
    pub(crate) deadline: Nanos,
    pub(crate) predicted: Nanos,
    /// Started whatever the estimate says by then: promised, deferred, or a probe.
    pub(crate) exempt: bool,
    /// Links of the tenant's sub-queue.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Links of the lane in order of arrival.
    pub(crate) older: u32,
    pub(crate) newer: u32,
}

/// All slots. Its size is bounded by what the queues and the workers hold together.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// Stores the work and makes its ticket.
    pub(crate) fn insert(&mut self, mut slot: Slot) -> Ticket {
        let index = match self.free.pop() {
            Some(index) => {
                slot.generation = self.slots[index as usize].generation.wrapping_add(1);
                self.slots[index as usize] = slot;
                index
            }
            None => {
                slot.generation = 0;
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        Ticket {
            slot: index,
            generation: self.slots[index as usize].generation,
        }
    }

    /// Gives the slot back; its ticket is spent from now on.
    pub(crate) fn release(&mut self, index: u32) {
        self.slots[index as usize].place = Place::Free;
        self.free.push(index);
    }

    /// The slot of a ticket that is not spent.
    pub(crate) fn live(&self, ticket: &Ticket) -> Option<&Slot> {
        self.slots
            .get(ticket.slot as usize)
            .filter(|slot| slot.generation == ticket.generation && slot.place != Place::Free)
    }

    pub(crate) fn key(&self, index: u32) -> u64 {
        Ticket {
            slot: index,
            generation: self[index].generation,
        }
        .key()
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}
