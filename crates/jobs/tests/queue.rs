//! The queue of tasks: order, limits, timeouts, and what happens to the tasks of clients that are gone.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use proptest::prelude::*;
use yb_jobs::{MarkRefusal, MoveWork, Now, PendingFull, Purpose, QueueLimits, TaskCounts, TaskId, TaskQueue, Work};
use yb_types::{ClientId, MonotonicTime, Uuid};
use yb_wire::messages::TaskStatus;

fn at(seconds: u64) -> Now {
    Now { mono: MonotonicTime(0) + Duration::from_secs(seconds), epoch_ms: 1_000_000 + seconds * 1000 }
}

fn client(number: u64) -> ClientId {
    ClientId(Uuid { first: number, second: 0 })
}

fn id(number: u64) -> TaskId {
    TaskId(Uuid { first: number, second: 7 })
}

fn work(key: &str) -> Work {
    Work::Move(MoveWork {
        tenant: "default".into(),
        key: key.as_bytes().into(),
        source: "a".into(),
        target: "b".into(),
    })
}

fn fetch(queue: &mut TaskQueue, from: u64, most: usize, now: Now) -> Vec<TaskId> {
    let mut fetched = Vec::new();
    queue.fetch(client(from), most, now, |task| fetched.push(task.id));
    fetched
}

fn small() -> QueueLimits {
    QueueLimits { finished: 3, pending: 4, processing: 2, ..QueueLimits::default() }
}

fn submit(queue: &mut TaskQueue, number: u64, to: u64, now: Now) -> Result<(), PendingFull> {
    queue.submit(id(number), work(&format!("k{number}")), Purpose::Asked(None), client(to), now)
}

#[test]
fn a_client_gets_its_own_tasks_in_order_and_within_the_limits() {
    let mut queue = TaskQueue::new(small());
    for number in [1, 2, 3] {
        submit(&mut queue, number, 1, at(0)).unwrap();
    }
    submit(&mut queue, 4, 2, at(0)).unwrap();
    assert_eq!(submit(&mut queue, 5, 2, at(0)), Err(PendingFull));
    assert_eq!(fetch(&mut queue, 1, 1, at(1)), [id(1)]);
    assert_eq!(fetch(&mut queue, 1, 16, at(1)), [id(2)], "two may be under way in all");
    assert_eq!(fetch(&mut queue, 2, 16, at(1)), []);
    queue.mark(client(1), id(1), TaskStatus::SUCCESS, b"", at(2)).unwrap();
    assert_eq!(fetch(&mut queue, 2, 16, at(2)), [id(4)], "an end makes room");
    assert_eq!(queue.counts(), TaskCounts { pending: 1, processing: 2, finished: 1 });
    queue.assert_consistent();
}

#[test]
fn only_its_client_ends_a_task_and_only_once() {
    let mut queue = TaskQueue::new(small());
    submit(&mut queue, 1, 1, at(0)).unwrap();
    let _ = fetch(&mut queue, 1, 1, at(1));
    let mark = |queue: &mut TaskQueue, by, which, status| queue.mark(client(by), id(which), status, b"done", at(2));
    assert_eq!(mark(&mut queue, 1, 1, TaskStatus::PROCESSING), Err(MarkRefusal::Status));
    assert_eq!(mark(&mut queue, 1, 9, TaskStatus::SUCCESS), Err(MarkRefusal::Unknown));
    assert_eq!(mark(&mut queue, 2, 1, TaskStatus::SUCCESS), Err(MarkRefusal::NotYours));
    let ended = mark(&mut queue, 1, 1, TaskStatus::SUCCESS).unwrap().expect("it ended now");
    assert!(ended.success && ended.message == "done");
    assert_eq!(mark(&mut queue, 1, 1, TaskStatus::FAILED), Ok(None));
    assert_eq!(queue.get(id(1)).unwrap().status, TaskStatus::SUCCESS, "the first word counts");
}

#[test]
fn what_takes_too_long_has_failed_but_a_late_success_is_told() {
    let mut queue = TaskQueue::new(small());
    for number in [1, 2] {
        submit(&mut queue, number, 1, at(0)).unwrap();
    }
    let _ = fetch(&mut queue, 1, 1, at(100));
    assert!(queue.expire(at(299)).is_empty());
    let ended = queue.expire(at(300));
    assert_eq!(ended.iter().map(|e| (e.id, e.success)).collect::<Vec<_>>(), [(id(2), false)], "pending since 0");
    assert_eq!(queue.expire(at(400)).len(), 1, "processing since 100");
    assert!(queue.get(id(1)).unwrap().message.contains("did not report"));
    assert_eq!(queue.mark(client(1), id(1), TaskStatus::SUCCESS, b"copied", at(401)), Ok(None));
    let task = queue.get(id(1)).unwrap();
    assert_eq!((task.status, task.message.as_str()), (TaskStatus::SUCCESS, "late: copied"));
    assert_eq!(queue.next_deadline(), None);
    queue.assert_consistent();
}

#[test]
fn zero_means_no_timeout() {
    let limits = QueueLimits { pending_timeout: Duration::ZERO, processing_timeout: Duration::ZERO, ..small() };
    let mut queue = TaskQueue::new(limits);
    submit(&mut queue, 1, 1, at(0)).unwrap();
    assert!(queue.expire(at(1_000_000)).is_empty());
    assert_eq!(fetch(&mut queue, 1, 1, at(1_000_000)), [id(1)]);
    assert!(queue.expire(at(2_000_000)).is_empty());
}

#[test]
fn history_keeps_the_newest() {
    let mut queue = TaskQueue::new(small());
    for number in 1..=5 {
        submit(&mut queue, number, 1, at(number)).unwrap();
        let _ = fetch(&mut queue, 1, 1, at(number));
        queue.mark(client(1), id(number), TaskStatus::FAILED, b"no", at(number)).unwrap();
    }
    let known: Vec<u64> = (1..=5).filter(|&number| queue.get(id(number)).is_some()).collect();
    assert_eq!(known, [3, 4, 5]);
}

#[test]
fn tasks_of_a_client_that_is_gone_go_to_another_or_fail() {
    let mut queue = TaskQueue::new(small());
    for (number, to) in [(1, 1), (2, 1), (3, 2)] {
        submit(&mut queue, number, to, at(0)).unwrap();
    }
    let _ = fetch(&mut queue, 1, 1, at(1));
    let orphans: Vec<TaskId> = queue.of_client(client(1)).into_iter().map(|orphan| orphan.id).collect();
    assert_eq!(orphans, [id(2), id(1)]);
    queue.reassign(id(1), client(3), work("other"), at(2));
    assert!(queue.fail(id(2), "gone", at(2)).is_some());
    assert!(queue.of_client(client(1)).is_empty());
    assert_eq!(queue.mark(client(1), id(1), TaskStatus::SUCCESS, b"", at(3)), Err(MarkRefusal::NotYours));
    assert_eq!(fetch(&mut queue, 3, 9, at(3)), [id(1)]);
    assert_eq!(queue.get(id(1)).unwrap().work.object().1, b"other");
    queue.assert_consistent();
}

#[test]
fn only_what_nobody_fetched_can_be_withdrawn() {
    let mut queue = TaskQueue::new(small());
    for number in [1, 2] {
        submit(&mut queue, number, 1, at(0)).unwrap();
    }
    let _ = fetch(&mut queue, 1, 1, at(0));
    assert!(!queue.withdraw(id(1)));
    assert!(queue.withdraw(id(2)) && queue.get(id(2)).is_none());
    assert!(!queue.withdraw(id(2)));
    queue.assert_consistent();
}

#[test]
fn a_message_of_any_length_and_bytes_is_kept_short() {
    let mut queue = TaskQueue::new(small());
    submit(&mut queue, 1, 1, at(0)).unwrap();
    queue.mark(client(1), id(1), TaskStatus::FAILED, &[0xff; 100_000], at(1)).unwrap();
    assert!(queue.get(id(1)).unwrap().message.len() <= 4096);
}

/// Keys may be as long as a message, and ten thousand tasks may wait.
#[test]
fn tasks_are_bounded_by_their_bytes_too() {
    let mut queue = TaskQueue::new(QueueLimits::default());
    let large = |queue: &mut TaskQueue, number| {
        queue.submit(id(number), work(&"k".repeat(20 << 20)), Purpose::Asked(None), client(1), at(0))
    };
    for number in 1..=3 {
        large(&mut queue, number).unwrap();
    }
    assert_eq!(large(&mut queue, 4), Err(PendingFull));
    submit(&mut queue, 5, 1, at(0)).unwrap();
    queue.assert_consistent();
    assert_eq!(fetch(&mut queue, 1, 10, at(1)), [id(1)], "not several large ones in one answer");
    assert_eq!(fetch(&mut queue, 1, 10, at(1)), [id(2)]);
    queue.mark(client(1), id(1), TaskStatus::SUCCESS, b"", at(2)).unwrap();
    large(&mut queue, 6).unwrap();
    assert!(queue.get(id(1)).is_none(), "what has ended is forgotten for it");
    queue.assert_consistent();
}

proptest! {
    /// Whatever happens in whatever order: the books agree, each task ends once, limits hold.
    #[test]
    fn the_books_agree(steps in proptest::collection::vec((0u8..7, 1u64..6, 1u64..4), 1..200)) {
        let mut queue = TaskQueue::new(small());
        let (mut seconds, mut next, mut ends) = (0, 0, std::collections::BTreeMap::<TaskId, u32>::new());
        for (step, number, who) in steps {
            seconds += number;
            let now = at(seconds);
            let some = id(next - (number.min(next)));
            match step {
                0 | 1 => {
                    next += 1;
                    let full = queue.counts().pending >= 4;
                    prop_assert_eq!(submit(&mut queue, next, who, now).is_err(), full);
                }
                2 => { let _ = fetch(&mut queue, who, number as usize, now); }
                3 => if let Ok(Some(ended)) = queue.mark(client(who), some, TaskStatus::SUCCESS, b"", now) {
                    *ends.entry(ended.id).or_default() += 1;
                },
                4 => for ended in queue.expire(at(seconds + 290)) {
                    *ends.entry(ended.id).or_default() += 1;
                },
                5 => for orphan in queue.of_client(client(who)) {
                    queue.reassign(orphan.id, client(who % 3 + 1), orphan.work, now);
                },
                _ => if let Some(ended) = queue.fail(some, "x", now) {
                    *ends.entry(ended.id).or_default() += 1;
                },
            }
            queue.assert_consistent();
            prop_assert!(queue.counts().processing <= 2 && queue.counts().finished <= 3);
        }
        prop_assert!(ends.values().all(|&times| times == 1));
    }
}

#[test]
fn one_address_has_its_share_and_gets_it_back() {
    let mut queue = TaskQueue::new(QueueLimits { pending: 100, processing: 100, per_address: 3, ..small() });
    let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| Purpose::Asked(Some(address.into())));
    let mut number = 0;
    let mut ask = |queue: &mut TaskQueue, purpose, key: &str| {
        number += 1;
        queue.submit(id(number), work(key), purpose, client(1), at(0)).map(|()| id(number))
    };
    let asked: Vec<TaskId> = (0..3).map(|_| ask(&mut queue, one, "k").unwrap()).collect();
    assert_eq!(ask(&mut queue, one, "k"), Err(PendingFull));
    for purpose in [other, Purpose::Asked(None), Purpose::Repair, Purpose::Heat] {
        ask(&mut queue, purpose, "k").unwrap();
    }
    // One that is under way counts as well: else it would fill the places of those.
    fetch(&mut queue, 1, 1, at(1));
    assert_eq!(ask(&mut queue, one, "k"), Err(PendingFull));
    queue.mark(client(1), asked[0], TaskStatus::SUCCESS, b"", at(2)).unwrap();
    ask(&mut queue, one, "k").unwrap();
    assert!(queue.withdraw(asked[1]));
    queue.fail(asked[2], "", at(3)).unwrap();
    queue.assert_consistent();
    let long = "k".repeat(20 << 20);
    ask(&mut queue, one, &long).unwrap();
    assert_eq!(ask(&mut queue, one, &long), Err(PendingFull), "its share of the bytes");
    ask(&mut queue, other, &long).unwrap();
    assert_eq!(queue.refused_shares(), 3);
    queue.assert_consistent();
}
