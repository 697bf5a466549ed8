//! Numbers, texts and objects inside a record: numbers little-endian, texts behind their length (u64).

use yb_types::{ClientId, ReplicaId, Uuid};
use yb_wire::messages::DirectoryEntry;

/// Appends numbers.
pub fn put(body: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
}

/// Appends an id.
pub fn put_uuid(body: &mut Vec<u8>, id: Uuid) {
    put(body, &[id.first, id.second]);
}

/// Appends a text.
pub fn put_text(body: &mut Vec<u8>, text: &[u8]) {
    put(body, &[text.len() as u64]);
    body.extend_from_slice(text);
}

/// Takes so many bytes from the front; `None` when there are fewer.
pub fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

/// Takes a number.
pub fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}

/// Takes an id.
pub fn take_uuid(rest: &mut &[u8]) -> Option<Uuid> {
    Some(Uuid { first: take_u64(rest)?, second: take_u64(rest)? })
}

/// Takes a text.
pub fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_u64(rest)?).ok()?;
    take(rest, len)
}

/// Appends an object.
pub fn put_entry(body: &mut Vec<u8>, entry: &DirectoryEntry<'_>) {
    body.extend_from_slice(&[entry.flags, entry.data_type, u8::from(entry.checksum.is_some())]);
    put(body, &[entry.offset, entry.size, entry.generation, entry.replica.0]);
    put_uuid(body, entry.writer.0);
    put(body, &[entry.checksum.unwrap_or(0), entry.soft_pin_until_ms]);
    [entry.tenant, entry.group, entry.key].iter().for_each(|text| put_text(body, text));
}

/// Takes an object.
pub fn take_entry<'a>(rest: &mut &'a [u8]) -> Option<DirectoryEntry<'a>> {
    let &[flags, data_type, has_checksum] = take(rest, 3)? else { return None };
    let (offset, size) = (take_u64(rest)?, take_u64(rest)?);
    let (generation, replica) = (take_u64(rest)?, ReplicaId(take_u64(rest)?));
    let writer = ClientId(take_uuid(rest)?);
    let checksum = Some(take_u64(rest)?).filter(|_| has_checksum != 0);
    let soft_pin_until_ms = take_u64(rest)?;
    let (tenant, group, key) = (take_text(rest)?, take_text(rest)?, take_text(rest)?);
    Some(DirectoryEntry {
        offset,
        size,
        generation,
        replica,
        writer,
        checksum,
        flags,
        data_type,
        soft_pin_until_ms,
        tenant,
        group,
        key,
    })
}
