//! Requests to a machine, and the errors of serving them.

use swath_arch::Order;

use crate::allocator::FrameFreeError;
use crate::layout::ZoneKind;
use crate::zone::allocator::Mobility;

/// A request for one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// 2^order frames are wanted.
    pub order: Order,
    /// True if the owner could be moved.
    pub mobility: Mobility,
    /// The highest zone whose frames will do. Only movable requests get
    /// frames of [`ZoneKind::Movable`]; for others it means Normal.
    pub highest: ZoneKind,
    /// The node whose memory is preferred.
    pub node: usize,
    /// The CPU that asks.
    pub cpu: usize,
    /// True if the reserves below the watermarks may be used.
    pub urgent: bool,
}

/// Reasons why a machine refuses an allocation. No frame has been allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineAllocateError {
    /// There is no such node.
    #[error("there is no node {node}")]
    Node {
        /// The number.
        node: usize,
    },
    /// There is no such CPU.
    #[error("there is no CPU {cpu}")]
    Cpu {
        /// The number.
        cpu: usize,
    },
    /// No zone has such a block, or none that its watermark lets go.
    #[error("no block of order {order}, {free} frames free")]
    NoBlock {
        /// The order asked for.
        order: Order,
        /// Frames free in the zones that would do.
        free: u64,
    },
}

/// Reasons why a machine does not free frames. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineFreeError {
    /// There is no such CPU.
    #[error("there is no CPU {cpu}")]
    Cpu {
        /// The number.
        cpu: usize,
    },
    /// The frames are not in use.
    #[error(transparent)]
    Frames(FrameFreeError),
}
