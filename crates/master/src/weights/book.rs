//! The revisions, their leases and operations.

use std::collections::{BTreeMap, BTreeSet};

use yb_wire::messages::{
    WeightAvailabilityState as Availability, WeightManagementError as Refusal, WeightOperationState as Running,
    WeightResidencyState as Residency,
};

use super::sha256::hex_digest;

/// Revisions of a master; more are refused.
const REVISIONS: usize = 65_536;
/// Leases of a master; more are refused.
const LEASES: usize = 1 << 20;
/// Operations remembered after their end.
const OPERATIONS: usize = 4096;
/// Revisions of one page.
const PAGE: usize = 1000;

/// Which weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) tenant: Vec<u8>,
    pub(crate) name_space: Vec<u8>,
    pub(crate) resource: Vec<u8>,
    pub(crate) revision: Vec<u8>,
    pub(crate) generation: u64,
}

impl Identity {
    fn is_valid(&self) -> bool {
        let parts = [&self.tenant, &self.name_space, &self.resource, &self.revision];
        self.generation > 0 && parts.iter().all(|part| !part.is_empty())
    }

    /// The group that its objects belong to, as the peer derives it.
    pub(crate) fn group(&self) -> String {
        let generation = self.generation.to_string();
        let parts =
            [&self.tenant[..], &self.name_space, &self.resource, &self.revision, generation.as_bytes()].into_iter();
        format!("weight:{}", hex_digest(&lines(parts)))
    }
}

/// Each part with its length before it, a line each.
fn lines<'p>(parts: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice(part.len().to_string().as_bytes());
        text.push(b':');
        text.extend_from_slice(part);
        text.push(b'\n');
    }
    text
}

/// What a revision consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) key: Vec<u8>,
    pub(crate) sha256: Vec<u8>,
    pub(crate) group: Vec<u8>,
    pub(crate) keys_sha256: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// An object of its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) key: Vec<u8>,
    pub(crate) size: u64,
}

/// What is known of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) identity: Identity,
    pub(crate) manifest: Manifest,
    pub(crate) availability: Availability,
    pub(crate) residency: Residency,
    pub(crate) operation: Running,
    pub(crate) operation_id: u64,
    /// Grows with each change.
    pub(crate) generation: u64,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    /// Its objects, the manifest too; known from the commit on.
    members: Vec<Vec<u8>>,
    /// Objects that its group had when the import was last looked at, and since when.
    arrived: (usize, u64),
}

/// The right to use a revision for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) holder: Vec<u8>,
    pub(crate) expires_ms: u64,
    pub(crate) fenced: u64,
}

/// A change of tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) operation: Running,
    pub(crate) target: Residency,
    pub(crate) fenced: u64,
    pub(crate) started_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) processed: u64,
    pub(crate) total: u64,
}

/// A call on a revision at a generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) identity: &'a Identity,
    /// Generation that it must have.
    pub(crate) expected: u64,
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
}

type Answer<T> = Result<T, Refusal>;

/// A revision with the number of its leases and the end of the first.
pub(crate) type Seen = (Revision, u64, Option<u64>);

/// The leases of one revision, so that a question about it costs nothing for the others.
#[derive(Debug, Default)]
struct Terms {
    /// End and id of those that hold.
    live: BTreeSet<(u64, u64)>,
    /// Ids of those that have ended and are still known.
    ended: Vec<u64>,
}

impl Terms {
    /// How many hold at this time, and the end of the first.
    fn at(&mut self, now_ms: u64) -> (u64, Option<u64>) {
        while let Some(&(end, id)) = self.live.first()
            && end <= now_ms
        {
            self.live.pop_first();
            self.ended.push(id);
        }
        (self.live.len() as u64, self.live.first().map(|&(end, _)| end))
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Book {
    revisions: BTreeMap<Identity, Revision>,
    leases: BTreeMap<u64, Lease>,
    /// Of the revisions that were leased.
    terms: BTreeMap<Identity, Terms>,
    operations: BTreeMap<u64, Operation>,
    last_lease: u64,
    last_operation: u64,
}

impl Book {
    /// Begins an import; repeating it with the same arguments changes nothing.
    pub(crate) fn begin(
        &mut self,
        identity: &Identity,
        group: &[u8],
        (count, bytes): (u64, u64),
        now_ms: u64,
    ) -> Answer<Revision> {
        let own_group = identity.group().into_bytes();
        if !identity.is_valid() || (!group.is_empty() && group != own_group) {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        if let Some(known) = self.revisions.get(identity) {
            let same = (known.manifest.count, known.manifest.bytes) == (count, bytes);
            return if same && known.availability == Availability::IMPORTING {
                Ok(known.clone())
            } else {
                Err(Refusal::CONFLICT)
            };
        }
        if self.revisions.len() >= REVISIONS {
            return Err(Refusal::BUSY);
        }
        let revision = Revision {
            identity: identity.clone(),
            manifest: Manifest { group: own_group, count, bytes, ..Manifest::default() },
            availability: Availability::IMPORTING,
            residency: Residency::UNKNOWN,
            operation: Running::NONE,
            operation_id: 0,
            generation: 1,
            created_ms: now_ms,
            updated_ms: now_ms,
            members: Vec::new(),
            arrived: (0, now_ms),
        };
        self.revisions.insert(identity.clone(), revision.clone());
        Ok(revision)
    }

    fn at(&mut self, at: At<'_>) -> Answer<&mut Revision> {
        let revision = self.revisions.get_mut(at.identity).ok_or(Refusal::NOT_FOUND)?;
        if revision.generation == at.expected { Ok(revision) } else { Err(Refusal::STALE_GENERATION) }
    }

    /// Ends an import whose objects are all there: `members` are the readable ones of its group.
    pub(crate) fn commit(&mut self, at: At<'_>, manifest: &Manifest, mut members: Vec<Member>) -> Answer<Revision> {
        let revision = self.at(at)?;
        members.sort();
        let (manifests, payload): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.key == manifest.key);
        let digest = hex_digest(&lines(payload.iter().map(|member| &member.key[..])));
        let fits = manifests.len() == 1
            && manifest.group == revision.manifest.group
            && (manifest.count, manifest.bytes) == (revision.manifest.count, revision.manifest.bytes)
            && payload.len() as u64 == manifest.count
            && payload.iter().map(|member| member.size).sum::<u64>() == manifest.bytes
            && digest.as_bytes() == manifest.keys_sha256;
        if revision.availability != Availability::IMPORTING || !fits {
            return Err(Refusal::CONFLICT);
        }
        revision.manifest = manifest.clone();
        revision.members = members.into_iter().map(|member| member.key).collect();
        revision.availability = Availability::READY;
        revision.residency = Residency::HOT;
        revision.change(at.now_ms);
        Ok(revision.clone())
    }

    /// Gives an import up. Its objects are to be removed, then it is to be [forgotten](Self::forget).
    pub(crate) fn abort(&mut self, at: At<'_>) -> Answer<Revision> {
        let revision = self.at(at)?;
        if revision.availability != Availability::IMPORTING {
            return Err(Refusal::CONFLICT);
        }
        revision.availability = Availability::DELETING;
        revision.change(at.now_ms);
        Ok(revision.clone())
    }

    /// Begins to delete a revision that nobody uses; answers it with the keys to be removed, then it is to be
    /// [forgotten](Self::forget).
    pub(crate) fn begin_delete(&mut self, at: At<'_>) -> Answer<(Revision, Vec<Vec<u8>>)> {
        let leased = self.live_leases(at.identity, at.now_ms).0 > 0;
        let revision = self.at(at)?;
        if revision.availability != Availability::READY && revision.availability != Availability::DEGRADED {
            return Err(Refusal::NOT_READY);
        }
        if leased || revision.operation != Running::NONE {
            return Err(Refusal::BUSY);
        }
        revision.availability = Availability::DELETING;
        revision.change(at.now_ms);
        let mut gone = revision.clone();
        gone.availability = Availability::DELETED;
        gone.residency = Residency::ABSENT;
        gone.change(at.now_ms);
        let members = gone.members.clone();
        Ok((gone, members))
    }

    /// Forgets a revision that is going away.
    pub(crate) fn forget(&mut self, identity: &Identity) {
        if self.revisions.get(identity).is_some_and(|revision| revision.availability == Availability::DELETING) {
            self.revisions.remove(identity);
            let terms = self.terms.remove(identity).unwrap_or_default();
            for id in terms.live.into_iter().map(|(_, id)| id).chain(terms.ended) {
                self.leases.remove(&id);
            }
        }
    }

    /// A revision with the number of its leases and the end of the first.
    pub(crate) fn get(&mut self, identity: &Identity, now_ms: u64) -> Answer<Seen> {
        let (count, nearest) = self.live_leases(identity, now_ms);
        let revision = self.revisions.get(identity).ok_or(Refusal::NOT_FOUND)?;
        Ok((revision.clone(), count, nearest))
    }

    /// Leases that hold, operations under way, and the age of the oldest of these in milliseconds.
    pub(crate) fn figures(&self, now_ms: u64) -> [u64; 3] {
        let leases = self.leases.values().filter(|lease| lease.expires_ms > now_ms).count();
        let running = || self.revisions.values().filter(|revision| revision.operation != Running::NONE);
        let begun = running().filter_map(|revision| Some(self.operations.get(&revision.operation_id)?.started_ms));
        let age = begun.min().map_or(0, |started| now_ms.saturating_sub(started));
        [leases as u64, running().count() as u64, age]
    }

    fn live_leases(&mut self, identity: &Identity, now_ms: u64) -> (u64, Option<u64>) {
        self.terms.get_mut(identity).map_or((0, None), |terms| terms.at(now_ms))
    }

    /// Some revisions of a resource from a token on, and the token of the next page.
    pub(crate) fn list(
        &mut self,
        (tenant, name_space, resource): (&[u8], &[u8], &[u8]),
        token: &[u8],
        limit: u32,
        now_ms: u64,
    ) -> Answer<(Vec<Seen>, Vec<u8>)> {
        let from: usize = match std::str::from_utf8(token) {
            Ok("") => 0,
            Ok(text) => text.parse().map_err(|_| Refusal::INVALID_ARGUMENT)?,
            Err(_) => return Err(Refusal::INVALID_ARGUMENT),
        };
        let matches = |identity: &&Identity| {
            identity.tenant == tenant
                && (name_space.is_empty() || identity.name_space == name_space)
                && (resource.is_empty() || identity.resource == resource)
        };
        let limit = (limit as usize).clamp(1, PAGE);
        let mut found = self.revisions.keys().filter(matches).skip(from);
        let page: Vec<Identity> = found.by_ref().take(limit).cloned().collect();
        let next = if found.next().is_some() { (from + limit).to_string().into_bytes() } else { Vec::new() };
        Ok((page.iter().filter_map(|identity| self.get(identity, now_ms).ok()).collect(), next))
    }

    /// Takes a lease on a revision that is ready.
    pub(crate) fn acquire(&mut self, at: At<'_>, holder: &[u8], ttl_ms: u64) -> Answer<Lease> {
        if holder.is_empty() || ttl_ms == 0 {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        let revision = self.at(at)?;
        if revision.availability != Availability::READY {
            return Err(Refusal::NOT_READY);
        }
        let fenced = revision.generation;
        let terms = self.terms.entry(at.identity.clone()).or_default();
        terms.at(at.now_ms);
        for id in terms.ended.drain(..) {
            if self.leases.get(&id).is_some_and(|lease| lease.expires_ms <= at.now_ms) {
                self.leases.remove(&id);
            }
        }
        if self.leases.len() >= LEASES {
            return Err(Refusal::BUSY);
        }
        self.last_lease += 1;
        let expires_ms = at.now_ms.saturating_add(ttl_ms);
        let lease =
            Lease { id: self.last_lease, identity: at.identity.clone(), holder: holder.to_vec(), expires_ms, fenced };
        self.leases.insert(lease.id, lease.clone());
        terms.live.insert((expires_ms, lease.id));
        Ok(lease)
    }

    /// Prolongs a lease that has not ended.
    pub(crate) fn renew(&mut self, tenant: &[u8], id: u64, ttl_ms: u64, now_ms: u64) -> Answer<Lease> {
        let lease = self.leases.get_mut(&id).filter(|lease| lease.identity.tenant == tenant);
        let lease = lease.ok_or(Refusal::NOT_FOUND)?;
        if ttl_ms == 0 {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        if lease.expires_ms <= now_ms {
            self.release(tenant, id);
            return Err(Refusal::LEASE_EXPIRED);
        }
        let before = std::mem::replace(&mut lease.expires_ms, now_ms.saturating_add(ttl_ms));
        if let Some(terms) = self.terms.get_mut(&lease.identity) {
            terms.live.remove(&(before, id));
            terms.live.insert((lease.expires_ms, id));
        }
        Ok(lease.clone())
    }

    /// Gives a lease back; an unknown one is fine.
    pub(crate) fn release(&mut self, tenant: &[u8], id: u64) {
        let Some(lease) = self.leases.get(&id).filter(|lease| lease.identity.tenant == tenant) else { return };
        if let Some(terms) = self.terms.get_mut(&lease.identity) {
            terms.live.remove(&(lease.expires_ms, id));
        }
        self.leases.remove(&id);
    }

    /// The keys that a change of tier is about, if it may begin.
    pub(crate) fn members_to_change(&mut self, at: At<'_>, target: Residency) -> Answer<Vec<Vec<u8>>> {
        if target != Residency::HOT && target != Residency::COLD {
            return Err(Refusal::INVALID_ARGUMENT);
        }
        let revision = self.at(at)?;
        if revision.availability != Availability::READY {
            return Err(Refusal::NOT_READY);
        }
        if revision.operation != Running::NONE { Err(Refusal::BUSY) } else { Ok(revision.members.clone()) }
    }

    /// Begins a change of tier of a revision whose members all have a copy there.
    pub(crate) fn start(&mut self, at: At<'_>, target: Residency) -> Answer<Operation> {
        let total = self.members_to_change(at, target)?.len() as u64;
        self.last_operation += 1;
        let id = self.last_operation;
        let revision = self.at(at)?;
        revision.operation = if target == Residency::COLD { Running::EVICTING } else { Running::REHYDRATING };
        revision.operation_id = id;
        revision.change(at.now_ms);
        let operation = Operation {
            id,
            identity: at.identity.clone(),
            operation: revision.operation,
            target,
            fenced: revision.generation,
            started_ms: at.now_ms,
            updated_ms: at.now_ms,
            processed: 0,
            total,
        };
        if self.operations.len() >= OPERATIONS {
            self.operations.pop_first();
        }
        self.operations.insert(id, operation.clone());
        Ok(operation)
    }

    /// A change of tier has come to its end; `moved` members are where they should be.
    pub(crate) fn finish(&mut self, id: u64, moved: u64, now_ms: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        (operation.processed, operation.updated_ms) = (moved, now_ms);
        let whole = moved == operation.total;
        if let Some(revision) = self.revisions.get_mut(&operation.identity)
            && revision.operation_id == id
        {
            revision.operation = Running::NONE;
            revision.operation_id = 0;
            revision.residency = if whole { operation.target } else { Residency::MIXED };
            revision.change(now_ms);
        }
    }

    /// A change of tier.
    pub(crate) fn operation(&self, tenant: &[u8], id: u64) -> Answer<Operation> {
        let found = self.operations.get(&id).filter(|operation| operation.identity.tenant == tenant);
        found.cloned().ok_or(Refusal::NOT_FOUND)
    }

    /// Imports that are under way.
    pub(crate) fn imports(&self) -> Vec<Identity> {
        let importing = self.revisions.values().filter(|revision| revision.availability == Availability::IMPORTING);
        importing.map(|revision| revision.identity.clone()).collect()
    }

    /// Says how many objects of an import there are. Answers it if nothing arrived for too long.
    pub(crate) fn look(&mut self, identity: &Identity, arrived: usize, idle_ms: u64, now_ms: u64) -> Option<Revision> {
        let revision = self.revisions.get_mut(identity)?;
        if revision.arrived.0 != arrived {
            revision.arrived = (arrived, now_ms);
        }
        if now_ms.saturating_sub(revision.arrived.1) < idle_ms {
            return None;
        }
        let at = At { identity, expected: revision.generation, now_ms };
        self.abort(at).ok()
    }
}

impl Revision {
    fn change(&mut self, now_ms: u64) {
        self.generation += 1;
        self.updated_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(revision: &str) -> Identity {
        Identity {
            tenant: b"default".to_vec(),
            name_space: b"ns".to_vec(),
            resource: b"m2".to_vec(),
            revision: revision.as_bytes().to_vec(),
            generation: 1,
        }
    }

    fn at(identity: &Identity, expected: u64) -> At<'_> {
        At { identity, expected, now_ms: 1000 }
    }

    fn ready(book: &mut Book, identity: &Identity) -> Revision {
        book.begin(identity, b"", (2, 30), 1000).unwrap();
        let member = |key: &str, size| Member { key: key.as_bytes().to_vec(), size };
        let members = vec![member("b", 20), member("manifest", 5), member("a", 10)];
        let manifest = Manifest {
            key: b"manifest".to_vec(),
            group: identity.group().into_bytes(),
            keys_sha256: hex_digest(b"1:a\n1:b\n").into_bytes(),
            count: 2,
            bytes: 30,
            ..Manifest::default()
        };
        let short = Manifest { bytes: 29, ..manifest.clone() };
        assert_eq!(book.commit(at(identity, 1), &short, members.clone()), Err(Refusal::CONFLICT));
        assert_eq!(book.commit(at(identity, 1), &manifest, members[..2].to_vec()), Err(Refusal::CONFLICT));
        assert_eq!(book.commit(at(identity, 9), &manifest, members.clone()), Err(Refusal::STALE_GENERATION));
        book.commit(at(identity, 1), &manifest, members).unwrap()
    }

    /// The names that the peer's master derived.
    #[test]
    fn groups_are_named_as_by_the_peer() {
        let q0 = "weight:af4e23e7f9b7e05b5e2b6e1ef4255ec5ae2a4c1c283e62b4283b68807d1ba5e8";
        let q1 = "weight:34cc62ee383dfc244c062e0d3ee7bb70fd14369f1cbdf6e336539116f969f416";
        assert_eq!((identity("Q0").group(), identity("Q1").group()), (q0.to_owned(), q1.to_owned()));
    }

    #[test]
    fn an_import_is_repeated_or_contradicted() {
        let (mut book, id) = (Book::default(), identity("r"));
        let begun = book.begin(&id, b"", (2, 30), 5).unwrap();
        assert_eq!(book.begin(&id, id.group().as_bytes(), (2, 30), 7), Ok(begun));
        assert_eq!(book.begin(&id, b"", (3, 30), 7), Err(Refusal::CONFLICT));
        assert_eq!(book.begin(&id, b"foreign", (2, 30), 7), Err(Refusal::INVALID_ARGUMENT));
        assert_eq!(book.begin(&identity(""), b"", (2, 30), 7), Err(Refusal::INVALID_ARGUMENT));
        assert_eq!(book.abort(at(&identity("other"), 1)), Err(Refusal::NOT_FOUND));
        assert_eq!(book.abort(at(&id, 2)), Err(Refusal::STALE_GENERATION));
        let aborted = book.abort(at(&id, 1)).unwrap();
        assert_eq!((aborted.availability, aborted.generation), (Availability::DELETING, 2));
        book.forget(&id);
        assert_eq!(book.get(&id, 0), Err(Refusal::NOT_FOUND));
    }

    #[test]
    fn leases_keep_a_revision() {
        let (mut book, id) = (Book::default(), identity("r"));
        assert_eq!(ready(&mut book, &id).generation, 2);
        assert_eq!(book.acquire(at(&id, 1), b"h", 50), Err(Refusal::STALE_GENERATION));
        let lease = book.acquire(at(&id, 2), b"h", 50).unwrap();
        assert_eq!((lease.expires_ms, lease.fenced), (1050, 2));
        assert_eq!(book.renew(b"other", lease.id, 60, 1010), Err(Refusal::NOT_FOUND));
        assert_eq!(book.renew(b"default", lease.id, 60, 1010).unwrap().expires_ms, 1070);
        assert_eq!(book.get(&id, 1020).unwrap().2, Some(1070));
        assert_eq!(book.begin_delete(at(&id, 2)), Err(Refusal::BUSY));
        assert_eq!(book.renew(b"default", lease.id, 60, 1070), Err(Refusal::LEASE_EXPIRED));
        let (gone, keys) = book.begin_delete(at(&id, 2)).unwrap();
        assert_eq!((gone.availability, gone.generation, keys.len()), (Availability::DELETED, 4, 3));
        assert_eq!(book.get(&id, 0).unwrap().0.availability, Availability::DELETING);
        book.forget(&id);
        assert_eq!(book.get(&id, 0), Err(Refusal::NOT_FOUND));
        book.release(b"default", 7);
    }

    /// A count that walked over all leases would take minutes here.
    #[test]
    fn leases_of_one_revision_cost_the_others_nothing() {
        let mut book = Book::default();
        let ids: Vec<Identity> = (0..1000).map(|at| identity(&format!("r{at}"))).collect();
        ids.iter().for_each(|id| drop(ready(&mut book, id)));
        for round in 0..100u64 {
            ids.iter().for_each(|id| assert!(book.acquire(at(id, 2), b"h", 50 + round).is_ok()));
        }
        for _ in 0..10 {
            let (page, _) = book.list((b"default", b"ns", b"m2"), b"", 1000, 1059).unwrap();
            assert_eq!(page.len(), 1000);
            assert!(page.iter().all(|(_, count, nearest)| (*count, *nearest) == (90, Some(1060))));
        }
        assert_eq!(book.figures(1059)[0], 90_000);
        let later = At { now_ms: 2000, ..at(&ids[0], 2) };
        let lease = book.acquire(later, b"h", 50).unwrap();
        assert_eq!(book.leases.len(), 99_901, "what had ended of this revision is forgotten");
        book.release(b"default", lease.id);
        assert_eq!(book.get(&ids[0], 2000).unwrap().1, 0);
        assert!(book.begin_delete(later).is_ok());
        book.forget(&ids[0]);
        assert_eq!((book.leases.len(), book.terms.len()), (99_900, 999));
    }

    #[test]
    fn a_change_of_tier_runs_alone() {
        let (mut book, id) = (Book::default(), identity("r"));
        ready(&mut book, &id);
        assert_eq!(book.start(at(&id, 2), Residency::MIXED), Err(Refusal::INVALID_ARGUMENT));
        let operation = book.start(at(&id, 2), Residency::COLD).unwrap();
        assert_eq!((operation.operation, operation.fenced, operation.total), (Running::EVICTING, 3, 3));
        assert_eq!(book.figures(operation.started_ms + 5)[1..], [1, 5]);
        assert_eq!(book.start(at(&id, 3), Residency::COLD), Err(Refusal::BUSY));
        assert_eq!(book.begin_delete(at(&id, 3)), Err(Refusal::BUSY));
        book.finish(operation.id, 3, 2000);
        let (revision, ..) = book.get(&id, 0).unwrap();
        assert_eq!((revision.residency, revision.generation), (Residency::COLD, 4));
        assert_eq!(book.operation(b"default", operation.id).unwrap().processed, 3);
        assert_eq!(book.operation(b"other", operation.id), Err(Refusal::NOT_FOUND));
    }

    #[test]
    fn imports_that_nothing_arrives_for_are_given_up() {
        let (mut book, id) = (Book::default(), identity("r"));
        book.begin(&id, b"", (2, 30), 0).unwrap();
        assert_eq!(book.look(&id, 1, 300, 200), None);
        assert_eq!(book.look(&id, 1, 300, 499), None);
        assert!(book.look(&id, 1, 300, 500).is_some());
        assert!(book.imports().is_empty());
    }

    #[test]
    fn lists_come_in_pages() {
        let mut book = Book::default();
        for at in 0..5 {
            book.begin(&identity(&format!("r{at}")), b"", (1, 1), 0).unwrap();
        }
        let mut all = Vec::new();
        let mut token = Vec::new();
        loop {
            let (page, next) = book.list((b"default", b"ns", b"m2"), &token, 2, 0).unwrap();
            all.extend(page.into_iter().map(|(revision, ..)| revision.identity.revision));
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(all.len(), 5);
        assert_eq!(book.list((b"default", b"ns", b"m2"), b"x", 2, 0), Err(Refusal::INVALID_ARGUMENT));
        assert!(book.list((b"other", b"ns", b"m2"), b"", 2, 0).unwrap().0.is_empty());
    }
}
