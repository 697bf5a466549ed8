//! What goes wrong, and when: all of it from one seed.

use std::time::Duration;

use yb_env::Rng;
use yb_history::{Harm, Party};

use crate::relay::Weather;

/// What is done to a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// SIGKILL; another process takes its place afterwards.
    Kill,
    /// SIGTERM; another process takes its place afterwards.
    Term,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// Its wire (the one before the master for the master) has bad weather.
    Weather(Weather),
}

impl Deed {
    /// What the party suffers.
    pub fn harm(self) -> Harm {
        match self {
            Deed::Kill | Deed::Term => Harm::Death,
            Deed::Stop => Harm::Pause,
            Deed::Weather(_) => Harm::Wire,
        }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the begin.
    pub at: Duration,
    /// For so long.
    pub lasts: Duration,
    /// To whom.
    pub party: Party,
    /// What.
    pub deed: Deed,
}

/// Who is there to suffer.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// Nodes.
    pub nodes: u32,
    /// Clients.
    pub clients: u32,
    /// The node behind a relay, if any.
    pub relayed_node: Option<u32>,
    /// Time to live of a silent client: nodes are stopped or cut off for less, the master for up to twice as long.
    pub ttl: Duration,
}

/// The events of a run, in order. Nobody suffers twice at a time, and the last of them is over at the end.
pub fn events(seed: u64, length: Duration, cast: &Cast) -> Vec<Event> {
    let mut rng = Rng::seeded(seed);
    let (mut events, mut at): (Vec<Event>, _) = (Vec::new(), Duration::from_secs(2));
    while at < length {
        let event = one(&mut rng, at, cast);
        let is_free = |e: &Event| e.party != event.party || e.at + e.lasts + Duration::from_millis(500) < at;
        if event.at + event.lasts < length && events.iter().all(is_free) {
            events.push(event);
        }
        at += Duration::from_millis(500 + rng.below(4000));
    }
    events
}

fn one(rng: &mut Rng, at: Duration, cast: &Cast) -> Event {
    let lasts = Duration::from_millis(200 + rng.below(2500));
    let brief = lasts.min(cast.ttl / 2);
    let node = Party::Node(rng.below(cast.nodes.into()) as u32);
    let client = Party::Client(rng.below(cast.clients.into()) as u32);
    let weather = match rng.below(4) {
        0 => Weather::Delay(Duration::from_millis(5 + rng.below(60))),
        1 => Weather::Cut,
        2 => Weather::HalfOpen,
        _ => Weather::Trickle(20_000 + rng.below(200_000) as u32),
    };
    let (party, deed, lasts) = match rng.below(14) {
        0 | 1 => (Party::Master, Deed::Kill, lasts),
        2 => (Party::Master, Deed::Stop, lasts.mul_f64(0.2 + rng.below(100) as f64 / 50.0).min(cast.ttl * 2)),
        3 => (Party::Master, Deed::Weather(weather), brief),
        4..=6 => (node, Deed::Kill, lasts),
        7 => (node, Deed::Term, lasts),
        8 | 9 => (node, Deed::Stop, brief),
        10 => (
            cast.relayed_node.map_or(node, Party::Node),
            cast.relayed_node.map_or(Deed::Stop, |_| Deed::Weather(weather)),
            brief,
        ),
        11 | 12 => (client, Deed::Kill, lasts.min(Duration::from_millis(500))),
        _ => (client, Deed::Stop, lasts),
    };
    Event { at, lasts, party, deed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAST: Cast = Cast { nodes: 3, clients: 4, relayed_node: Some(1), ttl: Duration::from_secs(4) };

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let minutes = Duration::from_secs(600);
        assert_eq!(events(5, minutes, &CAST), events(5, minutes, &CAST));
        assert_ne!(events(5, minutes, &CAST), events(6, minutes, &CAST));
    }

    #[test]
    fn a_plan_has_some_of_everything_and_nobody_suffers_twice_at_a_time() {
        let events = events(1, Duration::from_secs(600), &CAST);
        for deed in [Deed::Kill, Deed::Term, Deed::Stop, Deed::Weather(Weather::Cut), Deed::Weather(Weather::HalfOpen)]
        {
            assert!(events.iter().any(|event| event.deed == deed), "{deed:?}");
        }
        for (index, event) in events.iter().enumerate() {
            assert!(event.at + event.lasts < Duration::from_secs(600));
            let later = events[index + 1..].iter().find(|e| e.party == event.party);
            assert!(later.is_none_or(|later| later.at > event.at + event.lasts), "{event:?} {later:?}");
        }
    }
}
