//! Reading objects for a dummy: into its windows, or into room that is lent to it.

use yb_client::{GetItem, Parts};
use yb_types::{ClientId, ErrorCode};
use yb_wire::List;
use yb_wire::messages::{
    ErrorOr, LocalBatchGetIntoArgs, LocalBatchGetIntoBuffersArgs, LocalKeyClientArgs, LocalKeysClientArgs,
};

use super::put::{multi_places, single_places};
use crate::service::{Shared, code, signed};

pub(super) fn into(shared: &Shared, args: LocalBatchGetIntoArgs<'_>) -> Vec<ErrorOr<i64>> {
    let places = single_places(args.buffers.to_vec(), args.sizes.to_vec());
    into_windows(shared, args.client_id, &args.keys.to_vec(), places)
}

pub(super) fn into_buffers(shared: &Shared, args: LocalBatchGetIntoBuffersArgs<'_>) -> Vec<ErrorOr<i64>> {
    let lists = |lists: &[List<'_, u64>]| lists.iter().map(List::to_vec).collect();
    let places = multi_places(lists(&args.dummy_all_buffers), lists(&args.all_sizes));
    into_windows(shared, args.client_id, &args.keys.to_vec(), places)
}

/// Reads objects into windows of the dummy; bytes of each. What lies in no window is answered without asking the pool.
fn into_windows(
    shared: &Shared,
    client_id: ClientId,
    keys: &[&[u8]],
    places: Option<Vec<Vec<(u64, u64)>>>,
) -> Vec<ErrorOr<i64>> {
    let refused = |code: ErrorCode| keys.iter().map(|_| Err(code)).collect();
    let Some(places) = places.filter(|places| places.len() == keys.len()) else {
        return refused(ErrorCode::INVALID_PARAMS);
    };
    let windows = match shared.dummies.get(client_id) {
        Ok(dummy) => dummy.windows(),
        Err(code) => return refused(code),
    };
    let mut answers: Vec<ErrorOr<i64>> = refused(ErrorCode::INVALID_PARAMS);
    let (mut indexes, mut items) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    for (index, (key, places)) in keys.iter().zip(&places).enumerate() {
        let into: Option<Parts<'_>> = places.iter().map(|(address, len)| windows.buffer(*address, *len)).collect();
        if let Some(into) = into {
            indexes.push(index);
            items.push(GetItem { key, into });
        }
    }
    for (index, answer) in indexes.into_iter().zip(shared.client.batch_get_items(items)) {
        if let Some(place) = answers.get_mut(index) {
            *place = answer.map(signed).map_err(|error| code(&error));
        }
    }
    answers
}

/// One object into room that is lent to the dummy: its address there, and its bytes.
pub(super) fn acquire(shared: &Shared, args: LocalKeyClientArgs<'_>) -> ErrorOr<(u64, u64)> {
    acquire_each(shared, args.client_id, &[args.key]).pop().unwrap_or(Err(ErrorCode::INTERNAL_ERROR))
}

pub(super) fn batch_acquire(shared: &Shared, args: LocalKeysClientArgs<'_>) -> Vec<ErrorOr<(u64, u64)>> {
    acquire_each(shared, args.client_id, &args.keys.to_vec())
}

fn acquire_each(shared: &Shared, client_id: ClientId, keys: &[&[u8]]) -> Vec<ErrorOr<(u64, u64)>> {
    let windows = match shared.dummies.get(client_id) {
        Ok(dummy) => dummy.windows(),
        Err(code) => return keys.iter().map(|_| Err(code)).collect(),
    };
    let lend = |size: u64| windows.lend(size).map(|loan| (loan, size)).ok_or(ErrorCode::NO_AVAILABLE_HANDLE);
    let sizes = shared.client.batch_query(keys).into_iter().map(|found| match found {
        Ok(lookup) => lookup.size().ok_or(ErrorCode::INVALID_REPLICA),
        Err(error) => Err(code(&error)),
    });
    let mut loans: Vec<ErrorOr<_>> = sizes.map(|size| size.and_then(lend)).collect();
    let (mut indexes, mut items) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    for (index, (key, loan)) in keys.iter().zip(&loans).enumerate() {
        if let Ok((loan, size)) = loan
            && let Some(buffer) = windows.buffer(loan.address(), *size)
        {
            indexes.push(index);
            items.push(GetItem { key, into: Parts::from_iter([buffer]) });
        }
    }
    let read = shared.client.batch_get_items(items);
    let mut answers: Vec<ErrorOr<u64>> = keys.iter().map(|_| Err(ErrorCode::INTERNAL_ERROR)).collect();
    for (index, answer) in indexes.into_iter().zip(read) {
        if let Some(place) = answers.get_mut(index) {
            *place = answer.map_err(|error| code(&error));
        }
    }
    let kept = loans.drain(..).zip(answers).map(|(loan, answer)| {
        let (loan, _) = loan?;
        // The object may have been replaced by a shorter one in between; a longer one did not fit and is an error.
        let bytes = answer?;
        Ok((loan.keep(), bytes))
    });
    kept.collect()
}
