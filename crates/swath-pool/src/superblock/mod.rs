//! Superblocks: runs of units cut into slots of one size class, and the bits that say which slots
//! are free. A thread that is not the owner returns slots without a lock.

pub(crate) mod atomic;
pub(crate) mod claim;
pub(crate) mod class;
pub(crate) mod list;
pub(crate) mod live;
pub(crate) mod owner;
pub(crate) mod record;
pub(crate) mod register;
pub(crate) mod returned;
