//! Writing objects for a dummy: from its windows, or from values inside the call.

use yb_client::{Duplicates, LocalBuffer, Parts, PutItem};
use yb_types::{ClientId, ErrorCode, ReplicateConfig};
use yb_wire::messages::{
    ErrorOr, LocalBatchPutFromArgs, LocalBatchPutFromBuffersArgs, LocalBatchUpsertFromArgs, LocalPutArgs,
    LocalPutBatchArgs, LocalPutPartsArgs, LocalUpsertFromArgs,
};

use crate::service::{Shared, code};
use crate::window::Windows;

/// What becomes of an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It stays.
    Put,
    /// It is replaced.
    Upsert,
}

/// How the objects of a call are written.
#[derive(Clone, Copy)]
struct Writing<'c> {
    config: &'c ReplicateConfig,
    manner: Manner,
    repeated: Duplicates,
}

/// Writes objects; one answer for each.
fn write(shared: &Shared, items: &[PutItem<'_>], writing: Writing<'_>) -> Vec<ErrorOr<()>> {
    let Writing { config, manner, repeated } = writing;
    match manner {
        Manner::Put => {
            let answers = shared.client.batch_put_items(items, config, repeated).into_iter();
            answers.map(|answer| answer.map(|_| ()).map_err(|error| code(&error))).collect()
        }
        Manner::Upsert => {
            let answers = shared.client.batch_upsert_items(items, config, repeated).into_iter();
            answers.map(|answer| answer.map_err(|error| code(&error))).collect()
        }
    }
}

/// The answer of a batch of one.
fn only(answers: Vec<ErrorOr<()>>) -> ErrorOr<()> {
    answers.into_iter().next().unwrap_or(Err(ErrorCode::INTERNAL_ERROR))
}

/// A value inside the call.
pub(super) fn value(shared: &Shared, args: LocalPutArgs<'_>, manner: Manner) -> ErrorOr<()> {
    if args.value.0.is_empty() {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    let writing = Writing { config: &args.config, manner, repeated: Duplicates::FirstWins };
    only(write(shared, &[PutItem::new(args.key, args.value.0)], writing))
}

/// One object in parts inside the call. No bytes at all: nothing is stored, and that is no failure.
pub(super) fn parts(shared: &Shared, args: LocalPutPartsArgs<'_>, manner: Manner) -> ErrorOr<()> {
    let values = args.values.to_vec();
    let from: Parts<'_> =
        values.iter().filter(|part| !part.0.is_empty()).map(|part| LocalBuffer::source(part.0)).collect();
    if from.is_empty() {
        return Ok(());
    }
    let writing = Writing { config: &args.config, manner, repeated: Duplicates::FirstWins };
    only(write(shared, &[PutItem { key: args.key, from }], writing))
}

/// Values inside the call: ok, or the first failure; the other keys are stored.
pub(super) fn values(shared: &Shared, args: LocalPutBatchArgs<'_>, manner: Manner) -> ErrorOr<()> {
    let (keys, values) = (args.keys.to_vec(), args.values.to_vec());
    if keys.len() != values.len() || values.iter().any(|value| value.0.is_empty()) {
        return Err(ErrorCode::INVALID_PARAMS);
    }
    let items: Vec<PutItem<'_>> = keys.iter().zip(&values).map(|(key, value)| PutItem::new(key, value.0)).collect();
    let writing = Writing { config: &args.config, manner, repeated: Duplicates::FirstWins };
    write(shared, &items, writing).into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// The memory of each object, as addresses and sizes in the dummy.
type Places = Vec<Vec<(u64, u64)>>;

/// Writes objects from windows of the dummy. What lies in none is answered without asking the pool.
fn from_windows(
    shared: &Shared,
    client_id: ClientId,
    keys: &[&[u8]],
    places: Option<Places>,
    writing: Writing<'_>,
) -> Vec<ErrorOr<()>> {
    let refused = |code: ErrorCode| keys.iter().map(|_| Err(code)).collect();
    let Some(places) = places.filter(|places| places.len() == keys.len()) else {
        return refused(ErrorCode::INVALID_PARAMS);
    };
    let windows = match shared.dummies.get(client_id) {
        Ok(dummy) => dummy.windows(),
        Err(code) => return refused(code),
    };
    let mut answers: Vec<ErrorOr<()>> = refused(ErrorCode::INVALID_PARAMS);
    let (mut indexes, mut items) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    for (index, (key, places)) in keys.iter().zip(&places).enumerate() {
        if let Some(from) = source(&windows, places) {
            indexes.push(index);
            items.push(PutItem { key, from });
        }
    }
    let config = writing.config.only(&indexes, keys.len());
    let written = write(shared, &items, Writing { config: &config, ..writing });
    for (index, answer) in indexes.into_iter().zip(written) {
        if let Some(place) = answers.get_mut(index) {
            *place = answer;
        }
    }
    answers
}

/// The bytes of one object; `None`: some lie in no window, or there are none.
fn source<'w>(windows: &'w Windows, places: &[(u64, u64)]) -> Option<Parts<'w>> {
    let with_bytes = places.iter().filter(|(_, len)| *len > 0);
    let from: Option<Parts<'w>> = with_bytes.map(|(address, len)| windows.buffer(*address, *len)).collect();
    from.filter(|parts| !parts.is_empty())
}

/// One place for each object; `None` when the lists differ in length.
pub(super) fn single_places(addresses: Vec<u64>, sizes: Vec<u64>) -> Option<Places> {
    (addresses.len() == sizes.len()).then(|| addresses.into_iter().zip(sizes).map(|place| vec![place]).collect())
}

/// Several places for each object; `None` when the lists differ in length anywhere.
pub(super) fn multi_places(addresses: Vec<Vec<u64>>, sizes: Vec<Vec<u64>>) -> Option<Places> {
    if addresses.len() != sizes.len() {
        return None;
    }
    let each = |(addresses, sizes): (Vec<u64>, Vec<u64>)| {
        (addresses.len() == sizes.len()).then(|| addresses.into_iter().zip(sizes).collect())
    };
    addresses.into_iter().zip(sizes).map(each).collect()
}

pub(super) fn put_from(shared: &Shared, args: LocalBatchPutFromArgs<'_>) -> Vec<ErrorOr<()>> {
    let places = single_places(args.dummy_buffers.to_vec(), args.sizes.to_vec());
    let writing = Writing { config: &args.config, manner: Manner::Put, repeated: Duplicates::LastWins };
    from_windows(shared, args.client_id, &args.keys.to_vec(), places, writing)
}

pub(super) fn upsert_from(shared: &Shared, args: LocalUpsertFromArgs<'_>) -> ErrorOr<()> {
    let places = Some(vec![vec![(args.dummy_buffer, args.size)]]);
    let writing = Writing { config: &args.config, manner: Manner::Upsert, repeated: Duplicates::LastWins };
    only(from_windows(shared, args.client_id, &[args.key], places, writing))
}

pub(super) fn batch_upsert_from(shared: &Shared, args: LocalBatchUpsertFromArgs<'_>) -> Vec<ErrorOr<()>> {
    let places = single_places(args.dummy_buffers.to_vec(), args.sizes.to_vec());
    let writing = Writing { config: &args.config, manner: Manner::Upsert, repeated: Duplicates::LastWins };
    from_windows(shared, args.client_id, &args.keys.to_vec(), places, writing)
}

pub(super) fn from_buffers(
    shared: &Shared,
    args: LocalBatchPutFromBuffersArgs<'_>,
    manner: Manner,
) -> Vec<ErrorOr<()>> {
    let lists = |lists: &[yb_wire::List<'_, u64>]| lists.iter().map(yb_wire::List::to_vec).collect();
    let places = multi_places(lists(&args.dummy_all_buffers), lists(&args.all_sizes));
    let writing = Writing { config: &args.config, manner, repeated: Duplicates::LastWins };
    from_windows(shared, args.client_id, &args.keys.to_vec(), places, writing)
}
