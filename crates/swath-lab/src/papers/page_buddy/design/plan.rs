//! Designs that a plan composes: `[[designs]]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use swath_arch::Order;
use swath_frame::BuddyConfig;

use crate::names::lasting;
use crate::papers::page_buddy::design::compared::{
    Added, AddedFrames, Design, DesignFrames, OwnHardware, Scheme, added,
};
use crate::papers::page_buddy::setting::{
    AnchorLog2, ReplacementName, TlbEntries, WalkOrderName, geometry,
};
use crate::study::plan::{Refused, require};

/// The designs that a plan has measured, in place of all.
pub type DesignsPlan = Option<Vec<DesignPlan>>;

/// A design of a plan: a name alone is one of the paper's, or one that another crate added; with the
/// other keys a new one is composed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DesignPlan {
    /// Its name in the figures.
    pub name: FigureName,
    /// The allocator: `bbs`, `pbs`, `pbs-best-fit`, or the name of a design that another crate added
    /// with an allocator of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// The way in which the tables tell of contiguity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<SchemeName>,
    /// The name of a design that another crate added with a TLB of its own; the plan's TLB if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<String>,
    /// Entries in its TLB; the machine's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_entries: Option<TlbEntries>,
    /// Ways of a set of so many entries; fully associative if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_ways: Option<TlbEntries>,
    /// The choice of the entry that gives way in it; the machine's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_replacement: Option<ReplacementName>,
    /// The order of AT's two walks; the machine's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk_order: Option<WalkOrderName>,
    /// log2 of AT's anchor distance in pages; the machine's if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_log2: Option<AnchorLog2>,
}

/// A name in figures and tables: 1 to 48 letters, digits, spaces and signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FigureName(&'static str);

/// The longest name of a design.
const NAME_MAX: usize = 48;

impl FigureName {
    /// The name.
    pub const fn get(self) -> &'static str {
        self.0
    }

    /// Returns what a name may have of a text: its first letters, without a line's end.
    pub(crate) fn shortened(text: &str) -> Self {
        let letters = text.chars().filter(|one| !one.is_control()).take(NAME_MAX);
        Self(lasting(letters.collect::<String>().trim()))
    }
}

impl Serialize for FigureName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for FigureName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let fits = (1..=NAME_MAX).contains(&name.chars().count());
        if !fits || name.trim() != name || name.chars().any(char::is_control) {
            let why =
                format!("{name:?} is no name of 1 to {NAME_MAX} letters without a line's end");
            return Err(D::Error::custom(why));
        }
        Ok(Self(lasting(&name)))
    }
}

impl JsonSchema for FigureName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FigureName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": NAME_MAX })
    }
}

/// A [`Scheme`], as a plan writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeName {
    /// Not at all.
    Trad,
    /// Not at all, but pages are as large as the format and the blocks' places allow.
    Large,
    /// Ascend and Descend.
    Pcad,
    /// Anchors.
    At,
}

/// Returns the designs that a plan names: all if it names none.
pub(crate) fn designs(plan: &DesignsPlan, bbs: BuddyConfig, pbs: BuddyConfig) -> Vec<Design> {
    let known = Design::all(bbs, pbs);
    let Some(plan) = plan else { return known };
    // A plan that was checked names none that there is not.
    plan.iter().filter_map(|one| one.design(&known, bbs, pbs).ok()).collect()
}

/// Returns the number of designs of a plan, or one more.
pub(crate) fn count(plan: &DesignsPlan) -> u64 {
    plan.as_ref().map_or(4 + added().len(), |plan| plan.len()) as u64 + 1
}

/// Returns the most entries of a TLB: of the machine's, or of a design's own.
pub(crate) fn entries_max(plan: &DesignsPlan, machine: u64) -> u64 {
    let own = plan.iter().flat_map(|plan| plan.iter()).filter_map(|one| one.tlb_entries);
    own.map(|entries| entries.get()).fold(machine, u64::max)
}

/// Refuses a design that cannot be, and a name that stands twice.
///
/// # Errors
/// [`Refused`].
pub(crate) fn check(plan: &DesignsPlan) -> Result<(), Refused> {
    let (bbs, pbs) = (BuddyConfig::BBS, BuddyConfig::PBS_ARMV7);
    let known = Design::all(bbs, pbs);
    require(plan.as_ref().is_none_or(|plan| !plan.is_empty()), "designs", || "none given".into())?;
    let plan = plan.as_deref().unwrap_or_default();
    for (nth, one) in plan.iter().enumerate() {
        let key = |key: &str| format!("designs.{nth}.{key}");
        let taken = plan[..nth].iter().any(|other| other.name == one.name);
        require(!taken, &key("name"), || format!("{:?} stands twice", one.name.0))?;
        let design = one.design(&known, bbs, pbs);
        design.map_err(|(at, why)| Refused { key: key(at), why })?;
    }
    Ok(())
}

/// The reason why no design that was added has a part of this name.
pub(crate) fn no_part(
    part: &str,
    name: &str,
    others: &str,
    has: impl Fn(&Added) -> bool,
) -> String {
    let names: Vec<&str> = added().iter().filter(|one| has(one)).map(|one| one.name).collect();
    let known = others.split(", ").filter(|one| !one.is_empty()).chain(names);
    let known: Vec<String> = known.map(|name| format!("{name:?}")).collect();
    match known.is_empty() {
        true => format!("no {part} {name:?}: no other crate has added one"),
        false => format!("no {part} {name:?}; there are {}", known.join(", ")),
    }
}

impl DesignPlan {
    /// The design with these orders; or the key that is wrong, and why.
    fn design(
        &self,
        known: &[Design],
        bbs: BuddyConfig,
        pbs: BuddyConfig,
    ) -> Result<Design, (&'static str, String)> {
        let name = self.name.0;
        let best_fit = Design::best_fit(pbs);
        let there = known.iter().chain([&best_fit]).find(|known| known.name == name);
        let alone = *self == Self::of(self.name);
        let names = || known.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
        match (there, alone) {
            (Some(design), true) => return Ok(*design),
            (Some(_), false) => {
                let why = format!(
                    "{name:?} is composed already: give yours another name, or no other key"
                );
                return Err(("name", why));
            }
            (None, true) => {
                let why = format!(
                    "no design {name:?}; there are {}, and what frames and scheme compose",
                    names()
                );
                return Err(("name", why));
            }
            (None, false) => {}
        }
        // Names that studies make themselves have one.
        if name.contains(',') {
            return Err(("name", format!("{name:?}: no comma in the name of a composed design")));
        }
        let missing = |key| (key, "a composed design says it".to_owned());
        let scheme = match self.scheme.ok_or_else(|| missing("scheme"))? {
            SchemeName::Trad => Scheme::Trad,
            SchemeName::Large => Scheme::Large,
            SchemeName::Pcad => Scheme::Pcad,
            SchemeName::At => Scheme::At,
        };
        if name.starts_with("TRAD") && scheme.tells() {
            return Err((
                "name",
                format!("{name:?} begins as those whose tables tell of no contiguity"),
            ));
        }
        let frames = match self.frames.as_deref().ok_or_else(|| missing("frames"))? {
            "bbs" => DesignFrames::Buddy(bbs),
            "pbs" => DesignFrames::Buddy(pbs),
            "pbs-best-fit" => DesignFrames::BestFit(pbs),
            other => {
                let of_own = |one: &Added| matches!(one.frames, AddedFrames::Own(_));
                let found = added().into_iter().find_map(|one| match one.frames {
                    AddedFrames::Own(new) if one.name == other => Some(DesignFrames::Own(new)),
                    _ => None,
                });
                let others = "bbs, pbs, pbs-best-fit";
                found.ok_or_else(|| ("frames", no_part("allocator", other, others, of_own)))?
            }
        };
        let with_tlb = |one: &Added| one.tlb.is_some();
        // Tables that it alone reads come with a TLB.
        let (tlb, tables) = match &self.tlb {
            None => (None, None),
            Some(name) => {
                let found = added().into_iter().find(|one| one.name == name && with_tlb(one));
                let found = found.ok_or_else(|| ("tlb", no_part("TLB", name, "", with_tlb)))?;
                (found.tlb, found.tables)
            }
        };
        if tlb.is_some() && self.tlb_replacement.is_some() {
            let why = "a TLB that another crate added has a way of its own".to_owned();
            return Err(("tlb_replacement", why));
        }
        if self.tlb_entries.is_none() && self.tlb_ways.is_some() {
            return Err(("tlb_ways", "only beside tlb_entries".to_owned()));
        }
        let form = self.tlb_entries.map(|entries| geometry(entries, self.tlb_ways));
        let own = OwnHardware {
            tlb: form.transpose().map_err(|why| ("tlb_ways", why))?,
            replacement: self.tlb_replacement.map(ReplacementName::replacement),
            order: self.walk_order.map(WalkOrderName::order),
            anchor_log2: self.anchor_log2.and_then(|log2| Order::new(log2.tiny())),
        };
        if scheme != Scheme::At {
            let of_at =
                [("walk_order", own.order.is_some()), ("anchor_log2", own.anchor_log2.is_some())];
            if let Some((key, _)) = of_at.into_iter().find(|(_, given)| *given) {
                return Err((key, "only the scheme \"at\" has anchors".to_owned()));
            }
        }
        Ok(Design { name, frames, scheme, tlb, tables, own })
    }

    /// A design of which only the name is given.
    const fn of(name: FigureName) -> Self {
        Self {
            name,
            frames: None,
            scheme: None,
            tlb: None,
            tlb_entries: None,
            tlb_ways: None,
            tlb_replacement: None,
            walk_order: None,
            anchor_log2: None,
        }
    }
}
