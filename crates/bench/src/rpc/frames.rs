//! Keys and frames of a run. Frames are encoded once; later only sequence numbers and the numbers in keys are written
//! over.

use yb_env::Rng;
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaType, ReplicateConfig};
use yb_wire::messages::{
    BatchPutEndArgs, BatchPutStartArgs, KeyArgs, KeysArgs, NoArgs, ObjectMetaRef, PutEndArgs, PutStartArgs,
};
use yb_wire::{Call, Form, Limits, List, WireError, WireTable, call, decode_reply, encode_request};

use super::{Operation, RpcBench};

/// Prefix, 16 digits of the run, 16 digits of the number.
pub(super) const SHORTEST_KEY: usize = 33;
/// Different lookup frames per run.
const LOOKUP_FRAMES: usize = 4096;
const LOOKUP_BATCH_FRAMES: usize = 256;
const TENANT: &[u8] = DEFAULT_TENANT.as_bytes();

/// The keys of a run: same length, different run, different number.
pub(super) struct KeySpace {
    template: Vec<u8>,
}

impl KeySpace {
    pub(super) fn new(key_bytes: usize, run: u64) -> Self {
        let mut template = format!("k{run:016x}{:016x}", 0).into_bytes();
        template.resize(key_bytes.max(SHORTEST_KEY), b'.');
        KeySpace { template }
    }

    pub(super) fn key(&self, number: u64) -> Vec<u8> {
        let mut key = self.template.clone();
        write_number(&mut key[17..33], number);
        key
    }

    /// Where the numbers stand in a frame that holds keys of this space.
    fn number_positions(&self, frame: &[u8]) -> Vec<usize> {
        let start = &self.template[..17];
        let found = frame.windows(start.len()).enumerate().filter(|(_, window)| *window == start);
        found.map(|(at, _)| at + start.len()).collect()
    }
}

fn write_number(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// A frame whose keys can be renumbered.
pub(super) struct Template {
    frame: Vec<u8>,
    numbers: Vec<usize>,
}

impl Template {
    fn new(frame: Vec<u8>, keys: &KeySpace) -> Self {
        let numbers = keys.number_positions(&frame);
        Template { frame, numbers }
    }

    /// Appends the frame; its keys get the numbers from `first` on.
    fn append(&self, sequence: u32, first: u64, out: &mut Vec<u8>) {
        let start = out.len();
        append_sequenced(&self.frame, sequence, out);
        for (number, at) in (first..).zip(&self.numbers) {
            if let Some(place) = out.get_mut(start + at..start + at + 16) {
                write_number(place, number);
            }
        }
    }
}

fn append_sequenced(frame: &[u8], sequence: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(frame);
    if let Some(place) = out.get_mut(start + 4..start + 8) {
        place.copy_from_slice(&sequence.to_le_bytes());
    }
}

/// Which half of an operation a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// The only one, or the start of a put.
    First,
    /// The end of a put.
    Second,
}

enum Shape {
    /// Any of these frames.
    Lookup(Vec<Vec<u8>>),
    /// Start and end of a put with fresh keys.
    Put(Template, Template),
}

/// The frames of one operation.
struct Part {
    shape: Shape,
    operation: Operation,
    /// Keys of a request.
    batch: u64,
}

/// What a mixed load is made of, each as often as the others.
const MIXED: [Operation; 8] = [
    Operation::Exist,
    Operation::Get,
    Operation::Get,
    Operation::Put,
    Operation::BatchExist,
    Operation::BatchGet,
    Operation::BatchPut,
    Operation::Ready,
];

/// All frames of a run.
pub(super) struct Plan {
    parts: Vec<Part>,
    table: &'static WireTable,
    /// Fresh keys that each cycle may use.
    stride: u64,
    first_fresh: u64,
}

impl Plan {
    pub(super) fn new(
        bench: &RpcBench,
        table: &'static WireTable,
        client: ClientId,
        keys: &KeySpace,
        rng: &mut Rng,
    ) -> Result<Self, WireError> {
        let single = [bench.operation];
        let operations: &[Operation] = if bench.operation == Operation::Mixed { &MIXED } else { &single };
        let parts = operations.iter().map(|operation| Part::new(*operation, bench, table, client, keys, rng));
        let parts = parts.collect::<Result<Vec<Part>, WireError>>()?;
        let stride = parts.iter().map(|part| part.batch).max().unwrap_or(1);
        Ok(Plan { parts, table, stride, first_fresh: bench.keys as u64 })
    }

    /// The operation of a cycle; in no order that a server could learn.
    fn part(&self, cycle: u64) -> &Part {
        &self.parts[(cycle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % self.parts.len()]
    }

    /// Appends the request of the `cycle`th operation of the run.
    pub(super) fn append(&self, half: Half, sequence: u32, cycle: u64, out: &mut Vec<u8>) {
        let fresh = self.first_fresh + cycle * self.stride;
        match (&self.part(cycle).shape, half) {
            (Shape::Lookup(frames), _) => {
                // Steps through the frames in an order that prefetching cannot guess, each as often as the others.
                let pick = (cycle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % frames.len().max(1);
                if let Some(frame) = frames.get(pick) {
                    append_sequenced(frame, sequence, out);
                }
            }
            (Shape::Put(start, _), Half::First) => start.append(sequence, fresh, out),
            (Shape::Put(_, end), Half::Second) => end.append(sequence, fresh, out),
        }
    }

    /// True when a reply to `half` asks for another request of the same operation.
    pub(super) fn continues(&self, half: Half, cycle: u64) -> bool {
        half == Half::First && matches!(self.part(cycle).shape, Shape::Put(..))
    }

    /// Decodes a reply's body and looks for errors in it.
    pub(super) fn verify(&self, half: Half, cycle: u64, body: &[u8]) -> Result<(), String> {
        let part = self.part(cycle);
        match (part.operation, half) {
            (Operation::Exist, _) => one(self.decode::<call::ExistKey>(body)?.map(drop)),
            (Operation::Get, _) => one(self.decode::<call::GetReplicaList>(body)?.map(drop)),
            (Operation::BatchExist, _) => part.all(self.decode::<call::BatchExistKey>(body)?),
            (Operation::BatchGet, _) => part.all(self.decode::<call::BatchGetReplicaList>(body)?),
            (Operation::Put, Half::First) => one(self.decode::<call::PutStart>(body)?.map(drop)),
            (Operation::Put, Half::Second) => one(self.decode::<call::PutEnd>(body)?),
            (Operation::BatchPut, Half::First) => part.all(self.decode::<call::BatchPutStart>(body)?),
            (Operation::BatchPut, Half::Second) => part.all(self.decode::<call::BatchPutEnd>(body)?),
            (Operation::Ready | Operation::Mixed, _) => one(self.decode::<call::ServiceReady>(body)?.map(drop)),
        }
    }

    fn decode<'a, C: Call>(&self, body: &'a [u8]) -> Result<C::Reply<'a>, String> {
        decode_reply::<C>(self.table, body, Limits::default()).map_err(|error| error.to_string())
    }
}

impl Part {
    fn new(
        operation: Operation,
        bench: &RpcBench,
        table: &'static WireTable,
        client: ClientId,
        keys: &KeySpace,
        rng: &mut Rng,
    ) -> Result<Part, WireError> {
        let stored = bench.keys as u64;
        let mut lookups = |count: usize, per_frame: usize| -> Result<Shape, WireError> {
            let frames = (0..count).map(|_| {
                let picked: Vec<Vec<u8>> = (0..per_frame).map(|_| keys.key(rng.below(stored))).collect();
                lookup_frame(operation, table, &picked)
            });
            Ok(Shape::Lookup(frames.collect::<Result<_, _>>()?))
        };
        let shape = match operation {
            Operation::Exist | Operation::Get => lookups(LOOKUP_FRAMES, 1)?,
            Operation::BatchExist | Operation::BatchGet => lookups(LOOKUP_BATCH_FRAMES, bench.batch)?,
            Operation::Ready | Operation::Mixed => lookups(1, 0)?,
            Operation::Put => put_frames(table, client, &keys.key(0), keys, bench.value_bytes)?,
            Operation::BatchPut => batch_put_frames(table, client, keys, bench)?,
        };
        let batch = if operation.is_batch() { bench.batch as u64 } else { 1 };
        Ok(Part { shape, operation, batch })
    }

    fn all<T>(&self, results: Vec<Result<T, yb_types::ErrorCode>>) -> Result<(), String> {
        if results.len() as u64 != self.batch {
            return Err(format!("{} results for {} keys", results.len(), self.batch));
        }
        results.into_iter().try_for_each(|result| one(result.map(drop)))
    }
}

fn one(result: Result<(), yb_types::ErrorCode>) -> Result<(), String> {
    result.map_err(|code| code.to_string())
}

fn frame<C: Call>(table: &WireTable, args: &C::Args<'_>) -> Result<Vec<u8>, WireError> {
    let mut frame = Vec::new();
    // With the type literal, as the peer's clients send it.
    encode_request::<C>(table, 0, args, Form::Literal, &mut frame)?;
    Ok(frame)
}

fn lookup_frame(operation: Operation, table: &WireTable, keys: &[Vec<u8>]) -> Result<Vec<u8>, WireError> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let single = KeyArgs { key: keys.first().copied().unwrap_or_default(), tenant_id: TENANT };
    let many = KeysArgs { keys: List::from(&keys), tenant_id: TENANT };
    match operation {
        Operation::Exist => frame::<call::ExistKey>(table, &single),
        Operation::Get => frame::<call::GetReplicaList>(table, &single),
        Operation::BatchExist => frame::<call::BatchExistKey>(table, &many),
        Operation::BatchGet => frame::<call::BatchGetReplicaList>(table, &many),
        _ => frame::<call::ServiceReady>(table, &NoArgs {}),
    }
}

fn put_frames(
    table: &WireTable,
    client_id: ClientId,
    key: &[u8],
    keys: &KeySpace,
    slice_length: u64,
) -> Result<Shape, WireError> {
    let config = ReplicateConfig::default();
    let start = PutStartArgs { client_id, key, slice_length, config, tenant_id: TENANT };
    let object_meta = ObjectMetaRef { key, object_checksum: None };
    let end = PutEndArgs { client_id, object_meta, replica_type: ReplicaType::ALL, tenant_id: TENANT };
    let (start, end) = (frame::<call::PutStart>(table, &start)?, frame::<call::PutEnd>(table, &end)?);
    Ok(Shape::Put(Template::new(start, keys), Template::new(end, keys)))
}

fn batch_put_frames(
    table: &WireTable,
    client: ClientId,
    keys: &KeySpace,
    bench: &RpcBench,
) -> Result<Shape, WireError> {
    let names: Vec<Vec<u8>> = (0..bench.batch as u64).map(|number| keys.key(number)).collect();
    let (start, end) = batch_put_pair(table, client, &names, bench.value_bytes)?;
    Ok(Shape::Put(Template::new(start, keys), Template::new(end, keys)))
}

/// BatchPutStart and BatchPutEnd of these keys, as frames.
fn batch_put_pair(
    table: &WireTable,
    client_id: ClientId,
    names: &[Vec<u8>],
    value_bytes: u64,
) -> Result<(Vec<u8>, Vec<u8>), WireError> {
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let lengths = vec![value_bytes; keys.len()];
    let metas: Vec<_> = keys.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
    let start = BatchPutStartArgs {
        client_id,
        keys: List::from(&keys),
        slice_lengths: List::from(&lengths),
        config: ReplicateConfig::default(),
        tenant_id: TENANT,
    };
    let object_metas = List::from(&metas);
    let end = BatchPutEndArgs { client_id, object_metas, replica_type: ReplicaType::ALL, tenant_id: TENANT };
    Ok((frame::<call::BatchPutStart>(table, &start)?, frame::<call::BatchPutEnd>(table, &end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_frames_equal_freshly_encoded_ones() {
        let table = WireTable::of(yb_wire::WireVersion::V0_3_13);
        let keys = KeySpace::new(45, 7);
        let client = ClientId(Rng::seeded(1).uuid());
        let names = |first: u64| (first..first + 3).map(|n| keys.key(n)).collect::<Vec<_>>();
        let (start, end) = batch_put_pair(table, client, &names(0), 64).unwrap();
        let (later_start, later_end) = batch_put_pair(table, client, &names(0xabc), 64).unwrap();
        for (template, wanted) in [(start, later_start), (end, later_end)] {
            let template = Template::new(template, &keys);
            assert_eq!(template.numbers.len(), 3);
            let mut out = Vec::new();
            template.append(0, 0xabc, &mut out);
            assert_eq!(out, wanted);
            out.clear();
            template.append(0x0102_0304, 0, &mut out);
            assert_eq!(out[4..8], [4, 3, 2, 1]);
        }
    }
}
