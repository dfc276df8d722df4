//! The check of permissions: may this access touch a page with these attributes?

use swath_arch::{Attributes, Format};

/// The kinds of operation on a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Fetch instructions.
    Fetch,
}

impl Operation {
    /// Returns its name: "read", "write" or "fetch".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fetch => "fetch",
        }
    }
}

/// An operation with the privilege of the code that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccessKind {
    /// The operation.
    pub operation: Operation,
    /// True if the code is privileged.
    pub privileged: bool,
}

/// Reasons why an access to a mapped page is not permitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// The access flag is clear: the ARM formats and RISC-V (Svade) fault so that software sets
    /// it. (x86-64 hardware sets its own, so there it denies nothing.)
    #[error("the access flag is clear")]
    AccessFlag,
    /// Unprivileged code may not touch the page.
    #[error("the page is privileged")]
    Privilege,
    /// The page is read-only; as on ARM, and on x86-64 with `CR0.WP = 1`, for
    /// privileged code too.
    #[error("the page is read-only")]
    Write,
    /// Nothing may be fetched from the page.
    #[error("the page is not executable")]
    Fetch,
}

/// Checks that `attributes` permit an access, in the order of [`Denied`]:
/// the access flag has priority (DDI 0406C, section B3.12.2). Privileged code
/// may touch user pages (no PAN, SMAP or SMEP; `sstatus.SUM = 1`), but in RISC-V never fetches from
/// them. O(1).
///
/// # Errors
/// [`Denied`].
pub const fn permit(
    format: Format,
    attributes: &Attributes,
    access: AccessKind,
) -> Result<(), Denied> {
    if !attributes.accessed && !matches!(format, Format::X86_64) {
        return Err(Denied::AccessFlag);
    }
    if !attributes.user && !access.privileged {
        return Err(Denied::Privilege);
    }
    match access.operation {
        Operation::Write if !attributes.writable => Err(Denied::Write),
        Operation::Fetch if !attributes.executable => Err(Denied::Fetch),
        Operation::Fetch
            if attributes.user
                && access.privileged
                && matches!(format, Format::Sv39 | Format::Sv48) =>
        {
            Err(Denied::Fetch)
        }
        _ => Ok(()),
    }
}
