//! A log that is cut or damaged anywhere says what a beginning of it said, or nothing at all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use yb_env::Rng;
use yb_journal::{Damage, FORMAT, Head, Image, Record, SegmentNote, read};
use yb_types::{ClientId, ReplicaId, SegmentId, SegmentStatus, Uuid};
use yb_wire::messages::DirectoryEntry;

fn note(number: u32, id: u64) -> SegmentNote {
    SegmentNote {
        id: SegmentId(Uuid { first: id, second: 2 }),
        owner: ClientId(Uuid { first: u64::from(number), second: 3 }),
        base: 0x10_0000,
        size: 1 << 20,
        name: b"node".to_vec(),
        endpoint: b"10.0.0.1:2000".to_vec(),
    }
}

fn entry(offset: u64, key: &[u8]) -> DirectoryEntry<'_> {
    DirectoryEntry {
        offset,
        size: 64,
        generation: offset + 7,
        replica: ReplicaId(offset + 1),
        writer: ClientId(Uuid { first: 8, second: 9 }),
        checksum: offset.is_multiple_of(2).then_some(5),
        flags: 1,
        data_type: 2,
        soft_pin_until_ms: 3,
        tenant: b"t",
        group: b"",
        key,
    }
}

/// Random records, as a master writes them. Answers the log, and its image behind each record.
fn written(rng: &mut Rng, records: usize) -> (Vec<u8>, Vec<(usize, Image)>) {
    let mut log = Vec::new();
    Record::Head(Head { format: FORMAT, boot: b"boot", synced: true }).append(&mut log);
    let mut image = Image { boot: b"boot".to_vec(), synced: true, ..Image::default() };
    let mut images = vec![(log.len(), image.clone())];
    for n in 0..records as u64 {
        let known: Vec<u32> = image.segments.keys().copied().collect();
        let number = known.get(rng.below(known.len().max(1) as u64) as usize).copied();
        let (mut body, key) = (Vec::new(), format!("k{n}"));
        let record = match (rng.below(12), number) {
            (0, _) => Record::Life(n + 1),
            (1, _) => Record::Alive(1000 + n),
            (2, Some(number)) => Record::Gone(number),
            (3, Some(number)) => Record::Clear(number),
            (4, _) => {
                Record::Status(SegmentId(Uuid { first: rng.below(3), second: 0 }), SegmentStatus(1 + (n % 3) as i32))
            }
            (5..=6, Some(number)) => Record::Strike(number, 64 * rng.below(8)),
            (7.., Some(number)) => {
                yb_journal::text::put_entry(&mut body, &entry(64 * rng.below(8), key.as_bytes()));
                Record::Note(number, yb_journal::Noted(&body))
            }
            _ => Record::Mounted(image.last_number + 1, note(image.last_number + 1, rng.below(3))),
        };
        record.append(&mut log);
        image.apply(&record).unwrap();
        images.push((log.len(), image.clone()));
    }
    (log, images)
}

fn at(images: &[(usize, Image)], len: usize) -> Image {
    let (whole, image) = images.iter().rev().find(|(end, _)| *end <= len).unwrap();
    Image { whole: *whole as u64, ..image.clone() }
}

#[test]
fn a_log_that_is_cut_anywhere_says_what_its_whole_records_say() {
    for seed in 0..8 {
        let (log, images) = written(&mut Rng::seeded(seed), 60);
        assert_eq!(read(&log), Ok(at(&images, log.len())));
        for len in 0..log.len() {
            let expected = if len < images[0].0 { Err(Damage::NoLog) } else { Ok(at(&images, len)) };
            assert_eq!(read(&log[..len]), expected, "seed {seed}, {len} bytes");
        }
    }
}

#[test]
fn a_log_that_is_damaged_anywhere_says_nothing() {
    let (log, images) = written(&mut Rng::seeded(9), 40);
    for place in 0..log.len() {
        let mut bad = log.clone();
        bad[place] ^= 1 << (place % 8);
        let record = images.iter().rev().map(|(end, _)| *end).find(|end| *end <= place).unwrap_or(0);
        let expected = if record == 0 { Damage::NoLog } else { Damage::Record(record as u64) };
        assert_eq!(read(&bad), Err(expected), "byte {place}");
    }
}

#[test]
fn a_snapshot_says_the_same_and_goes_on() {
    for seed in 0..32 {
        let (_, images) = written(&mut Rng::seeded(100 + seed), 80);
        let image = &images.last().unwrap().1;
        let mut short = Vec::new();
        image.append(&mut short);
        let mut again = read(&short).unwrap();
        Record::Mounted(image.last_number + 1, note(1, 1)).append(&mut short);
        assert!(read(&short).is_ok());
        (again.last_number, again.whole) = (image.last_number, image.whole);
        assert_eq!(&again, image);
    }
}

#[test]
fn whole_records_that_cannot_be_are_refused() {
    let head = |format| Record::Head(Head { format, boot: b"b", synced: false });
    let log = |records: &[Record<'_>]| {
        let mut log = Vec::new();
        records.iter().for_each(|record| record.append(&mut log));
        log
    };
    assert_eq!(read(&log(&[head(FORMAT + 1)])), Err(Damage::Format(FORMAT + 1)));
    assert_eq!(read(&log(&[Record::Life(1)])), Err(Damage::NoLog));
    assert_eq!(read(&[]), Err(Damage::NoLog));
    let first = log(&[head(FORMAT)]).len() as u64;
    for wrong in [Record::Strike(1, 0), Record::Clear(1), Record::Gone(1), head(FORMAT), Record::Mounted(0, note(0, 1))]
    {
        assert_eq!(read(&log(&[head(FORMAT), wrong])), Err(Damage::Contradiction(first)));
    }
    let twice = [head(FORMAT), Record::Mounted(1, note(1, 1)), Record::Mounted(1, note(1, 1))];
    assert!(matches!(read(&log(&twice)), Err(Damage::Contradiction(_))));
}

/// Whatever bytes there are: an answer, and memory that follows the bytes.
#[test]
fn random_bytes_and_random_changes_are_read_without_harm() {
    let mut rng = Rng::seeded(4);
    let (log, _) = written(&mut rng, 60);
    for _ in 0..if cfg!(debug_assertions) { 4_000 } else { 100_000 } {
        let mut bytes = log.clone();
        for _ in 0..1 + rng.below(4) {
            let place = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[place] = rng.next_u64() as u8,
                1 => bytes.truncate(place.max(1)),
                2 => drop(bytes.drain(place..(place + rng.below(40) as usize).min(bytes.len()))),
                _ => bytes.insert(place, rng.next_u64() as u8),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let _ = read(&bytes);
        // With right checksums behind it the decoder of records itself is met.
        let mut framed = Vec::new();
        Record::Head(Head { format: FORMAT, boot: b"", synced: false }).append(&mut framed);
        let from = rng.below(bytes.len().max(1) as u64) as usize;
        let to = (from + rng.below(120) as usize).min(bytes.len());
        yb_journal::frame::append(&mut framed, |out| out.extend_from_slice(&bytes[from.min(to)..to]));
        let _ = read(&framed);
    }
}
