//! The ledger of tenants against what is there, all through random histories.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use yb_catalog::*;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const NAMES: [&str; 4] = ["default", "alice", "bob", "carol"];

fn settings() -> CatalogSettings {
    CatalogSettings {
        multi_tenant: true,
        tenants_max: 5,
        lease_ttl: Duration::from_secs(2),
        discard_timeout: Duration::from_secs(3),
        release_timeout: Duration::from_secs(9),
        tenant_high_watermark: 0.8,
        ..CatalogSettings::default()
    }
}

fn step(pool: &mut Pool, dice: &mut Dice) {
    let name = NAMES[dice.roll(4) as usize];
    pool.tenant = pool.catalog.tenants().reader(name.as_bytes()).unwrap();
    let key = format!("k{}", dice.roll(40));
    let (writer, now) = (dice.roll(3), pool.now);
    match dice.roll(20) {
        0..=6 => {
            pool.config.replica_num = 1 + dice.roll(2);
            pool.config.with_hard_pin = dice.roll(20) == 0;
            let size = 1 + dice.roll(3000);
            let started = pool.start(writer, &key, size);
            if started.is_ok() && dice.roll(8) > 0 {
                pool.end(writer, &key).unwrap();
            }
        }
        7 => drop(pool.end(writer, &key)),
        8 => drop(pool.revoke(writer, &key)),
        9 | 10 => drop(pool.get(&key)),
        11 => drop(pool.remove(&key, Force::from(dice.roll(2) == 0))),
        12 => pool.advance(Duration::from_millis(dice.roll(4000))),
        13 => drop(pool.catalog.upkeep(64, now, &mut pool.effects)),
        14 => drop(pool.mount(segment(1 + dice.roll(3), "s", 8192 << dice.roll(3)), 50 + dice.roll(2))),
        15 => {
            for owner in [50, 51] {
                let id = segment(1 + dice.roll(3), "s", 1).id;
                let _ = pool.catalog.unmount(id, client(owner), now, &mut pool.effects);
            }
        }
        16 => drop(pool.catalog.tenants().set_policy(name, 1 + dice.roll(40_000), now)),
        17 => {
            if pool.catalog.tenants().block(name).is_ok() {
                pool.catalog.tenants().forget(name, now);
            }
        }
        18 => {
            let some = NAMES.iter().filter(|_| dice.roll(4) > 0).map(|name| ((*name).to_owned(), 20_000));
            pool.catalog.tenants().set_policies(&some.collect::<BTreeMap<_, _>>(), now).unwrap();
        }
        _ => match dice.roll(4) {
            0 => drop(pool.catalog.remove_all(Some(pool.tenant), Force::No, now)),
            1 => drop(pool.catalog.trim_tenants(100, now)),
            _ => {
                if let Some(goal) = pool.catalog.eviction_goal(pool.now) {
                    pool.catalog.evict(&goal, 100, now);
                }
            }
        },
    }
}

#[test]
fn the_ledger_is_the_sum_of_what_is_there() {
    for seed in 0..4 {
        let (mut pool, mut dice) = (Pool::new(settings()), Dice(seed));
        let mut most = 0;
        for at in 0..2000 {
            step(&mut pool, &mut dice);
            if at % 5 > 0 {
                continue;
            }
            pool.catalog.assert_consistent();
            let quotas = pool.catalog.tenants().quotas(pool.now);
            most = most.max(quotas.iter().map(|quota| quota.charged).sum::<u64>());
            let sums = pool.catalog.tenants().sums();
            assert!(sums.effective <= sums.capacity || u128::from(sums.effective) == sums.requested);
        }
        assert!(most > 10_000, "seed {seed} stored little: {most}");
        // With everything gone, nothing is owed.
        pool.catalog.remove_all(None, Force::Yes, pool.now);
        pool.advance(Duration::from_secs(10));
        pool.upkeep();
        assert!(pool.catalog.tenants().quotas(pool.now).iter().all(|quota| quota.charged == 0 && quota.objects == 0));
    }
}
