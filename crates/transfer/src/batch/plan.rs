//! Submissions cut into chunks, so that what is urgent does not wait behind what is long.

use std::sync::Arc;

use yb_types::MonotonicTime;

use crate::batch::tasks::Batch;
use crate::{Request, TrafficClass};

/// When a submission without a deadline is given up.
pub(crate) const NEVER: MonotonicTime = MonotonicTime(u64::MAX);

/// Most requests in one chunk.
const MAX_REQUESTS: usize = 1024;

/// Most parts of one request: an absurd length must not become an absurd list.
const MAX_PARTS: u64 = 4096;

/// What a worker does in one go.
pub(crate) struct Chunk {
    pub(crate) batch: Arc<Batch>,
    pub(crate) class: TrafficClass,
    pub(crate) priority: i8,
    pub(crate) deadline: MonotonicTime,
    /// Bytes.
    pub(crate) cost: u64,
    pub(crate) work: Work,
}

/// Requests, each with the index of its task.
pub(crate) type Members = Vec<(usize, Request<'static>)>;

/// What a chunk holds.
pub(crate) enum Work {
    /// Whole requests.
    Whole(Members),
    /// A part of a long request.
    Part { task: usize, request: Arc<Request<'static>>, offset: u64, len: u64 },
    /// Telling the peer that the batch has completed.
    Notify,
}

impl Work {
    /// Which peer it is for, as a number that no other peer has meanwhile; none for a notification.
    pub(crate) fn peer(&self) -> Option<usize> {
        let segment = match self {
            Work::Whole(members) => members.first().map(|(_, request)| &request.segment),
            Work::Part { request, .. } => Some(&request.segment),
            Work::Notify => None,
        };
        segment.map(|segment| Arc::as_ptr(&segment.0) as usize)
    }

    /// Whether this is work of that task alone, or of any if none is named. A notification is of no task.
    pub(crate) fn concerns_only(&self, task: Option<usize>) -> bool {
        match self {
            Work::Whole(members) => task.is_none_or(|task| members.iter().all(|(member, _)| *member == task)),
            Work::Part { task: own, .. } => task.is_none_or(|task| *own == task),
            Work::Notify => false,
        }
    }
}

impl Chunk {
    /// The notification of a batch.
    pub(crate) fn notify(batch: Arc<Batch>, deadline: MonotonicTime) -> Self {
        Chunk { batch, class: TrafficClass::HIGH, priority: 0, deadline, cost: 1, work: Work::Notify }
    }
}

/// How much goes together.
#[derive(Clone, Copy)]
struct Key {
    class: TrafficClass,
    priority: i8,
    deadline: MonotonicTime,
    group: Option<u64>,
}

impl Key {
    fn of(request: &Request<'_>, deadline: MonotonicTime) -> Self {
        let options = &request.options;
        let deadline = options.deadline.map_or(deadline, |own| own.min(deadline));
        Key { class: options.class, priority: options.priority, deadline, group: options.group }
    }

    /// Whether a request may follow in the same chunk. A group stays together, whatever its members say.
    fn admits(&self, next: &Key) -> bool {
        let same = self.class == next.class && self.priority == next.priority && self.deadline == next.deadline;
        self.group == next.group && (same || self.group.is_some())
    }
}

/// Cuts requests into chunks of about `bytes`, and tells the batch how many each task has. The first task is `first`.
pub(crate) fn cut(
    batch: &Arc<Batch>,
    first: usize,
    requests: Vec<Request<'static>>,
    deadline: MonotonicTime,
    bytes: u64,
) -> Vec<Chunk> {
    let bytes = bytes.max(1);
    let mut chunks = Vec::new();
    let mut open: Option<(Key, u64, Members)> = None;
    let whole = |(key, cost, requests): (Key, u64, Members)| chunk(batch, key, cost, Work::Whole(requests));
    for (index, request) in requests.into_iter().enumerate() {
        let (task, len, key) = (first + index, request.local.len(), Key::of(&request, deadline));
        let follows = open.as_ref().is_some_and(|(before, cost, members)| {
            let room = cost.saturating_add(len) <= bytes && members.len() < MAX_REQUESTS;
            before.admits(&key) && (room || key.group.is_some())
        });
        if !follows {
            chunks.extend(open.take().map(whole));
        }
        if len > bytes && key.group.is_none() {
            let part = bytes.max(len.div_ceil(MAX_PARTS));
            batch.expect(task, u32::try_from(len.div_ceil(part)).unwrap_or(u32::MAX));
            chunks.extend(parts(batch, key, task, request, part));
            continue;
        }
        batch.expect(task, 1);
        let (_, cost, members) = open.get_or_insert_with(|| (key, 0, Vec::new()));
        *cost = cost.saturating_add(len);
        members.push((task, request));
    }
    chunks.extend(open.map(whole));
    chunks
}

fn parts(
    batch: &Arc<Batch>,
    key: Key,
    task: usize,
    request: Request<'static>,
    bytes: u64,
) -> impl Iterator<Item = Chunk> {
    let total = request.local.len();
    let request = Arc::new(request);
    (0..total.div_ceil(bytes)).map(move |index| {
        let offset = index * bytes;
        let len = bytes.min(total - offset);
        chunk(batch, key, len, Work::Part { task, request: Arc::clone(&request), offset, len })
    })
}

fn chunk(batch: &Arc<Batch>, key: Key, cost: u64, work: Work) -> Chunk {
    let Key { class, priority, deadline, .. } = key;
    Chunk { batch: Arc::clone(batch), class, priority, deadline, cost, work }
}
