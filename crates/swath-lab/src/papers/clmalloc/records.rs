//! The four data structures of Fig. 8 (Zhang, Lu and Zhang, section 5.3), over an allocator, with
//! YCSB's records: ten fields of 100 bytes, each a block of its own.

use std::hash::BuildHasher;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::papers::clmalloc::allocator::{Cmt, Counted, Counts, Heap, Libc};
use crate::papers::clmalloc::load::{Part, Structure};
use crate::papers::clmalloc::rounds::{Times, in_turn, on_threads};
use crate::papers::clmalloc::ycsb::{FIELDS, Operation, hash};

/// A field: 100 bytes.
type Field<A> = Box<[u32; 25], A>;

/// A record.
struct Record<A: Allocator> {
    fields: [Field<A>; FIELDS],
}

/// A field with the words of its record's number and of its version.
fn field<A: Allocator + Copy>(number: u64, version: u64, allocator: A) -> Field<A> {
    let word = hash(number ^ version << 40) as u32;
    Box::new_in(std::array::from_fn(|i| word.wrapping_add(i as u32)), allocator)
}

impl<A: Allocator + Copy> Record<A> {
    fn new(number: u64, allocator: A) -> Self {
        Self { fields: std::array::from_fn(|i| field(number, i as u64, allocator)) }
    }

    /// The sum of all words.
    fn read(&self) -> u64 {
        self.fields.iter().flat_map(|field| field.iter()).map(|&word| u64::from(word)).sum()
    }

    /// A new block takes the field's place, as an assigned string does.
    fn update(&mut self, number: u64, which: u8, allocator: A) {
        self.fields[usize::from(which)] = field(number, 16 + u64::from(which), allocator);
    }
}

/// A structure that holds records by their numbers.
trait Store<A: Allocator + Copy> {
    /// An empty one.
    fn new(allocator: A) -> Self;
    /// Adds the record of the next number.
    fn insert(&mut self, number: u64);
    /// A sum over the words that are read.
    fn read(&self, number: u64) -> u64;
    /// Replaces a field.
    fn update(&mut self, number: u64, which: u8);
    /// A sum over `len` records from one on, or as many as there are.
    fn scan(&mut self, number: u64, len: u16) -> u64;
}

/// Loads `records` records, makes the operations, and drops all; the sum of the words that were read.
fn run<A: Allocator + Copy, S: Store<A>>(
    allocator: A,
    records: u64,
    operations: &[Operation],
) -> u64 {
    let mut store = S::new(allocator);
    (0..records).for_each(|number| store.insert(number));
    let mut sum = 0_u64;
    for operation in operations {
        sum = sum.wrapping_add(match *operation {
            Operation::Read(number) => store.read(number),
            Operation::Update(number, which) => {
                store.update(number, which);
                0
            }
            Operation::Insert(number) => {
                store.insert(number);
                0
            }
            Operation::Scan(number, len) => store.scan(number, len),
            Operation::ReadModifyWrite(number, which) => {
                let read = store.read(number);
                store.update(number, which);
                read
            }
        });
    }
    sum
}

/// An open hash table with the records' fields in it.
struct Hashed<A: Allocator + Copy> {
    map: HashMap<u64, Record<A>, FixedState, A>,
    allocator: A,
}

impl<A: Allocator + Copy> Store<A> for Hashed<A> {
    fn new(allocator: A) -> Self {
        let map = HashMap::with_hasher_in(FixedState::with_seed(1), allocator);
        Self { map, allocator }
    }

    fn insert(&mut self, number: u64) {
        self.map.insert(hash(number), Record::new(number, self.allocator));
    }

    fn read(&self, number: u64) -> u64 {
        self.map.get(&hash(number)).map_or(0, Record::read)
    }

    fn update(&mut self, number: u64, which: u8) {
        if let Some(record) = self.map.get_mut(&hash(number)) {
            record.update(number, which, self.allocator);
        }
    }

    /// It has no order: the records of the next numbers.
    fn scan(&mut self, number: u64, len: u16) -> u64 {
        (number..number + u64::from(len)).map(|number| self.read(number)).fold(0, u64::wrapping_add)
    }
}

/// Records by number.
struct Listed<A: Allocator + Copy> {
    records: Vec<Record<A>, A>,
    allocator: A,
}

impl<A: Allocator + Copy> Store<A> for Listed<A> {
    fn new(allocator: A) -> Self {
        Self { records: Vec::new_in(allocator), allocator }
    }

    fn insert(&mut self, number: u64) {
        self.records.push(Record::new(number, self.allocator));
    }

    fn read(&self, number: u64) -> u64 {
        self.records.get(number as usize).map_or(0, Record::read)
    }

    fn update(&mut self, number: u64, which: u8) {
        if let Some(record) = self.records.get_mut(number as usize) {
            record.update(number, which, self.allocator);
        }
    }

    fn scan(&mut self, number: u64, len: u16) -> u64 {
        let records = self.records.iter().skip(number as usize).take(len.into());
        records.map(Record::read).fold(0, u64::wrapping_add)
    }
}

/// A binary heap of records in blocks of their own. It finds no record but the first, so this is
/// the one that is read; an update takes it out, and puts it back with the key of the record that
/// was to be updated; a scan takes out as many, and puts them back.
struct Queue<A: Allocator + Copy> {
    heap: Vec<(u64, Box<Record<A>, A>), A>,
    allocator: A,
}

impl<A: Allocator + Copy> Queue<A> {
    fn push(&mut self, key: u64, record: Box<Record<A>, A>) {
        self.heap.push((key, record));
        let mut at = self.heap.len() - 1;
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<(u64, Box<Record<A>, A>)> {
        let last = self.heap.len().checked_sub(1)?;
        self.heap.swap(0, last);
        let first = self.heap.pop();
        let mut at = 0;
        loop {
            let children = (2 * at + 1..2 * at + 3).filter(|&child| child < last);
            let Some(least) = children.min_by_key(|&child| self.heap[child].0) else { break };
            if self.heap[at].0 <= self.heap[least].0 {
                break;
            }
            self.heap.swap(at, least);
            at = least;
        }
        first
    }
}

impl<A: Allocator + Copy> Store<A> for Queue<A> {
    fn new(allocator: A) -> Self {
        Self { heap: Vec::new_in(allocator), allocator }
    }

    fn insert(&mut self, number: u64) {
        let record = Box::new_in(Record::new(number, self.allocator), self.allocator);
        self.push(hash(number), record);
    }

    fn read(&self, _: u64) -> u64 {
        self.heap.first().map_or(0, |(_, record)| record.read())
    }

    fn update(&mut self, number: u64, which: u8) {
        if let Some((_, mut record)) = self.pop() {
            record.update(number, which, self.allocator);
            self.push(hash(number), record);
        }
    }

    fn scan(&mut self, _: u64, len: u16) -> u64 {
        let mut taken = Vec::new_in(self.allocator);
        for _ in 0..len {
            taken.extend(self.pop());
        }
        let mut sum = 0_u64;
        for (key, record) in taken {
            sum = sum.wrapping_add(record.read());
            self.push(key, record);
        }
        sum
    }
}

/// A link of a chain.
type Link<A> = Option<Box<Node<A>, A>>;

struct Node<A: Allocator> {
    key: u64,
    record: Record<A>,
    next: Link<A>,
}

/// A hash table of chained nodes, as `std::unordered_map` is: a block for each record, and one
/// for the table, which grows when there are as many records as chains.
struct Chained<A: Allocator + Copy> {
    chains: Vec<Link<A>, A>,
    len: usize,
    hasher: FixedState,
    allocator: A,
}

impl<A: Allocator + Copy> Chained<A> {
    fn chain(&self, key: u64) -> usize {
        // As many chains as a power of two.
        self.hasher.hash_one(key) as usize & (self.chains.len() - 1)
    }

    fn table(chains: usize, allocator: A) -> Vec<Link<A>, A> {
        let mut table = Vec::with_capacity_in(chains, allocator);
        table.resize_with(chains, || None);
        table
    }

    /// Twice as many chains; the nodes stay where they are.
    fn grow(&mut self) {
        let grown = Self::table(2 * self.chains.len(), self.allocator);
        for mut link in std::mem::replace(&mut self.chains, grown) {
            while let Some(mut node) = link {
                link = node.next.take();
                self.add(node);
            }
        }
    }

    fn add(&mut self, mut node: Box<Node<A>, A>) {
        let chain = self.chain(node.key);
        node.next = self.chains[chain].take();
        self.chains[chain] = Some(node);
    }
}

impl<A: Allocator + Copy> Store<A> for Chained<A> {
    fn new(allocator: A) -> Self {
        let hasher = FixedState::with_seed(1);
        Self { chains: Self::table(16, allocator), len: 0, hasher, allocator }
    }

    fn insert(&mut self, number: u64) {
        if self.len == self.chains.len() {
            self.grow();
        }
        let record = Record::new(number, self.allocator);
        let node = Node { key: hash(number), record, next: None };
        self.add(Box::new_in(node, self.allocator));
        self.len += 1;
    }

    fn read(&self, number: u64) -> u64 {
        let key = hash(number);
        let mut link = &self.chains[self.chain(key)];
        while let Some(node) = link {
            if node.key == key {
                return node.record.read();
            }
            link = &node.next;
        }
        0
    }

    fn update(&mut self, number: u64, which: u8) {
        let (key, allocator) = (hash(number), self.allocator);
        let chain = self.chain(key);
        let mut link = &mut self.chains[chain];
        while let Some(node) = link {
            if node.key == key {
                node.record.update(number, which, allocator);
                return;
            }
            link = &mut node.next;
        }
    }

    /// As for [`Hashed`].
    fn scan(&mut self, number: u64, len: u16) -> u64 {
        (number..number + u64::from(len)).map(|number| self.read(number)).fold(0, u64::wrapping_add)
    }
}

/// The time of a structure on each thread, its memory from `H`, and the sums of what was read.
///
/// # Errors
/// A thread that panicked.
pub(crate) fn run_all<H: Heap + Sync>(
    structure: Structure,
    parts: &[Part],
) -> Result<(f64, std::vec::Vec<u64>), String> {
    fn all<H: Heap + Sync, S: Store<H>>(
        parts: &[Part],
    ) -> Result<(f64, std::vec::Vec<u64>), String> {
        on_threads(parts, |part| run::<_, S>(H::default(), part.records, &part.operations))
    }
    match structure {
        Structure::HashMap => all::<H, Hashed<H>>(parts),
        Structure::Vector => all::<H, Listed<H>>(parts),
        Structure::PriorityQueue => all::<H, Queue<H>>(parts),
        Structure::UnorderedMap => all::<H, Chained<H>>(parts),
    }
}

/// The times of both allocators for a structure on each thread, and the sums of what was read.
///
/// # Errors
/// Sums that differ.
pub(crate) fn times(
    structure: Structure,
    parts: &[Part],
    round: u64,
) -> Result<(Times, std::vec::Vec<u64>), String> {
    in_turn(round, || run_all::<Libc>(structure, parts), || run_all::<Cmt>(structure, parts))
}

/// The requests of a structure to its allocator, and the sum of what was read.
pub(crate) fn count(structure: Structure, part: &Part) -> (Counts, u64) {
    fn counted<S: Store<Counted>>(Part { records, operations }: &Part) -> u64 {
        run::<_, S>(Counted, *records, operations)
    }
    Counted::take();
    let sum = match structure {
        Structure::HashMap => counted::<Hashed<Counted>>(part),
        Structure::Vector => counted::<Listed<Counted>>(part),
        Structure::PriorityQueue => counted::<Queue<Counted>>(part),
        Structure::UnorderedMap => counted::<Chained<Counted>>(part),
    };
    (Counted::take(), sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::clmalloc::load::parts;
    use crate::papers::clmalloc::ycsb::{Workload, operations};

    fn sum_of(number: u64, versions: &[u64; FIELDS]) -> u64 {
        let words = |version: u64| {
            let word = hash(number ^ version << 40) as u32;
            (0..25).map(move |i| u64::from(word.wrapping_add(i)))
        };
        versions.iter().flat_map(|&version| words(version)).sum()
    }

    /// The same by a plain list of versions.
    fn naive(records: u64, operations: &[Operation]) -> u64 {
        let new = || std::array::from_fn(|i| i as u64);
        let mut all: std::vec::Vec<[u64; FIELDS]> = (0..records).map(|_| new()).collect();
        let mut sum = 0_u64;
        for operation in operations {
            let read = |number: u64, all: &[[u64; FIELDS]]| {
                all.get(number as usize).map_or(0, |versions| sum_of(number, versions))
            };
            let update = |number: u64, which: u8, all: &mut [[u64; FIELDS]]| {
                all[number as usize][usize::from(which)] = 16 + u64::from(which);
            };
            match *operation {
                Operation::Read(number) => sum = sum.wrapping_add(read(number, &all)),
                Operation::Update(number, which) => update(number, which, &mut all),
                Operation::Insert(_) => all.push(new()),
                Operation::Scan(number, len) => {
                    for number in number..number + u64::from(len) {
                        sum = sum.wrapping_add(read(number, &all));
                    }
                }
                Operation::ReadModifyWrite(number, which) => {
                    sum = sum.wrapping_add(read(number, &all));
                    update(number, which, &mut all);
                }
            }
        }
        sum
    }

    #[test]
    fn maps_and_vector_read_what_was_written() {
        for workload in Workload::ALL {
            let operations = operations(workload, 300, 1000, 5);
            let expected = naive(300, &operations);
            assert_eq!(run::<_, Hashed<_>>(Libc, 300, &operations), expected, "{workload:?}");
            assert_eq!(run::<_, Listed<_>>(Cmt, 300, &operations), expected, "{workload:?}");
            assert_eq!(run::<_, Chained<_>>(Cmt, 300, &operations), expected, "{workload:?}");
            Counted::take();
            assert_eq!(run::<_, Chained<_>>(Counted, 300, &operations), expected, "{workload:?}");
            let counts = Counted::take();
            assert_eq!((counts.allocations, counts.live_bytes), (counts.frees, 0));
        }
    }

    #[test]
    fn a_queue_gives_the_least_first() {
        let mut queue = Queue::new(Cmt);
        for number in 0..200 {
            queue.insert(number);
        }
        for number in 0..50 {
            queue.update(number, 3);
            queue.scan(number, 7);
        }
        let mut before = 0;
        let mut count = 0;
        while let Some((key, _)) = queue.pop() {
            assert!(key >= before);
            (before, count) = (key, count + 1);
        }
        assert_eq!(count, 200);
        assert_eq!(queue.read(0), 0);
    }

    /// On threads, both allocators read the same, which is what one thread alone reads.
    #[test]
    fn sums_are_the_same_everywhere() {
        for structure in Structure::ALL {
            let parts = parts(Workload::A, 800, 4, |thread| 9 ^ thread << 32);
            let (_, sums) = times(structure, &parts, 1).unwrap();
            for (part, sum) in parts.iter().zip(sums) {
                let (counts, alone) = count(structure, part);
                assert_eq!(alone, sum, "{structure:?}");
                assert_eq!(counts.live_bytes, 0);
                assert!(counts.allocations >= 2000, "{counts:?}");
            }
        }
    }
}
