//! What tests of failures share: processes that end with their test ([`Process`]), a TCP relay with bad days ([`Relay`]), values of
//! which every byte can be judged ([`value`]), and the chaos run ([`run`](run::run)): a pool of real processes, random kills by a
//! plan from one seed, and a history that `yb_history` judges.
#![forbid(unsafe_code)]

pub mod command;
pub mod maker;
pub mod plan;
mod process;
mod relay;
pub mod report;
pub mod run;
pub mod slow_reads;
mod stage;
pub mod value;
pub mod workload;

pub use process::{PATIENCE, Process, free_port, now, wait_until};
pub use relay::{Relay, Weather};
