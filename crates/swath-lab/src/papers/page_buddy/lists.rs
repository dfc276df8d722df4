//! BBS and the variants of PBS whose free lists are compared (sections V-D and
//! V-E).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::BuddyConfig;

use crate::papers::page_buddy::setting::{bbs, check_orders, pbs};
use crate::study::bounds::Bounded;
use crate::study::claim::Conditions;
use crate::study::plan::{PlanError, Refused, require};

/// The reference's name.
pub const BBS: &str = "BBS";

/// The name of the paper's own variant.
pub const PBS: &str = "PBS";

/// Number of free lists of BBS, for blocks of 1, 2, 4, … frames.
pub type MaxOrder = Bounded<1, 64>;

/// One variant of PBS.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PbsVariant {
    /// Its name in the figures; claims are on `PBS`.
    pub design: String,
    /// The distance between adjacent orders.
    pub granularity: Bounded<1, 64>,
    /// The highest order.
    pub top_order: Bounded<0, 63>,
}

/// Returns BBS and the variants of PBS, by name.
///
/// # Errors
/// [`PlanError::Orders`]; never for a plan that was read.
pub fn designs(
    max_order: MaxOrder,
    variants: &[PbsVariant],
) -> Result<Vec<(String, BuddyConfig)>, PlanError> {
    let mut designs = vec![(BBS.to_owned(), bbs(max_order.tiny())?)];
    for variant in variants {
        let config = pbs(variant.granularity.tiny(), variant.top_order.tiny())?;
        designs.push((variant.design.clone(), config));
    }
    Ok(designs)
}

/// Refuses lists that no allocator can have and names that stand twice.
///
/// # Errors
/// [`Refused`].
pub fn check(max_order: MaxOrder, variants: &[PbsVariant]) -> Result<(), Refused> {
    check_orders("bbs_max_order", bbs(max_order.tiny()))?;
    require(!variants.is_empty(), "pbs", || "none given".to_owned())?;
    for (nth, variant) in variants.iter().enumerate() {
        let orders = pbs(variant.granularity.tiny(), variant.top_order.tiny());
        check_orders(&format!("pbs.{nth}.top_order"), orders)?;
        let before = variants[..nth].iter().map(|other| other.design.as_str());
        let taken = before.chain([BBS]).any(|name| name == variant.design);
        require(!taken, &format!("pbs.{nth}.design"), || {
            format!("the design {:?} stands twice", variant.design)
        })?;
    }
    Ok(())
}

/// The lists of section V-A as conditions: nine of BBS; orders 0, 4 and 8 of PBS.
pub fn conditions(max_order: MaxOrder, variants: &[PbsVariant]) -> Conditions {
    let conditions = Conditions::new().same("MAX_ORDER of BBS", 9, max_order.get());
    match variants.iter().find(|variant| variant.design == PBS) {
        None => conditions,
        Some(variant) => conditions.same("granularity of PBS", 4, variant.granularity.get()).same(
            "top order of PBS",
            8,
            variant.top_order.get(),
        ),
    }
}
