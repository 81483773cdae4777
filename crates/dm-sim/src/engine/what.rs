//! The encoding of events as words.

/// The content of an event, packed into 52 bits: 4 of kind, 16 of request number, 32 of index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A READ of one line, alone in its chain, has arrived at its memory node, and may act at once.
    ArriveRead { chain: u32 },
    /// A longer READ, alone in its chain, has arrived at its memory node, and may be copied at once.
    ArriveLong { chain: u32 },
    /// A request has arrived completely at its memory node.
    Arrive { chain: u32, request: u16 },
    /// A request acts on memory: all of it, or its first part.
    Execute { chain: u32, request: u16 },
    /// The second part of a request acts on memory.
    ExecuteRest { chain: u32, request: u16 },
    /// The time at which a poll finds the completion of a chain.
    Done { chain: u32 },
    /// A task must be polled now.
    Wake { task: u32 },
    /// A timer is due, and its foreign waker must be called.
    Timer { timer: u32 },
    /// A memory node is cut off.
    Cut { node: u32 },
    /// A memory node is reachable again.
    Restore { node: u32 },
}

/// The kinds of the most frequent events.
pub(super) const ARRIVE_READ: u64 = 0;
pub(super) const DONE: u64 = 1;
pub(super) const ARRIVE: u64 = 2;
/// The position of the kind in a packed event.
pub(super) const KIND: u32 = 48;

impl What {
    #[inline(always)]
    pub(super) fn pack(self) -> u64 {
        let of =
            |kind: u64, request: u16, index: u32| kind << KIND | u64::from(request) << 32 | u64::from(index);
        match self {
            What::ArriveRead { chain } => of(ARRIVE_READ, 0, chain),
            What::Done { chain } => of(DONE, 0, chain),
            What::Arrive { chain, request } => of(ARRIVE, request, chain),
            What::Execute { chain, request } => of(3, request, chain),
            What::ExecuteRest { chain, request } => of(4, request, chain),
            What::Wake { task } => of(5, 0, task),
            What::Timer { timer } => of(6, 0, timer),
            What::Cut { node } => of(7, 0, node),
            What::Restore { node } => of(8, 0, node),
            What::ArriveLong { chain } => of(9, 0, chain),
        }
    }

    #[inline]
    pub(super) fn unpack(bits: u64) -> Self {
        let (request, index) = ((bits >> 32) as u16, bits as u32);
        match bits >> KIND {
            ARRIVE_READ => What::ArriveRead { chain: index },
            DONE => What::Done { chain: index },
            ARRIVE => What::Arrive {
                chain: index,
                request,
            },
            3 => What::Execute {
                chain: index,
                request,
            },
            4 => What::ExecuteRest {
                chain: index,
                request,
            },
            5 => What::Wake { task: index },
            6 => What::Timer { timer: index },
            7 => What::Cut { node: index },
            8 => What::Restore { node: index },
            _ => What::ArriveLong { chain: index },
        }
    }
}
