//! Reading the tables: the way from the root to an entry, and the way over all
//! of them.

use swath_arch::{
    BASE_PAGE_SHIFT, BusError, Coalescing, ContiguityField, Format, Order, Pfn, PhysAddr,
    PhysMemory, Regime, Vpn,
};

use crate::table::encode::{self, Entry, Kind, LEVELS_MAX};

/// The shape of the tables at one level.
#[derive(Clone, Copy)]
struct Shape {
    /// log2 of the base pages that an entry maps.
    entry_order: Order,
    /// Entries in a table.
    entries: u64,
    /// An entry can map a page.
    has_leaves: bool,
}

/// The shapes of all levels of each format: an index into it serves all formats alike, where a branch
/// for each would cost the others.
static SHAPES: [[Shape; LEVELS_MAX]; Format::ALL.len()] = {
    let none = Shape { entry_order: Order::BASE, entries: 1, has_leaves: false };
    let mut shapes = [[none; LEVELS_MAX]; Format::ALL.len()];
    let mut i = 0;
    while i < shapes.len() {
        let format = Format::ALL[i];
        let levels = format.levels();
        let mut level = 0;
        while level < levels.len() {
            let index = levels[level].index;
            shapes[format as usize][level] = Shape {
                entry_order: Order::known((index.low - BASE_PAGE_SHIFT) as u8),
                entries: index.max() + 1,
                has_leaves: !levels[level].leaves.is_empty(),
            };
            level += 1;
        }
        i += 1;
    }
    shapes
};

/// The tables as bytes: memory, and what the hardware is told.
#[derive(Debug)]
pub(crate) struct View<'m, M> {
    pub(crate) memory: &'m M,
    pub(crate) regime: Regime,
    /// Tables whose entries can be superpages have a software half: the word
    /// beside a link counts the entries in use of the table below, the word
    /// beside everything else is the address of the table kept there, or 0.
    pub(crate) superpages: bool,
}

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for View<'_, M> {}

/// An entry where the way down ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryAt {
    pub(crate) level: usize,
    pub(crate) at: PhysAddr,
    pub(crate) word: u64,
}

/// The end of the way to a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) table: PhysAddr,
    /// The entry that links it; the root's own address for the root.
    pub(crate) link: PhysAddr,
    /// It was made on the way.
    pub(crate) fresh: bool,
}

/// A table below the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    pub(crate) level: usize,
    pub(crate) table: PhysAddr,
    /// The entry above it: a link, or what the table is kept for.
    pub(crate) link: PhysAddr,
    /// Kept beside a superpage: the hardware does not reach it.
    pub(crate) kept: bool,
    /// Entries in use; not counted in a kept table.
    pub(crate) in_use: u64,
}

/// An object met by [`View::visit`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visit {
    /// A leaf; the first page that its entry maps.
    Leaf { level: usize, at: PhysAddr, page: Vpn, leaf: encode::Leaf, word: u64 },
    /// A table other than the root, after everything in it.
    Table(Below),
}

impl<M: PhysMemory> View<'_, M> {
    pub(crate) const fn format(self) -> Format {
        self.regime.format
    }

    /// Returns the number of the level whose entries map base pages.
    pub(crate) const fn leaf_level(self) -> usize {
        self.regime.format.levels().len() - 1
    }

    #[inline]
    fn shape(self, level: usize) -> Shape {
        SHAPES[self.regime.format as usize][level % LEVELS_MAX]
    }

    /// Counts the entries in a table at `level`.
    #[inline]
    pub(crate) fn entries(self, level: usize) -> u64 {
        self.shape(level).entries
    }

    /// Returns the order of what one entry at `level` maps.
    #[inline]
    pub(crate) fn entry_order(self, level: usize) -> Order {
        self.shape(level).entry_order
    }

    /// Returns the entry of its table at `level` that belongs to the page.
    #[inline]
    pub(crate) fn index(self, level: usize, page: Vpn) -> u64 {
        let Shape { entry_order, entries, .. } = self.shape(level);
        page.raw() >> entry_order.k() & (entries - 1)
    }

    pub(crate) fn entry(self, table: PhysAddr, index: u64) -> PhysAddr {
        table + index * self.regime.format.entry_bytes()
    }

    /// Returns the order of the frames that hold a table at `level`.
    pub(crate) fn table_order(self, level: usize) -> Order {
        if self.has_half(level) {
            let order = if level == 0 { self.regime.format.root_order() } else { Order::BASE };
            return Order::known(order.k() as u8 + 1);
        }
        if level == 0 {
            return self.regime.format.root_order();
        }
        match self.regime.coalescing {
            Coalescing::Pcad(ContiguityField::Beside { .. })
            | Coalescing::Anchor { field: ContiguityField::Beside { .. }, .. }
                if level == self.leaf_level() =>
            {
                Order::known(1)
            }
            _ => Order::BASE,
        }
    }

    /// Returns true if tables at `level` have a software half.
    #[inline]
    pub(crate) fn has_half(self, level: usize) -> bool {
        self.superpages && level < self.leaf_level() && self.shape(level).has_leaves
    }

    /// Returns the word of the software half that belongs to the entry at `at` of a
    /// table at `level`: as far behind the entry as the table is long.
    pub(crate) fn half(self, level: usize, at: PhysAddr) -> PhysAddr {
        at + self.entries(level) * self.regime.format.entry_bytes()
    }

    /// Returns the table kept beside the entry at `at`, whose word is no link.
    pub(crate) fn kept(self, level: usize, at: PhysAddr) -> Result<Option<PhysAddr>, BusError> {
        if !self.has_half(level) {
            return Ok(None);
        }
        let table = self.read(self.half(level, at))?;
        Ok((table != 0).then_some(PhysAddr::new(table)))
    }

    /// Returns the entry that links the table at `level` on the way to the page, if
    /// the way goes so far.
    pub(crate) fn link(self, page: Vpn, level: usize) -> Result<Option<PhysAddr>, BusError> {
        let mut table = self.regime.root;
        let mut link = None;
        for above in 0..level {
            let at = self.entry(table, self.index(above, page));
            let Kind::Table(next) = encode::kind(self.format(), above, self.read(at)?) else {
                return Ok(None);
            };
            (table, link) = (next, Some(at));
        }
        Ok(link)
    }

    #[inline]
    pub(crate) fn read(self, at: PhysAddr) -> Result<u64, BusError> {
        match self.regime.format.entry_bytes() {
            4 => self.memory.read_u32(at).map(u64::from),
            _ => self.memory.read_u64(at),
        }
    }

    #[inline]
    pub(crate) fn write(self, at: PhysAddr, word: u64) -> Result<(), BusError> {
        match self.regime.format.entry_bytes() {
            4 => self.memory.write_u32(at, word as u32),
            _ => self.memory.write_u64(at, word),
        }
    }

    /// Returns the entry at which the way to the page ends: a leaf, or an entry not in
    /// use. At most one read per level.
    pub(crate) fn find(self, page: Vpn) -> Result<EntryAt, BusError> {
        let mut table = self.regime.root;
        let mut level = 0;
        loop {
            let at = self.entry(table, self.index(level, page));
            let word = self.read(at)?;
            match encode::kind(self.format(), level, word) {
                Kind::Table(next) if level < self.leaf_level() => {
                    table = next;
                    level += 1;
                }
                _ => return Ok(EntryAt { level, at, word }),
            }
        }
    }

    /// Returns the frame that, in ARMv7, the tables of the first-level entry at `at` and
    /// of its three fellows share, if one of the fellows has a table.
    pub(crate) fn shared_frame(self, at: PhysAddr) -> Result<Option<Pfn>, BusError> {
        for i in 0..4 {
            let fellow = PhysAddr::new((at.raw() & !15) + 4 * i);
            if fellow == at {
                continue;
            }
            if let Kind::Table(table) = encode::kind(Format::ArmV7, 0, self.read(fellow)?) {
                return Ok(Some(table.frame()));
            }
            if let Some(table) = self.kept(0, fellow)? {
                return Ok(Some(table.frame()));
            }
        }
        Ok(None)
    }

    /// Visits every leaf and every table but the root, in ascending order of
    /// pages, a table after what is in it, kept tables after the superpage.
    /// What cannot be read is passed over.
    ///
    /// # Errors
    /// The first bus error, once all the rest has been visited.
    pub(crate) fn visit(self, mut visit: impl FnMut(Visit)) -> Result<(), BusError> {
        #[derive(Clone, Copy)]
        struct WalkStep {
            below: Below,
            next: u64,
            page: u64,
        }
        let mut result = Ok(());
        let root = self.regime.root;
        let below = Below { level: 0, table: root, link: root, kept: false, in_use: 0 };
        let mut path = [WalkStep { below, next: 0, page: 0 }; LEVELS_MAX];
        let mut level = 0;
        loop {
            let step = &mut path[level];
            let kept = step.below.kept;
            if step.next == self.entries(level) {
                if level == 0 {
                    return result;
                }
                visit(Visit::Table(step.below));
                level -= 1;
                continue;
            }
            let at = self.entry(step.below.table, step.next);
            let page = step.page + (step.next << self.entry_order(level).k());
            step.next += 1;
            let mut word_of = |word: Result<u64, BusError>| match word {
                Ok(word) => Some(word),
                Err(bus) => {
                    result = result.and(Err(bus));
                    None
                }
            };
            let Some(word) = word_of(self.read(at)) else { continue };
            let entry = encode::decode(self.format(), level, word);
            step.below.in_use += u64::from(entry != Entry::Empty);
            let table = match entry {
                Entry::Table(table) => Some((table, kept)),
                Entry::Leaf(_) | Entry::Empty if self.has_half(level) => {
                    word_of(self.read(self.half(level, at)))
                        .filter(|&table| table != 0)
                        .map(|table| (PhysAddr::new(table), true))
                }
                Entry::Leaf(_) | Entry::Empty => None,
            };
            if let (Entry::Leaf(leaf), false) = (entry, kept) {
                let page = canonical(self.format(), page);
                visit(Visit::Leaf { level, at, page, leaf, word });
            }
            if let Some((table, kept)) = table {
                level += 1;
                let below = Below { level, table, link: at, kept, in_use: 0 };
                // Nothing hangs on a kept table of leaves.
                let next = if kept && !self.has_half(level) { self.entries(level) } else { 0 };
                path[level] = WalkStep { below, next, page };
            }
        }
    }
}

/// Returns the page number with the upper half of the addresses, if there is one, extended in sign.
const fn canonical(format: Format, page: u64) -> Vpn {
    let bits = format.va_bits() - BASE_PAGE_SHIFT;
    if format.has_halves() && page >> (bits - 1) != 0 {
        return Vpn::new(page | ((1 << 52) - (1 << bits)));
    }
    Vpn::new(page)
}
