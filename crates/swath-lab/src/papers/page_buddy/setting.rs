//! The settings that the plans of this paper share: the machine of Table 3,
//! and the state of memory before the requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{ContiguityField, Format, Order};
use swath_frame::BuddyConfig;
use swath_hw::{Geometry, Replacement, WalkOrder};

use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::{Ageing, scattered_bytes};
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Share};
use crate::study::claim::Conditions;
use crate::study::needs::bytes;
use crate::study::plan::{PlanError, Refused, require};

/// BBS with MAX_ORDER `max_order`.
///
/// # Errors
/// [`PlanError::Orders`]; never for an order of a plan that was read.
pub fn bbs(max_order: u8) -> Result<BuddyConfig, PlanError> {
    pbs(1, max_order.saturating_sub(1))
}

/// PBS with this granularity and top order.
///
/// # Errors
/// [`PlanError::Orders`]; never for orders of a plan that was read.
pub fn pbs(granularity: u8, top_order: u8) -> Result<BuddyConfig, PlanError> {
    let error = |why| PlanError::Orders { granularity, top_order, why };
    let top = Order::new(top_order).ok_or_else(|| error("there is no such order".to_owned()))?;
    BuddyConfig::new(granularity.into(), top).map_err(|why| error(why.to_string()))
}

/// A translation format, as a plan writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum FormatName {
    /// ARMv7-A short descriptors.
    #[serde(rename = "armv7")]
    ArmV7,
    /// ARMv8-A, 4 KiB granule.
    #[serde(rename = "armv8")]
    ArmV8,
    /// x86-64, 4 levels.
    #[serde(rename = "x86-64")]
    X86_64,
    /// RISC-V Sv39.
    #[serde(rename = "sv39")]
    Sv39,
    /// RISC-V Sv48.
    #[serde(rename = "sv48")]
    Sv48,
}

impl FormatName {
    /// The format.
    pub const fn format(self) -> Format {
        match self {
            Self::ArmV7 => Format::ArmV7,
            Self::ArmV8 => Format::ArmV8,
            Self::X86_64 => Format::X86_64,
            Self::Sv39 => Format::Sv39,
            Self::Sv48 => Format::Sv48,
        }
    }

    /// Its name in a report.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ArmV7 => "ARMv7",
            Self::ArmV8 => "ARMv8",
            Self::X86_64 => "x86-64",
            Self::Sv39 => "RISC-V Sv39",
            Self::Sv48 => "RISC-V Sv48",
        }
    }
}

/// The width of the contiguity fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ContiguityBits {
    /// `"format"` or `"line"`: the bits that the format's descriptors leave free.
    Format(FormatWord),
    /// A number: an ideal field of so many bits beside the table.
    Ideal(u8),
}

/// The way in which the free bits are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormatWord {
    /// A page's own descriptor tells of it.
    Format,
    /// The descriptors of the line that a walk's last read brings, together.
    Line,
}

impl ContiguityBits {
    /// The field that the page tables use.
    pub const fn field(self) -> ContiguityField {
        match self {
            Self::Format(FormatWord::Format) => ContiguityField::Descriptor,
            Self::Format(FormatWord::Line) => ContiguityField::Line,
            Self::Ideal(bits) => ContiguityField::Beside { bits },
        }
    }

    /// Its name in a report.
    pub fn title(self, format: FormatName) -> String {
        match self {
            Self::Format(FormatWord::Format) => format!("{}'s own bits", format.title()),
            Self::Format(FormatWord::Line) => format!("{}'s bits of a line", format.title()),
            Self::Ideal(bits) => format!("ideal {bits} bits"),
        }
    }

    /// Refuses a field that is wider than the format has room for.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(self, key: &str, format: FormatName) -> Result<(), Refused> {
        let Self::Ideal(bits) = self else { return Ok(()) };
        let max = format.format().beside_half_bits();
        require((1..=max).contains(&u32::from(bits)), key, || {
            format!("{bits} is not between 1 and {max}, the widest beside {}", format.title())
        })
    }
}

/// A [`Replacement`], as a plan writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementName {
    /// The least recently used entry gives way.
    #[default]
    Lru,
    /// The entry that was filled first gives way.
    Fifo,
    /// Any entry gives way.
    Random,
}

impl ReplacementName {
    /// The replacement.
    pub const fn replacement(self) -> Replacement {
        match self {
            Self::Lru => Replacement::Lru,
            Self::Fifo => Replacement::Fifo,
            Self::Random => Replacement::Random,
        }
    }

    /// Its name in a report.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Fifo => "FIFO",
            Self::Random => "random",
        }
    }
}

/// A [`WalkOrder`], as a plan writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WalkOrderName {
    /// The page's walk, then the anchor's.
    #[default]
    RegularFirst,
    /// The anchor's walk; the page's only if the anchor does not cover it.
    AnchorFirst,
}

impl WalkOrderName {
    /// The order.
    pub const fn order(self) -> WalkOrder {
        match self {
            Self::RegularFirst => WalkOrder::RegularFirst,
            Self::AnchorFirst => WalkOrder::AnchorFirst,
        }
    }
}

/// Number of entries of a TLB.
pub type TlbEntries = Bounded<1, 65_536>;

/// log2 of AT's anchor distance in pages.
pub type AnchorLog2 = Bounded<1, 16>;

/// Returns the form of a TLB, fully associative if no ways are given; or why there is none.
///
/// # Errors
/// The reason, in words.
pub fn geometry(entries: TlbEntries, ways: Option<TlbEntries>) -> Result<Geometry, String> {
    let (entries, ways) = (entries.small(), ways.unwrap_or(entries).small());
    let sets = entries / ways;
    if sets * ways != entries || !sets.is_power_of_two() {
        return Err(format!("{entries} entries are not a power of two of sets of {ways} ways"));
    }
    Ok(Geometry { sets, ways, index_shift: 0 })
}

/// Size of a free block in frames.
pub type BlockFrames = Bounded<1, { 1 << 20 }>;

/// The machine of a translation study (Table 3). What a plan does not say is as in that table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachinePlan {
    /// The translation format.
    pub format: FormatName,
    /// Entries in each TLB.
    #[serde(default = "table_3::tlb_entries")]
    pub tlb_entries: TlbEntries,
    /// Ways of a set; fully associative, as with as many ways as entries, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_ways: Option<TlbEntries>,
    /// The choice of the entry that gives way in a TLB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tlb_replacement: ReplacementName,
    /// The order of AT's two walks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub walk_order: WalkOrderName,
    /// log2 of AT's anchor distance in pages; the distance that suits the mapped blocks best if not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_log2: Option<AnchorLog2>,
    /// The width of Ascend, Descend and of an anchor's contiguity.
    #[serde(default = "table_3::contiguity_bits")]
    pub contiguity_bits: ContiguityBits,
    /// BBS: number of free lists, for blocks of 1, 2, 4, … frames.
    #[serde(default = "table_3::bbs_max_order")]
    pub bbs_max_order: Bounded<1, 64>,
    /// PBS: the distance between adjacent orders; if not given that of the format's page sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pbs_granularity: Option<Bounded<1, 64>>,
    /// PBS: the highest order; if not given twice the distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pbs_top_order: Option<Bounded<0, 63>>,
}

/// The values of Table 3.
mod table_3 {
    use super::{Bounded, ContiguityBits, TlbEntries};

    pub(super) const fn tlb_entries() -> TlbEntries {
        const { Bounded::new(32).unwrap() }
    }

    pub(super) const fn contiguity_bits() -> ContiguityBits {
        ContiguityBits::Ideal(16)
    }

    pub(super) const fn bbs_max_order() -> Bounded<1, 64> {
        const { Bounded::new(9).unwrap() }
    }
}

/// Returns true for a value that a plan need not say.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl MachinePlan {
    /// Refuses sets that are no power of two, fields that are too wide and
    /// orders that no allocator can have.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        let form = geometry(self.tlb_entries, self.tlb_ways);
        require(form.is_ok(), "machine.tlb_ways", || form.err().unwrap_or_default())?;
        self.contiguity_bits.check("machine.contiguity_bits", self.format)?;
        check_orders("machine.bbs_max_order", self.bbs())?;
        check_orders("machine.pbs_top_order", self.pbs())
    }

    /// Returns the orders of BBS.
    ///
    /// # Errors
    /// [`PlanError::Orders`]; never for a plan that was read.
    pub fn bbs(&self) -> Result<BuddyConfig, PlanError> {
        bbs(self.bbs_max_order.tiny())
    }

    /// Returns the orders of PBS.
    ///
    /// # Errors
    /// [`PlanError::Orders`]; never for a plan that was read.
    pub fn pbs(&self) -> Result<BuddyConfig, PlanError> {
        let (granularity, top_order) = self.pbs_orders();
        pbs(granularity, top_order)
    }

    /// Returns the distance between PBS's orders, and the highest of them.
    fn pbs_orders(&self) -> (u8, u8) {
        let of_format = self.format.format().granularity().k() as u8;
        let granularity = self.pbs_granularity.map_or(of_format, Bounded::tiny);
        (granularity, self.pbs_top_order.map_or(granularity.saturating_mul(2), Bounded::tiny))
    }

    /// Returns the form of the TLB; never another than the plan's, if it was read.
    pub fn geometry(&self) -> Geometry {
        let entries = self.tlb_entries;
        geometry(entries, self.tlb_ways)
            .unwrap_or_else(|_| Geometry::fully_associative(entries.small()))
    }

    /// The machine of Table 3 as conditions of the paper's claims.
    pub fn conditions(&self) -> Conditions {
        let ideal = ContiguityBits::Ideal(16);
        let (granularity, top_order) = self.pbs_orders();
        Conditions::new()
            .same("translation format", "ARMv7", self.format.title())
            .same("TLB entries", 32, self.tlb_entries.get())
            .same("TLB ways", 32, self.geometry().ways)
            .same("TLB replacement", "LRU", self.tlb_replacement.title())
            .met(self.contiguity_bits == ideal, "contiguity fields of another width than 16 bits")
            .same("MAX_ORDER of BBS", 9, self.bbs_max_order.get())
            .same("granularity of PBS", 4, granularity)
            .same("top order of PBS", 8, top_order)
    }
}

/// Refuses free lists that no allocator can have.
///
/// # Errors
/// [`Refused`].
pub fn check_orders(key: &str, orders: Result<BuddyConfig, PlanError>) -> Result<(), Refused> {
    let why = orders.err().map(|error| error.to_string());
    require(why.is_none(), key, || why.unwrap_or_default())
}

/// Free blocks of one size at random frame numbers: the paper's levels of
/// fragmentation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// The sizes, one point of the x axis each.
    pub block_frames: Ascending<BlockFrames>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
}

impl Blocks {
    /// Refuses too little or too much free memory.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, table: &str) -> Result<(), Refused> {
        check_free(table, self.free_per_requested, self.free_share)
    }

    /// The memory of the case study (section V-E) as conditions.
    pub fn conditions(&self, conditions: Conditions) -> Conditions {
        free_conditions(conditions, self.free_per_requested, self.free_share)
    }
}

/// The free memory of the case study (section V-E) as conditions.
pub fn free_conditions(conditions: Conditions, per_requested: f64, share: Share) -> Conditions {
    conditions.same("frames free for each requested", 1.1378, per_requested).same(
        "share of memory that is free",
        0.25,
        share.get(),
    )
}

/// Bytes of a point in memory of free blocks: the memory that the largest of some
/// workloads, in pages, is given, and its page tables.
pub(crate) fn blocks_bytes(
    pages: u64,
    block_frames: &[BlockFrames],
    per_requested: f64,
    share: Share,
) -> u64 {
    let free = (pages as f64 * per_requested).ceil() as u64;
    let least = block_frames.first().map_or(1, |size| size.get());
    let most = block_frames.last().map_or(1, |size| size.get());
    // No fewer than one block, however long.
    scattered_bytes(free.max(most), least, share.get()).saturating_add(bytes(&[96, pages]))
}

/// Refuses too little or too much free memory.
///
/// # Errors
/// [`Refused`].
pub fn check_free(table: &str, per_requested: f64, share: Share) -> Result<(), Refused> {
    let key =
        |name: &str| if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
    require((1.0..=1000.0).contains(&per_requested), &key("free_per_requested"), || {
        format!("{per_requested} is not between 1 and 1000")
    })?;
    require(share.get() >= 0.001, &key("free_share"), || {
        format!("{} is less than one thousandth", share.get())
    })
}

/// Memory aged by random requests and releases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// Frames in all.
    pub frames: Bounded<1024, { 1 << 24 }>,
    /// The share in use under which random requests and releases go on.
    pub peak_share: Share,
    /// The shares in use after the last releases, one point of the x axis each.
    pub used_shares: Ascending<Share>,
    /// Requests and releases together.
    pub operations: Forms<u64>,
    /// The longest request.
    pub request_frames_max: Bounded<1, { 1 << 24 }>,
}

impl Aged {
    /// Refuses shares above the peak and requests longer than memory.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, table: &str) -> Result<(), Refused> {
        for share in &self.used_shares {
            require(share.get() <= self.peak_share.get(), &format!("{table}.used_shares"), || {
                format!("{} is above the peak, {}", share.get(), self.peak_share.get())
            })?;
        }
        let (most, frames) = (self.request_frames_max.get(), self.frames.get());
        require(most <= frames, &format!("{table}.request_frames_max"), || {
            format!("{most} is more than all {frames} frames")
        })
    }

    /// Bytes of a point in this memory.
    pub(crate) fn needs_bytes(&self, quick: bool) -> u64 {
        self.ageing(self.peak_share, quick).needs_bytes(self.frames.get())
    }

    /// The way in which memory is aged to this level of use.
    pub fn ageing(&self, used: Share, quick: bool) -> Ageing {
        Ageing {
            operations: *self.operations.of(quick),
            peak_share: self.peak_share.get(),
            used_share: used.get(),
            request_frames_max: self.request_frames_max.get(),
        }
    }
}

/// The state of memory before a study asks for some.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum MemoryPlan {
    /// Free blocks of one size.
    Blocks(Blocks),
    /// Aged memory.
    Aged(Aged),
    /// The free frames of a real machine.
    Snapshot {
        /// A snapshot file; the shipped one if empty.
        file: String,
    },
}

impl MemoryPlan {
    /// Refuses what no field can say alone.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Blocks(blocks) => blocks.check("memory.blocks"),
            Self::Aged(aged) => aged.check("memory.aged"),
            Self::Snapshot { .. } => Ok(()),
        }
    }
}

/// The programs that access memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum AccessPlan {
    /// Workloads of Table 4.
    Table4 {
        /// The workloads.
        workloads: Distinct<WorkloadName>,
        /// Their sizes.
        #[serde(default)]
        shapes: Shapes,
    },
    /// The recorded accesses of a real program.
    Trace {
        /// A trace file; the shipped one if empty.
        file: String,
    },
}

impl AccessPlan {
    /// Refuses sizes that no workload can have.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Table4 { shapes, .. } => check_shapes("accesses.table4.shapes", shapes),
            Self::Trace { .. } => Ok(()),
        }
    }
}

/// Refuses sizes that no workload can have.
///
/// # Errors
/// [`Refused`].
pub fn check_shapes(key: &str, shapes: &Shapes) -> Result<(), Refused> {
    let sides = [
        ("image_width", shapes.image_width),
        ("image_height", shapes.image_height),
        ("pixel_bytes", shapes.pixel_bytes),
        ("matrix_elements", shapes.matrix_elements),
        ("element_bytes", shapes.element_bytes),
        ("column_bytes", shapes.column_bytes),
        ("block_bytes", shapes.block_bytes),
        ("block_rows", shapes.block_rows),
    ];
    for (name, value) in sides {
        require((1..=1 << 14).contains(&value), &format!("{key}.{name}"), || {
            format!("{value} is not between 1 and 16384")
        })?;
    }
    Ok(())
}
