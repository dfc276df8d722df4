//! Allocators that a plan names or composes, in the studies that compare allocators alone:
//! `[[designs]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::design::compared::{Added, AddedFrames, DesignFrames, added};
use crate::papers::page_buddy::design::plan::{FigureName, no_part};
use crate::papers::page_buddy::lists::{self, BBS, MaxOrder, PBS, PbsVariant};
use crate::papers::page_buddy::setting::{bbs, pbs};
use crate::study::bounds::Bounded;
use crate::study::plan::{PlanError, Refused, require};

/// The allocators that a plan has measured, in place of all.
pub type AllocatorsPlan = Option<Vec<AllocatorPlan>>;

/// An allocator of a plan: a name alone is `BBS`, a variant of `[[pbs]]`, or one that another crate
/// added; with the other keys a new one is composed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllocatorPlan {
    /// Its name in the figures; claims are on `PBS` and `BBS`.
    pub name: FigureName,
    /// The allocator: `bbs`, `pbs`, `pbs-best-fit`, or the name of a design that another crate added
    /// with an allocator of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// Number of free lists of `bbs`; `bbs_max_order` if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_order: Option<MaxOrder>,
    /// The distance between adjacent orders of `pbs`; that of the first variant if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Bounded<1, 64>>,
    /// The highest order of `pbs`; that of the first variant if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_order: Option<Bounded<0, 63>>,
}

/// An allocator with its name in the figures.
pub(crate) type Named = (String, DesignFrames);

/// Returns BBS, the variants of PBS, and the allocators that other crates added.
fn known(max_order: MaxOrder, variants: &[PbsVariant]) -> Result<Vec<Named>, PlanError> {
    let own = lists::designs(max_order, variants)?.into_iter();
    let own = own.map(|(name, orders)| (name, DesignFrames::Buddy(orders)));
    let added = added().into_iter().filter_map(|added| match added.frames {
        AddedFrames::Own(new) => Some((added.name.to_owned(), DesignFrames::Own(new))),
        AddedFrames::Bbs | AddedFrames::Pbs => None,
    });
    Ok(own.chain(added).collect())
}

/// Returns the allocators that a plan names: all if it names none.
///
/// # Errors
/// [`PlanError::Orders`]; never for a plan that was read.
pub(crate) fn allocators(
    plan: &AllocatorsPlan,
    max_order: MaxOrder,
    variants: &[PbsVariant],
) -> Result<Vec<Named>, PlanError> {
    let known = known(max_order, variants)?;
    let Some(plan) = plan else { return Ok(known) };
    // A plan that was checked names none that there is not.
    Ok(plan.iter().filter_map(|one| one.named(&known, max_order, variants).ok()).collect())
}

/// Refuses an allocator that cannot be, a name that stands twice, and one that is `taken` by the study.
///
/// # Errors
/// [`Refused`].
pub(crate) fn check(
    plan: &AllocatorsPlan,
    max_order: MaxOrder,
    variants: &[PbsVariant],
    taken: &[&str],
) -> Result<(), Refused> {
    lists::check(max_order, variants)?;
    let Some(plan) = plan else { return Ok(()) };
    require(!plan.is_empty(), "designs", || "none given".to_owned())?;
    let refused = |error: PlanError| Refused { key: "pbs".to_owned(), why: error.to_string() };
    let known = known(max_order, variants).map_err(refused)?;
    for (nth, one) in plan.iter().enumerate() {
        let name = one.name.get();
        let key = |key: &str| format!("designs.{nth}.{key}");
        let twice = plan[..nth].iter().any(|other| other.name == one.name);
        require(!twice, &key("name"), || format!("{name:?} stands twice"))?;
        require(!taken.contains(&name), &key("name"), || {
            format!("the design {name:?} is one of the study's own")
        })?;
        let named = one.named(&known, max_order, variants);
        named.map_err(|(at, why)| Refused { key: key(at), why })?;
    }
    Ok(())
}

impl AllocatorPlan {
    /// The allocator; or the key that is wrong, and why.
    fn named(
        &self,
        known: &[Named],
        max_order: MaxOrder,
        variants: &[PbsVariant],
    ) -> Result<Named, (&'static str, String)> {
        let name = self.name.get();
        let own = [
            ("max_order", self.max_order.is_some()),
            ("granularity", self.granularity.is_some()),
            ("top_order", self.top_order.is_some()),
        ];
        let alone = self.frames.is_none() && own.iter().all(|(_, given)| !given);
        match (known.iter().find(|(known, _)| known == name), alone) {
            (Some(named), true) => return Ok(named.clone()),
            (Some(_), false) => {
                let why = format!("{name:?} is there already: give yours another name, or no key");
                return Err(("name", why));
            }
            (None, true) => {
                let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
                let there = names.join(", ");
                let why = format!("no design {name:?}; there are {there}, and what frames compose");
                return Err(("name", why));
            }
            (None, false) => {}
        }
        // Claims are on these names, and studies make names with a comma themselves.
        if [BBS, PBS].contains(&name) || name.contains(',') {
            let why = format!("{name:?}: neither {BBS} nor {PBS} nor a comma in a composed name");
            return Err(("name", why));
        }
        let frames = self.frames.as_deref();
        let frames = frames.ok_or_else(|| ("frames", "a composed design says it".to_owned()))?;
        let of = |kind: &str| match kind {
            "bbs" => &["max_order"][..],
            "pbs" | "pbs-best-fit" => &["granularity", "top_order"],
            _ => &[],
        };
        if let Some((key, _)) = own.iter().find(|(key, given)| *given && !of(frames).contains(key))
        {
            return Err((key, format!("{frames:?} has none")));
        }
        let orders = |error: PlanError| ("frames", error.to_string());
        let of_pbs = || {
            // A plan without variants is refused before.
            let first = variants.first().ok_or_else(|| ("frames", "no [[pbs]]".to_owned()))?;
            let granularity = self.granularity.unwrap_or(first.granularity);
            let top_order = self.top_order.unwrap_or(first.top_order);
            pbs(granularity.tiny(), top_order.tiny())
                .map_err(|error| ("top_order", error.to_string()))
        };
        let found = match frames {
            "bbs" => {
                let max_order = self.max_order.unwrap_or(max_order);
                DesignFrames::Buddy(bbs(max_order.tiny()).map_err(orders)?)
            }
            "pbs" => DesignFrames::Buddy(of_pbs()?),
            "pbs-best-fit" => DesignFrames::BestFit(of_pbs()?),
            other => {
                let own = known
                    .iter()
                    .find(|(name, frames)| name == other && matches!(frames, DesignFrames::Own(_)));
                let has = |one: &Added| matches!(one.frames, AddedFrames::Own(_));
                let none =
                    || ("frames", no_part("allocator", other, "bbs, pbs, pbs-best-fit", has));
                own.ok_or_else(none)?.1
            }
        };
        Ok((name.to_owned(), found))
    }
}
