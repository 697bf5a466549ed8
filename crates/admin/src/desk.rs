//! What the handlers work with.

use std::sync::Arc;

use crate::control::{Control, NoControl};
use crate::jobs::{Jobs, NoJobs};
use crate::places::DoorCounts;
use crate::pool::Pool;
use crate::tenants::{NoTenants, Tenants};

/// The parts of the master that the admin server asks, one trait a part. A part that a master has not answers with its
/// default.
#[derive(Clone)]
pub struct Parts {
    /// Keys, segments, numbers.
    pub pool: Arc<dyn Pool>,
    /// Settings.
    pub control: Arc<dyn Control>,
    /// Quotas of tenants.
    pub tenants: Arc<dyn Tenants>,
    /// Drain jobs and tasks.
    pub jobs: Arc<dyn Jobs>,
    /// Where connections to the server are counted.
    pub door: DoorCounts,
}

impl Parts {
    /// Only the pool; every other part says that it is not there.
    pub fn new(pool: Arc<dyn Pool>) -> Parts {
        Parts {
            pool,
            control: Arc::new(NoControl),
            tenants: Arc::new(NoTenants),
            jobs: Arc::new(NoJobs),
            door: DoorCounts::default(),
        }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// State of every handler.
pub(crate) type Desk = Arc<Parts>;
